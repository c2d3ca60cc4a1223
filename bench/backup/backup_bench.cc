// backup/<pattern>/<bytes>/<impl> and restore/<pattern>/<bytes>/<impl>: a full backup of an image in
// the page cache, and its way back, in one thread, beside what they are made of.
//
//   cbt     backup::Create() or Restore(), as a program does them
//   limit   the parts alone, one after another over the same bytes. A backup: pread, SHA-256, zstd,
//           AES-256-CTR, Poly1305 of each MiB, and the SHA-256 of each pack, which is its name. A
//           restore: pread, Poly1305, AES-256-CTR, zstd, SHA-256, pwrite
//   read, sha256, zstd, aes, poly1305, write: one part
//
// Packs are dropped, or read from a directory: no disk is measured. Patterns: random does not
// compress, half does to about a half.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bucket/bucket.h"
#include "cbt/memory.h"
#include "cbt/source/copy_ranges.h"
#include "cbt/units.h"
#include "programs/backup/create.h"
#include "programs/backup/restore.h"
#include "programs/backup/volume_snapshot.h"
#include "repository/repository.h"
#include "tests/bucket/passing_bucket.h"

namespace cbt::bench {
namespace {

constexpr size_t kBlob = kMiB;
constexpr size_t kVolumeBytes = 128 * kMiB;
constexpr size_t kPack = 16 * kMiB;
constexpr char kPassword[] = "bench";

[[noreturn]] void Stop(const std::string& what) {
  std::fprintf(stderr, "backup_bench: %s\n", what.c_str());
  std::exit(1);
}

template <typename T>
T Need(absl::StatusOr<T> value) {
  if (!value.ok()) Stop(std::string(value.status().message()));
  return *std::move(value);
}
void Need(const absl::Status& status) {
  if (!status.ok()) Stop(std::string(status.message()));
}

// A directory; `drops`: nothing that is put is kept, but locks.
class DroppingBucket final : public bucket::PassingBucket {
 public:
  DroppingBucket(std::unique_ptr<bucket::Bucket> bucket, bool drops)
      : PassingBucket(std::move(bucket)), drops_(drops) {}
  bool is_local() const override { return true; }
  absl::Status Put(const std::string& key, std::span<const uint8_t> bytes) override {
    return drops_ && !key.starts_with("locks/") ? absl::OkStatus() : PassingBucket::Put(key, bytes);
  }
  absl::Status ReadRange(const std::string& key, uint64_t offset, std::span<uint8_t> out) override {
    return passed_to().ReadRange(key, offset, out);
  }

