// Two images that are not in the page cache, compared in several ways: what hides latency?
//
// Run by hand: make bench-cold. Prints a table in Markdown: MB/s of both sides together, and for
// the cursor the time to its first extent. The sources are files with a set latency and bandwidth
// (slow_files.h), or with --directory=DIR two files in that directory, for a disk of the machine.
#include <fcntl.h>
#include <liburing.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bench/source/slow_files.h"
#include "cbt/batch.h"
#include "cbt/executor.h"
#include "cbt/source/image.h"
#include "cbt/units.h"

namespace cbt::bench {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

struct Buffer {
  explicit Buffer(size_t size) : bytes(new (std::align_val_t{4096}) uint8_t[size]) {}
  ~Buffer() { ::operator delete[](bytes, std::align_val_t{4096}); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  uint8_t* const bytes;
};

// Both files, open, with none of their pages cached.
struct Pair {
  Pair(const std::string& base_path, const std::string& target_path, bool direct)
      : base(Open(base_path, direct)), target(Open(target_path, direct)) {
    struct stat found;
    if (fstat(base, &found) != 0) Fail(base_path.c_str());
    size = static_cast<uint64_t>(found.st_size);
  }
  ~Pair() {
    close(base);
    close(target);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  static int Open(const std::string& path, bool direct) {
    const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
    if (descriptor < 0) Fail(path.c_str());
    if (const int error = posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED); error != 0) {
      errno = error;
      Fail("posix_fadvise");
    }
    return descriptor;
  }

