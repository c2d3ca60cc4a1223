// Two equal images in the page cache, compared in several ways: what does the kernel's copy cost,
// and which way avoids it?
//
// Run by hand: make bench-cached. Writes both files below --folder=DIR (/dev/shm), --megabytes=N
// (1024) each, compares them in every way --rounds=N (5) times in turns, and prints a table in
// Markdown: medians for a GiB of each side.
#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "cbt/batch.h"
#include "cbt/source/image.h"
#include "cbt/units.h"
#include "simd/kernels.h"

namespace cbt::bench {
namespace {

constexpr size_t kBlock = 4096;

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

// Both files, open.
struct Files {
  std::string base_path;
  std::string target_path;
  uint64_t size;
  int base;
  int target;
};

void Compare(const uint8_t* base, const uint8_t* target, size_t bytes) {
  static std::vector<uint64_t> changed;
  changed.resize(bytes / kBlock / 64 + 1);
  simd::CompareBlocks().compare(base, target, bytes, kBlock, changed.data());
  for (const uint64_t word : changed) {
    if (word != 0) Fail("equal files differ");
  }
}

std::vector<uint8_t> MakeFilled(size_t bytes) { return std::vector<uint8_t>(bytes, 1); }

void Read(const Files& files, size_t piece) {
  std::vector<uint8_t> base = MakeFilled(piece);
  std::vector<uint8_t> target = MakeFilled(piece);
  const auto length = static_cast<ssize_t>(piece);
  for (uint64_t at = 0; at < files.size; at += piece) {
    const auto offset = static_cast<off_t>(at);
    if (pread(files.base, base.data(), piece, offset) != length) Fail("pread");
    if (pread(files.target, target.data(), piece, offset) != length) Fail("pread");
    Compare(base.data(), target.data(), piece);
  }
}

// Windows of both files, mapped and unmapped again. `advice`: for madvise(); 0: none.
void Map(const Files& files, size_t window, int flags, int advice) {
  for (uint64_t at = 0; at < files.size; at += window) {
    const uint8_t* sides[2];
    for (const bool second : {false, true}) {
      void* const memory = mmap(nullptr, window, PROT_READ, MAP_SHARED | flags,
                                second ? files.target : files.base, static_cast<off_t>(at));
      if (memory == MAP_FAILED) Fail("mmap");
      if (advice != 0 && madvise(memory, window, advice) != 0) Fail("madvise");
      sides[second ? 1 : 0] = static_cast<const uint8_t*>(memory);
    }
    Compare(sides[0], sides[1], window);
    for (const uint8_t* side : sides) munmap(const_cast<uint8_t*>(side), window);
  }
}

// `depth` pieces of both sides in the queue. Buffers and files are registered.
void Ring(const Files& files, size_t piece, unsigned depth) {
  io_uring ring;
  if (io_uring_queue_init(2 * depth, &ring, 0) < 0) Fail("io_uring_queue_init");
  std::vector<uint8_t> memory = MakeFilled(2 * depth * piece);
  std::vector<iovec> buffers;
  for (size_t i = 0; i < 2 * depth; ++i) buffers.push_back({memory.data() + i * piece, piece});
  if (io_uring_register_buffers(&ring, buffers.data(), 2 * depth) < 0) Fail("registered buffers");
  const int descriptors[2] = {files.base, files.target};
  if (io_uring_register_files(&ring, descriptors, 2) < 0) Fail("registered files");
  const auto ask = [&](unsigned slot, uint64_t at) {
    for (const unsigned side : {0u, 1u}) {
      const unsigned index = 2 * slot + side;
      io_uring_sqe* const entry = io_uring_get_sqe(&ring);
      io_uring_prep_read_fixed(entry, static_cast<int>(side), buffers[index].iov_base,
                               static_cast<unsigned>(piece), at, static_cast<int>(index));
      entry->flags |= IOSQE_FIXED_FILE;
      io_uring_sqe_set_data(entry, buffers[index].iov_base);
    }
  };
  uint64_t next = 0;
  for (unsigned slot = 0; slot < depth; ++slot, next += piece) ask(slot, next);
  std::vector<int> waiting(depth, 2);
  for (uint64_t left = files.size / piece; left > 0;) {
    if (io_uring_submit_and_wait(&ring, 1) < 0) Fail("io_uring_submit_and_wait");
    io_uring_cqe* done = nullptr;
    while (io_uring_peek_cqe(&ring, &done) == 0) {
      if (done->res != static_cast<int>(piece)) Fail("io_uring: short read");
      const auto index =
          static_cast<size_t>(static_cast<const uint8_t*>(io_uring_cqe_get_data(done)) -
                              memory.data()) /
          piece;
      io_uring_cqe_seen(&ring, done);
      const size_t slot = index / 2;
      if (--waiting[slot] > 0) continue;
      const uint8_t* const both = memory.data() + 2 * slot * piece;
      Compare(both, both + piece, piece);
      --left;
      if (next == files.size) continue;
      waiting[slot] = 2;
      ask(static_cast<unsigned>(slot), next);
      next += piece;
    }
  }
  io_uring_queue_exit(&ring);
}

void Cursor(const Files& files) {
  const auto base = Image::Open(files.base_path);
  const auto target = Image::Open(files.target_path);
  if (!base.ok() || !target.ok()) Fail("Image::Open");
  auto cursor = MakeImageDeltaCursor(*base, *target);
  if (!cursor.ok()) Fail("MakeImageDeltaCursor");
  ExtentBatch batch;
  for (Step step = Step::kMore; step == Step::kMore;) {
    step = (*cursor)->Next(batch).value();
    if (!batch.empty()) Fail("equal files differ");
  }
}

struct Way {
  std::string name;
  std::function<void(const Files&)> run;
};

std::vector<Way> Ways() {
  std::vector<Way> ways = {{"the cursor", Cursor}};
  for (const size_t piece : {64 * kKiB, 256 * kKiB, kMiB, 8 * kMiB}) {
    ways.push_back({"`pread` of " + std::to_string(piece / kKiB) + " KiB",
                    [=](const Files& files) { Read(files, piece); }});
  }
  for (const size_t window : {256 * kKiB, 2 * kMiB, 64 * kMiB}) {
    const std::string size = std::to_string(window / kKiB) + " KiB mapped";
    ways.push_back({size, [=](const Files& files) { Map(files, window, 0, 0); }});
    ways.push_back({size + ", `MADV_HUGEPAGE`",
                    [=](const Files& files) { Map(files, window, 0, MADV_HUGEPAGE); }});
    ways.push_back({size + ", `MAP_POPULATE`",
                    [=](const Files& files) { Map(files, window, MAP_POPULATE, 0); }});
  }
  for (const unsigned depth : {1, 4}) {
    ways.push_back({"io_uring of 256 KiB, registered, " + std::to_string(depth) + " of each side",
                    [=](const Files& files) { Ring(files, 256 * kKiB, depth); }});
  }
  return ways;
}

// Seconds.
struct Times {
  double wall;
  double user;
  double system;
};

Times Now() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  const auto wall = std::chrono::steady_clock::now().time_since_epoch();
  return {std::chrono::duration<double>(wall).count(), seconds(usage.ru_utime),
          seconds(usage.ru_stime)};
}

double Median(const std::vector<Times>& all, double Times::*of) {
  std::vector<double> values;
  for (const Times& times : all) values.push_back(times.*of);
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Print(const Files& files, size_t rounds) {
  const std::vector<Way> ways = Ways();
  std::vector<std::vector<Times>> times(ways.size());
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < ways.size(); ++i) {
      const Times begin = Now();
      ways[i].run(files);
      const Times end = Now();
      times[i].push_back({end.wall - begin.wall, end.user - begin.user, end.system - begin.system});
    }
  }
  const double gib = static_cast<double>(files.size) / static_cast<double>(kGiB);
  std::printf("| way | wall, ms | user, ms | system, ms |\n| --- | --- | --- | --- |\n");
  for (size_t i = 0; i < ways.size(); ++i) {
    const auto ms = [&](double Times::*of) { return Median(times[i], of) / gib * 1e3; };
    std::printf("| %s | %.0f | %.0f | %.0f |\n", ways[i].name.c_str(), ms(&Times::wall),
                ms(&Times::user), ms(&Times::system));
  }
}

