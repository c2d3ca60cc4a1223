// A disk without room, for this process.
#ifndef CBT_TESTS_SUPPORT_FULL_DISK_H_
#define CBT_TESTS_SUPPORT_FULL_DISK_H_

#include <sys/resource.h>

#include <csignal>

namespace cbt::test {

// While it exists, every write to a file fails (EFBIG).
class FullDisk {
 public:
  FullDisk() {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*const handler_)(int) = signal(SIGXFSZ, SIG_IGN);
  rlimit before_ = {};
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_FULL_DISK_H_
