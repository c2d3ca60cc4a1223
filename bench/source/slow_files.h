// Two files on a mount of our own, whose reads take a set time: a cold disk that is the same on
// every machine.
#ifndef CBT_BENCH_SOURCE_SLOW_FILES_H_
#define CBT_BENCH_SOURCE_SLOW_FILES_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace cbt::bench {

// What a read costs: its bytes pass a channel that all reads share, one after another, then it
// waits for the latency, which reads spend side by side.
struct Speed {
  std::chrono::microseconds latency{0};
  uint64_t bytes_per_second = 0;
  bool page_cache = true;  // false: every read reaches the server (direct_io)
};

// Mounts the files `base` and `target` through FUSE while it lives, served by a process of its own.
// One block of 4096 bytes in a hundred differs. Needs /dev/fuse and the right to mount.
class SlowFiles {
 public:
  // Exits the program with a message if the mount fails. Start no thread before.
  SlowFiles(Speed speed, uint64_t file_bytes);
  ~SlowFiles();
  SlowFiles(const SlowFiles&) = delete;
  SlowFiles& operator=(const SlowFiles&) = delete;

  std::string base() const { return directory_ + "/base"; }
  std::string target() const { return directory_ + "/target"; }

 private:
  std::string directory_;
  pid_t server_ = -1;
};

}  // namespace cbt::bench

#endif  // CBT_BENCH_SOURCE_SLOW_FILES_H_