int Write(const std::string& path, uint64_t bytes) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) Fail(path.c_str());
  std::mt19937_64 random(1);
  std::vector<uint64_t> words(8 * kMiB / 8);
  for (uint64_t& word : words) word = random();
  for (uint64_t at = 0; at < bytes; at += 8 * kMiB) {
    words[0] = at;
    if (write(descriptor, words.data(), 8 * kMiB) != static_cast<ssize_t>(8 * kMiB)) {
      Fail(path.c_str());
    }
  }
  return descriptor;
}

}  // namespace
}  // namespace cbt::bench

int main(int argc, char** argv) {
  using namespace cbt::bench;
  uint64_t bytes = cbt::kGiB;
  std::string folder = "/dev/shm";
  size_t rounds = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--megabytes=")) {
      // A multiple of the largest window.
      bytes = std::strtoull(argv[i] + 12, nullptr, 10) / 64 * 64 * cbt::kMiB;
    } else if (argument.starts_with("--folder=")) {
      folder = argument.substr(9);
    } else if (argument.starts_with("--rounds=")) {
      rounds = std::strtoull(argv[i] + 9, nullptr, 10);
    } else {
      std::fprintf(stderr, "usage: %s [--megabytes=N] [--folder=DIR] [--rounds=N]\n", argv[0]);
      return 2;
    }
  }
  Files files{folder + "/cbt-cached-base", folder + "/cbt-cached-target", bytes, -1, -1};
  files.base = Write(files.base_path, bytes);
  files.target = Write(files.target_path, bytes);
  Print(files, std::max<size_t>(rounds, 1));
  unlink(files.base_path.c_str());
  unlink(files.target_path.c_str());
  return 0;
}
