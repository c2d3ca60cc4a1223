// A process that can start no thread.
#ifndef CBT_TESTS_SUPPORT_NO_THREADS_H_
#define CBT_TESTS_SUPPORT_NO_THREADS_H_

#include <pthread.h>

#include <cstddef>

namespace cbt::test {

// While it lives, threads want a stack that no machine has room for: starting one fails with
// EAGAIN, as it does at the limit of processes, which root does not have.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t large;
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, size_t{1} << 48);
    pthread_setattr_default_np(&large);
    pthread_attr_destroy(&large);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_NO_THREADS_H_