  int base;
  int target;
  uint64_t size;
};

void ReadAll(int descriptor, uint64_t offset, size_t length, uint8_t* out) {
  while (length > 0) {
    const ssize_t count = pread(descriptor, out, length, static_cast<off_t>(offset));
    if (count <= 0) Fail("pread");
    out += count;
    offset += static_cast<uint64_t>(count);
    length -= static_cast<size_t>(count);
  }
}

std::atomic<uint64_t> differing{0};  // keeps comparisons from being optimised away

void Compare(const uint8_t* base, const uint8_t* target, size_t length) {
  for (size_t at = 0; at < length; at += 4096) {
    if (std::memcmp(base + at, target + at, std::min<size_t>(4096, length - at)) != 0) {
      differing.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

// `threads` take pieces of `piece` bytes in order and read base, then target. Each asks the kernel
// to read `hinted` bytes of both files ahead, `hint` bytes per call.
void ReadWithThreads(const Pair& pair, size_t threads, size_t piece, uint64_t hinted, size_t hint) {
  std::atomic<uint64_t> next{0};
  const auto work = [&] {
    const Buffer base(piece);
    const Buffer target(piece);
    for (;;) {
      const uint64_t at = next.fetch_add(piece);
      if (at >= pair.size) return;
      if (hinted > 0) {
        // Each piece is requested once: the first request covers the whole window.
        const uint64_t from = at == 0 ? 0 : at + hinted;
        for (uint64_t ask = from; ask < std::min(at + hinted + piece, pair.size); ask += hint) {
          for (const int side : {pair.base, pair.target}) {
            posix_fadvise(side, static_cast<off_t>(ask), static_cast<off_t>(hint),
                          POSIX_FADV_WILLNEED);
          }
        }
      }
      const auto length = static_cast<size_t>(std::min<uint64_t>(piece, pair.size - at));
      ReadAll(pair.base, at, length, base.bytes);
      ReadAll(pair.target, at, length, target.bytes);
      Compare(base.bytes, target.bytes, length);
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

// One thread, `depth` pieces of both sides in the queue.
void ReadWithUring(const Pair& pair, size_t depth, size_t piece) {
  struct Slot {
    explicit Slot(size_t bytes) : base(bytes), target(bytes) {}
    Buffer base;
    Buffer target;
    uint64_t at = 0;
    size_t length = 0;
    int waiting = 0;
  };
  io_uring ring;
  if (const int error = io_uring_queue_init(static_cast<unsigned>(2 * depth), &ring, 0);
      error < 0) {
    errno = -error;
    Fail("io_uring_queue_init");
  }
  std::vector<std::unique_ptr<Slot>> slots;
  uint64_t next = 0;
  const auto submit = [&](Slot& slot) {
    if (next >= pair.size) return false;
    slot.at = next;
    slot.length = static_cast<size_t>(std::min<uint64_t>(piece, pair.size - next));
    slot.waiting = 2;
    next += slot.length;
    for (const bool base : {true, false}) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring);
      io_uring_prep_read(entry, base ? pair.base : pair.target,
                         base ? slot.base.bytes : slot.target.bytes,
                         static_cast<unsigned>(slot.length), slot.at);
      io_uring_sqe_set_data(entry, &slot);
    }
    return true;
  };
  size_t busy = 0;
  for (size_t i = 0; i < depth; ++i) {
    slots.push_back(std::make_unique<Slot>(piece));
    busy += submit(*slots.back()) ? 1 : 0;
  }
  while (busy > 0) {
    if (io_uring_submit_and_wait(&ring, 1) < 0) Fail("io_uring_submit_and_wait");
    io_uring_cqe* done = nullptr;
    while (io_uring_peek_cqe(&ring, &done) == 0) {
      auto& slot = *static_cast<Slot*>(io_uring_cqe_get_data(done));
      // A real reader would have to request the rest after a short read.
      if (done->res != static_cast<int>(slot.length)) Fail("io_uring: short read");
      io_uring_cqe_seen(&ring, done);
      if (--slot.waiting > 0) continue;
      Compare(slot.base.bytes, slot.target.bytes, slot.length);
      if (!submit(slot)) --busy;
    }
  }
  io_uring_queue_exit(&ring);
}

struct Result {
  double seconds = 0;
  std::optional<double> first;  // seconds to the first extent
};

using Way = std::function<Result(const std::string& base, const std::string& target)>;

Way Raw(bool direct, std::function<void(const Pair&)> read) {
  return [=](const std::string& base, const std::string& target) {
    const Pair pair(base, target, direct);
    const Clock::time_point begin = Clock::now();
    read(pair);
    return Result{std::chrono::duration<double>(Clock::now() - begin).count(), {}};
  };
}

Way Cursor(size_t threads, const ImageOptions& with) {
  return [=](const std::string& base, const std::string& target) {
    { const Pair forgotten(base, target, false); }
    const auto older = Image::Open(base);
    const auto newer = Image::Open(target);
    if (!older.ok() || !newer.ok()) Fail("Image::Open");
    std::optional<ThreadPool> pool;
    ImageOptions options = with;
    if (threads > 0) options.executor = &pool.emplace(threads);
    const Clock::time_point begin = Clock::now();
    Result result;
    auto cursor = MakeImageDeltaCursor(*older, *newer, options);
    if (!cursor.ok()) Fail("MakeImageDeltaCursor");
    ExtentBatch batch;
    for (Step step = Step::kMore; step == Step::kMore;) {
      step = (*cursor)->Next(batch).value();
      const double now = std::chrono::duration<double>(Clock::now() - begin).count();
      if (batch.size() > 0 && !result.first.has_value()) result.first = now;
      result.seconds = now;
    }
    return result;
  };
}

struct Row {
  std::string name;
  Way way;
};

std::vector<Row> Rows() {
  std::vector<Row> rows;
  for (const bool ahead : {false, true}) {
    for (const size_t threads : {0, 2, 4, 16}) {
      ImageOptions options{.chunks_in_flight = std::max<size_t>(4, threads)};
      if (!ahead) options.chunks_ahead = 0;
      rows.push_back({"cursor, " +
                          (threads == 0 ? "no executor" : std::to_string(threads) + " threads") +
                          (ahead ? "" : ", chunks_ahead 0"),
                      Cursor(threads, options)});
    }
  }
  for (const size_t threads : {1, 4, 16, 32}) {
    for (const size_t piece : {256 * kKiB, kMiB}) {
      rows.push_back(
          {"pread of " + std::to_string(piece / kKiB) + "K, " + std::to_string(threads) +
               " threads",
           Raw(false, [=](const Pair& pair) { ReadWithThreads(pair, threads, piece, 0, 0); })});
    }
  }
  for (const size_t threads : {1, 4}) {
    for (const size_t hint : {128 * kKiB, kMiB}) {
      for (const uint64_t hinted : {kMiB, 4 * kMiB, 16 * kMiB}) {
        rows.push_back({"pread of 1024K, " + std::to_string(threads) + " threads, WILLNEED " +
                            std::to_string(hinted / kMiB) + " MiB ahead, " +
                            std::to_string(hint / kKiB) + "K a call",
                        Raw(false, [=](const Pair& pair) {
                          ReadWithThreads(pair, threads, kMiB, hinted, hint);
                        })});
      }
    }
  }
  for (const size_t threads : {4, 16}) {
    rows.push_back(
        {"O_DIRECT pread of 1024K, " + std::to_string(threads) + " threads",
         Raw(true, [=](const Pair& pair) { ReadWithThreads(pair, threads, kMiB, 0, 0); })});
  }
  for (const bool direct : {false, true}) {
    for (const size_t depth : {4, 16, 64}) {
      rows.push_back(
          {std::string(direct ? "O_DIRECT " : "") + "io_uring of 256K, " + std::to_string(depth) +
               " of each side",
           Raw(direct, [=](const Pair& pair) { ReadWithUring(pair, depth, 256 * kKiB); })});
    }
  }
  return rows;
}

void Print(const char* source, const std::string& base, const std::string& target, uint64_t bytes,
           std::string_view filter) {
  std::printf("\n| %s | MB/s | first extent, ms |\n| --- | --- | --- |\n", source);
  for (const Row& row : Rows()) {
    if (row.name.find(filter) == std::string::npos) continue;
    const Result result = row.way(base, target);
    std::printf("| %s | %.0f | ", row.name.c_str(),
                2 * static_cast<double>(bytes) / result.seconds / 1e6);
    if (result.first.has_value()) std::printf("%.1f ", *result.first * 1e3);
    std::printf("|\n");
    std::fflush(stdout);
  }
}

// Writes a file of random bytes and flushes it to disk.
void WriteFile(const std::string& path, uint64_t bytes, unsigned seed) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) Fail(path.c_str());
  std::mt19937_64 random(1);
  std::mt19937_64 changes(seed);
  std::vector<uint64_t> words(kMiB / 8);
  for (uint64_t at = 0; at < bytes; at += kMiB) {
    for (uint64_t& word : words) word = random();
    for (size_t block = 0; block < words.size(); block += 512) words[block] ^= changes() % 100 == 0;
    if (write(descriptor, words.data(), kMiB) != static_cast<ssize_t>(kMiB)) Fail(path.c_str());
  }
  if (fsync(descriptor) != 0) Fail(path.c_str());
  close(descriptor);
}

}  // namespace
}  // namespace cbt::bench

int main(int argc, char** argv) {
  using namespace cbt::bench;
  using std::chrono::microseconds;
  uint64_t bytes = 256 * cbt::kMiB;
  std::string directory;
  std::string_view filter;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--megabytes=")) {
      bytes = std::strtoull(argv[i] + 12, nullptr, 10) * cbt::kMiB;
    } else if (argument.starts_with("--folder=")) {
      directory = argument.substr(9);
    } else if (argument.starts_with("--filter=")) {
      filter = argument.substr(9);
    } else {
      std::fprintf(stderr, "usage: %s [--megabytes=N] [--folder=DIR] [--filter=TEXT]\n", argv[0]);
      return 2;
    }
  }
  struct Slow {
    const char* name;
    Speed speed;
  };
  if (!directory.empty()) {
    const std::string base = directory + "/cbt-cold-base";
    const std::string target = directory + "/cbt-cold-target";
    WriteFile(base, bytes, 1);
    WriteFile(target, bytes, 2);
    Print(directory.c_str(), base, target, bytes, filter);
    unlink(base.c_str());
    unlink(target.c_str());
    return 0;
  }
  for (const Slow& slow :
       {Slow{"0.2 ms, 2 GB/s", {microseconds(200), 2'000'000'000}},
        Slow{"1 ms, 1 GB/s", {microseconds(1000), 1'000'000'000}},
        Slow{"5 ms, 500 MB/s", {microseconds(5000), 500'000'000}},
        Slow{"1 ms, 1 GB/s, no page cache", {microseconds(1000), 1'000'000'000, false}}}) {
    const SlowFiles files(slow.speed, bytes);
    Print(slow.name, files.base(), files.target(), bytes, filter);
  }
  return 0;
}
