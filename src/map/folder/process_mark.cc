#include "map/folder/process_mark.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

namespace cbt {
namespace {

// The number of the process among its ancestors that had one. 0: a copy that has asked for none
// yet.
std::atomic<uint64_t>* current = nullptr;
// In memory that a copy inherits, so that its numbers are new ones.
std::atomic<uint64_t> given{0};

// The kernel zeroes the page in every copy (MADV_WIPEONFORK), however the copy was made; where it
// can't, the C library does so, which knows of fork() alone.
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
  // Another thread may have been first.
  if (current->compare_exchange_strong(made_in_, next)) made_in_ = next;
}

}  // namespace cbt
