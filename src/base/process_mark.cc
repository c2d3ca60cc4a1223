#include "base/process_mark.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

namespace cbt {
namespace {

// The process's number, distinct from those of its ancestors. 0: a child that has not taken one
// yet.
std::atomic<uint64_t>* current = nullptr;
// In memory that a child inherits, so that its numbers are new.
std::atomic<uint64_t> given{0};

// The kernel zeroes the page in every child (MADV_WIPEONFORK), however it was created. If it can't,
// a handler of pthread_atfork() does, which only sees fork().
std::atomic<uint64_t>* MakeCurrent() noexcept {
  static std::atomic<uint64_t> plain{0};
  const auto size = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  void* const page =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page != MAP_FAILED) {
    if (::madvise(page, size, MADV_WIPEONFORK) == 0) return ::new (page) std::atomic<uint64_t>{0};
    ::munmap(page, size);
  }
  ::pthread_atfork(nullptr, nullptr, [] { current->store(0); });
  return &plain;
}

}  // namespace

ProcessMark::ProcessMark() noexcept {
  static const bool made = [] {
    current = MakeCurrent();
    return true;
  }();
  static_cast<void>(made);
  current_ = current;
  made_in_ = current->load();
  if (made_in_ != 0) return;
  const uint64_t next = ++given;
  // Another thread may have set it first.
  if (current->compare_exchange_strong(made_in_, next)) made_in_ = next;
}

}  // namespace cbt