 private:
  const bool drops_;
};

// No delta, and not known what is allocated.
class NoRanges final : public backup::RangeSource {
 public:
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(const std::string&) override {
    return absl::NotFoundError("");
  }
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated() override {
    return absl::UnimplementedError("");
  }
};

// An image, a repository with a backup of it, and a file to restore to; removed at the end.
class World {
 public:
  explicit World(bool random) {
    const char* const directory = std::getenv("TMPDIR");
    path_ = absl::StrCat(directory == nullptr ? "/dev/shm" : directory, "/cbt-backup-bench-XXXXXX");
    if (mkdtemp(path_.data()) == nullptr) Stop("no temporary directory");
    std::vector<uint64_t> words(kBlob / 8);
    std::mt19937_64 numbers(1);
    descriptor_ = open((path_ + "/image").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    for (size_t at = 0; at < kVolumeBytes; at += kBlob) {
      for (size_t i = 0; i < words.size(); ++i) words[i] = random || i % 2 == 0 ? numbers() : at;
      if (pwrite(descriptor_, words.data(), kBlob, static_cast<off_t>(at)) !=
          static_cast<ssize_t>(kBlob)) {
        Stop("no space for the image");
      }
    }
    target_ = open((path_ + "/target").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (ftruncate(target_, kVolumeBytes) != 0) Stop("no target");
    input_ = MakeCopyInput(Need(Image::Open(path_ + "/image")));
    if (mkdir((path_ + "/kept").c_str(), 0700) != 0) Stop("no repository");
    Need(repository::Repository::Create(Bucket(false), "", Secret(kPassword)));
    Backup(*Open(false));
    reader_ = Open(false);
  }
  ~World() {
    reader_.reset();
    close(descriptor_);
    close(target_);
    if (std::system(absl::StrCat("rm -rf ", path_).c_str()) != 0) std::perror(path_.c_str());
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Another one for each backup, or it would have all blobs already. The index is not read, so
  // that it stores all.
  std::unique_ptr<repository::Repository> Open(bool drops) const {
    auto repository =
        Need(repository::Repository::Open(Bucket(drops), "", Secret(kPassword), true,
                                          {.lock = {.pause = std::chrono::milliseconds(0)}}));
    if (!drops) Need(repository->LoadIndex(false));
    return repository;
  }

  backup::CreateResult Backup(repository::Repository& repository) const {
    NoRanges ranges;
    return Need(backup::Create(repository, *input_, ranges, {.volume = "volume", .threads = 1}));
  }

  void Restore() const {
    const auto snapshot = Need(backup::FindVolumeSnapshot(*reader_, "volume", ""));
    const auto content = Need(backup::LoadContent(*reader_, snapshot));
    const auto output = MakeCopyOutput(target_, "target");
    Need(backup::Restore(*reader_, content, *output, backup::Target::kUnknown, {.threads = 1}));
  }

  int image() const { return descriptor_; }
  int target() const { return target_; }

 private:
  std::unique_ptr<bucket::Bucket> Bucket(bool drops) const {
    return std::make_unique<DroppingBucket>(Need(bucket::OpenDirectoryBucket(path_ + "/kept")),
                                            drops);
  }

  std::string path_;
  int descriptor_ = -1;
  int target_ = -1;
  std::unique_ptr<CopyInput> input_;
  std::unique_ptr<repository::Repository> reader_;
};

World& TheWorld(bool random) {
  static World worlds[] = {World(false), World(true)};
  return worlds[random ? 1 : 0];
}

// The parts, with the libraries that do them.
class Parts {
 public:
  explicit Parts(const World& world)
      : world_(world),
        plain_(kBlob),
        frame_(ZSTD_compressBound(kBlob)),
        sealed_(kBlob),
        pack_(kPack) {}
  ~Parts() {
    ZSTD_freeCCtx(compressor_);
    ZSTD_freeDCtx(decompressor_);
    EVP_CIPHER_CTX_free(cipher_);
    EVP_MAC_CTX_free(mac_);
    EVP_MAC_free(poly1305_);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  void Read(size_t at) {
    if (pread(world_.image(), plain_.data(), kBlob, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(kBlob)) {
      Stop("can't read");
    }
  }
  void Write(size_t at) {
    if (pwrite(world_.target(), plain_.data(), kBlob, static_cast<off_t>(at)) !=
        static_cast<ssize_t>(kBlob)) {
      Stop("can't write");
    }
  }
  void Sha256(std::span<const uint8_t> bytes) {
    std::array<uint8_t, 32> sum{};
    if (EVP_Digest(bytes.data(), bytes.size(), sum.data(), nullptr, EVP_sha256(), nullptr) != 1) {
      Stop("no SHA-256");
    }
    benchmark::DoNotOptimize(sum);
  }
  void Compress() {
    const size_t size =
        ZSTD_compressCCtx(compressor_, frame_.data(), frame_.size(), plain_.data(), kBlob, 3);
    packs_ = size < kBlob;
    stored_ = packs_ ? size : kBlob;
  }
  void Decompress() {
    if (!packs_) return;
    if (ZSTD_decompressDCtx(decompressor_, plain_.data(), kBlob, frame_.data(), stored_) != kBlob) {
      Stop("can't decompress");
    }
  }
  void Encrypt() {
    const std::array<uint8_t, 32> key{1};
    int size = 0;
    EVP_EncryptInit_ex(cipher_, EVP_aes_256_ctr(), nullptr, key.data(), key.data());
    if (EVP_EncryptUpdate(cipher_, sealed_.data(), &size, packs_ ? frame_.data() : plain_.data(),
                          static_cast<int>(stored_)) != 1) {
      Stop("no AES");
    }
  }
  void Authenticate() {
    const std::array<uint8_t, 32> key{1};
    std::array<uint8_t, 16> tag{};
    size_t size = 0;
    if (EVP_MAC_init(mac_, key.data(), key.size(), nullptr) != 1 ||
        EVP_MAC_update(mac_, sealed_.data(), stored_) != 1 ||
        EVP_MAC_final(mac_, tag.data(), &size, tag.size()) != 1) {
      Stop("no Poly1305");
    }
    benchmark::DoNotOptimize(tag);
  }
  // The names of the packs that so many blobs of this kind fill.
  void NamePacks(size_t blobs) {
    for (size_t left = blobs * stored_; left > 0;) {
      const size_t size = std::min(left, kPack);
      Sha256(std::span(pack_).first(size));
      left -= size;
    }
  }
  std::span<const uint8_t> plain() const { return plain_; }

 private:
  const World& world_;
  std::vector<uint8_t> plain_;
  std::vector<uint8_t> frame_;
  std::vector<uint8_t> sealed_;
  std::vector<uint8_t> pack_;
  size_t stored_ = kBlob;
  bool packs_ = false;
  ZSTD_CCtx* const compressor_ = ZSTD_createCCtx();
  ZSTD_DCtx* const decompressor_ = ZSTD_createDCtx();
  EVP_CIPHER_CTX* const cipher_ = EVP_CIPHER_CTX_new();
  EVP_MAC* const poly1305_ = EVP_MAC_fetch(nullptr, "POLY1305", nullptr);
  EVP_MAC_CTX* const mac_ = EVP_MAC_CTX_new(poly1305_);
};

void AddRow(const std::string& family, bool random, const std::string& impl,
            const std::function<void(benchmark::State&, const World&)>& job) {
  const std::string name =
      absl::StrCat(family, random ? "/random/" : "/half/", kVolumeBytes, "/", impl);
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) {
        job(state, TheWorld(random));
        state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kVolumeBytes));
      })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

// Calls `each(parts, at)` for every MiB, after `before` once.
void AddParts(const std::string& family, bool random, const std::string& impl,
              const std::function<void(Parts&, size_t)>& each, bool packs = false) {
  AddRow(family, random, impl, [=](benchmark::State& state, const World& world) {
    Parts parts(world);
    parts.Read(0);
    parts.Compress();
    for (auto _ : state) {
      for (size_t at = 0; at < kVolumeBytes; at += kBlob) each(parts, at);
      if (packs) parts.NamePacks(kVolumeBytes / kBlob);
    }
  });
}

const bool kBackupRowsAdded = [] {
  for (const bool random : {true, false}) {
    AddRow("backup", random, "cbt", [](benchmark::State& state, const World& world) {
      for (auto _ : state) {
        state.PauseTiming();
        auto repository = world.Open(true);
        state.ResumeTiming();
        world.Backup(*repository);
        state.PauseTiming();
        repository.reset();
        state.ResumeTiming();
      }
    });
    AddRow("restore", random, "cbt", [](benchmark::State& state, const World& world) {
      for (auto _ : state) world.Restore();
    });
    AddParts(
        "backup", random, "limit",
        [](Parts& parts, size_t at) {
          parts.Read(at);
          parts.Sha256(parts.plain());
          parts.Compress();
          parts.Encrypt();
          parts.Authenticate();
        },
        true);
    AddParts("restore", random, "limit", [](Parts& parts, size_t at) {
      parts.Read(at);
      parts.Authenticate();
      parts.Encrypt();
      parts.Decompress();
      parts.Sha256(parts.plain());
      parts.Write(at);
    });
    AddParts("backup", random, "read", [](Parts& parts, size_t at) { parts.Read(at); });
    AddParts("backup", random, "sha256", [](Parts& parts, size_t) { parts.Sha256(parts.plain()); });
    AddParts("backup", random, "zstd", [](Parts& parts, size_t) { parts.Compress(); });
    AddParts("backup", random, "aes", [](Parts& parts, size_t) { parts.Encrypt(); });
    AddParts("backup", random, "poly1305", [](Parts& parts, size_t) { parts.Authenticate(); });
    AddParts("restore", random, "zstd", [](Parts& parts, size_t) { parts.Decompress(); });
    AddParts("restore", random, "write", [](Parts& parts, size_t at) { parts.Write(at); });
  }
  return true;
}();

}  // namespace
}  // namespace cbt::bench
