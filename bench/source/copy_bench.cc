// copy/<pattern>/<bytes>/<impl> and export/<pattern>/<bytes>/<impl>: the changed ranges of an image
// that is in the page cache, to another file and as an increment.
//
//   cbt       CopyRanges(), or WriteOverlay() to /dev/null, with two threads
//   verified  the same, read back
//   file      WriteOverlay() to a file
//   zstd      the same, compressed at level 1
//   qemu      qemu-img convert of the whole image, where it is installed
//   cp        cp of the whole image
//   limit     pread and pwrite of the same ranges, 1 MiB at a time; of an export pread alone
//   both      of an export pread and pwrite
//
// Bytes are those of the ranges. Patterns: Whole, everything; Clusters, 64 KiB in each MiB.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/memory.h"
#include "cbt/source/copy_ranges.h"
#include "source/overlay/cluster_codec.h"
#include "source/overlay/overlay_writer.h"

namespace cbt::bench {
namespace {

constexpr uint64_t kVolume = 256 * kMiB;

[[noreturn]] void Fail(std::string_view what) {
  std::fprintf(stderr, "copy_bench: %.*s\n", static_cast<int>(what.size()), what.data());
  std::exit(1);
}

// The image, and a file to write to; removed at the end.
class Files {
 public:
  Files() {
    // In memory: a disk's own pace would hide that of the code.
    const char* const directory = std::getenv("TMPDIR");
    path_ = absl::StrCat(directory == nullptr ? "/dev/shm" : directory, "/cbt-copy-bench-XXXXXX");
    if (mkdtemp(path_.data()) == nullptr) Fail("no temporary directory");
    std::vector<uint64_t> words(kMiB / 8);
    std::mt19937_64 random(1);
    const int descriptor = open(input().c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    for (uint64_t at = 0; at < kVolume; at += kMiB) {
      // Half of it compresses.
      for (size_t i = 0; i < words.size(); ++i) words[i] = i % 2 == 0 ? random() : at;
      if (pwrite(descriptor, words.data(), kMiB, static_cast<off_t>(at)) !=
          static_cast<ssize_t>(kMiB)) {
        Fail("no space for 256 MiB");
      }
    }
    close(descriptor);
    auto image = Image::Open(input());
    if (!image.ok()) Fail("the image can't be opened");
    image_ = *std::move(image);
  }
  ~Files() {
    unlink(input().c_str());
    unlink(output().c_str());
    rmdir(path_.c_str());
  }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  std::string input() const { return path_ + "/input"; }
  std::string output() const { return path_ + "/output"; }
  const std::shared_ptr<const Image>& image() const { return image_; }

  // Empty, but of its size: as a restore finds it.
  int Output(uint64_t size) const {
    const int descriptor = open(output().c_str(), O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor < 0 || ftruncate(descriptor, static_cast<off_t>(size)) != 0) Fail("no output");
    return descriptor;
  }

 private:
  std::string path_;
  std::shared_ptr<const Image> image_;
};

Files& TheFiles() {
  static Files files;
  return files;
}

std::vector<Extent> RangesOf(bool whole) {
  std::vector<Extent> ranges;
  if (whole) return {{0, kVolume}};
  for (uint64_t at = 0; at < kVolume; at += kMiB) ranges.push_back({at, 64 * kKiB});
  return ranges;
}

std::unique_ptr<ExtentCursor> CursorOf(const std::vector<Extent>& ranges) {
  auto cursor = MakeExtentCursor(ranges, {.capacity = kVolume, .granularity = 1});
  if (!cursor.ok()) Fail("no cursor");
  return *std::move(cursor);
}

ThreadPool& Pool() {
  static ThreadPool pool(2);
  return pool;
}

void Copy(const std::vector<Extent>& ranges, bool verify) {
  const int descriptor = TheFiles().Output(kVolume);
  const auto output = MakeCopyOutput(descriptor, "output");
  const auto done =
      CopyRanges(*CursorOf(ranges), *MakeCopyInput(TheFiles().image()), *output,
                 {.executor = &Pool(), .output_is_zero = true, .verify = verify, .sync = false});
  if (!done.ok()) Fail(std::string(done.status().message()));
  close(descriptor);
}

void Export(const std::vector<Extent>& ranges, bool to_file, bool compress) {
  const int descriptor = to_file ? TheFiles().Output(0) : open("/dev/null", O_WRONLY | O_CLOEXEC);
  const auto output = MakeOverlayOutput(descriptor, "output");
  const auto done = WriteOverlay(
      *CursorOf(ranges), *MakeCopyInput(TheFiles().image()), *output,
      {.backing_name = "base", .compress = compress, .compression_level = 1, .executor = &Pool()});
  if (!done.ok()) Fail(std::string(done.status().message()));
  close(descriptor);
}

// What a loop would do, and nothing else.
void Loop(const std::vector<Extent>& ranges, bool write) {
  std::vector<char> buffer(kMiB);
  const int in = open(TheFiles().input().c_str(), O_RDONLY | O_CLOEXEC);
  const int out = write ? TheFiles().Output(kVolume) : -1;
  for (const Extent& range : ranges) {
    for (uint64_t at = range.offset; at < range.end(); at += kMiB) {
      const auto size = static_cast<size_t>(std::min(kMiB, range.end() - at));
      const auto offset = static_cast<off_t>(at);
      if (pread(in, buffer.data(), size, offset) != static_cast<ssize_t>(size)) Fail("read");
      if (write && pwrite(out, buffer.data(), size, offset) != static_cast<ssize_t>(size)) {
        Fail("write");
      }
    }
  }
  close(in);
  if (write) close(out);
}

void Command(const std::string& command) {
  if (std::system(command.c_str()) != 0) Fail(command);
}

void AddCopyRow(const std::string& family, const std::string& impl,
                const std::function<void(const std::vector<Extent>&)>& job) {
  for (const bool whole : {true, false}) {
    // Peers copy the whole image, whatever has changed.
    if (!whole && (impl == "qemu" || impl == "cp")) continue;
    const std::string name = absl::StrCat(family, whole ? "/Whole/" : "/Clusters/",
                                          whole ? kVolume : kVolume / 16, "/", impl);
    benchmark::RegisterBenchmark(
        name.c_str(),
        [=](benchmark::State& state) {
          const std::vector<Extent> ranges = RangesOf(whole);
          TheFiles();
          for (auto _ : state) job(ranges);
          const uint64_t bytes = whole ? kVolume : kVolume / 16;
          state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(bytes));
        })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

const bool kCopyRowsAdded = [] {
  AddCopyRow("copy", "cbt", [](const auto& ranges) { Copy(ranges, false); });
  AddCopyRow("copy", "verified", [](const auto& ranges) { Copy(ranges, true); });
  AddCopyRow("copy", "limit", [](const auto& ranges) { Loop(ranges, true); });
  AddCopyRow("copy", "cp", [](const auto&) {
    Command(absl::StrCat("cp ", TheFiles().input(), " ", TheFiles().output()));
  });
  if (std::system("qemu-img --version >/dev/null 2>&1") == 0) {
    AddCopyRow("copy", "qemu", [](const auto&) {
      Command(absl::StrCat("qemu-img convert -f raw -O raw ", TheFiles().input(), " ",
                           TheFiles().output()));
    });
    AddCopyRow("export", "qemu", [](const auto&) {
      Command(absl::StrCat("qemu-img convert -f raw -O qcow2 ", TheFiles().input(), " ",
                           TheFiles().output()));
    });
  }
  AddCopyRow("export", "cbt", [](const auto& ranges) { Export(ranges, false, false); });
  AddCopyRow("export", "file", [](const auto& ranges) { Export(ranges, true, false); });
  if (LoadClusterCodec().ok()) {
    AddCopyRow("export", "zstd", [](const auto& ranges) { Export(ranges, true, true); });
  }
  AddCopyRow("export", "limit", [](const auto& ranges) { Loop(ranges, false); });
  AddCopyRow("export", "both", [](const auto& ranges) { Loop(ranges, true); });
  return true;
}();

}  // namespace
}  // namespace cbt::bench
