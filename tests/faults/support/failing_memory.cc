#include "tests/faults/support/failing_memory.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#ifdef CBT_TEST_WRAPS_MALLOC
// What the linker makes of malloc and free with --wrap.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" void* __real_malloc(std::size_t size);
extern "C" void __real_free(void* memory);
extern "C" void* __wrap_malloc(std::size_t size);
extern "C" void __wrap_free(void* memory);
// NOLINTEND(bugprone-reserved-identifier)
#endif

namespace {

void* TakeMemory(std::size_t size) {
#ifdef CBT_TEST_WRAPS_MALLOC
  return __real_malloc(size);
#else
  return std::malloc(size);
#endif
}

void GiveMemory(void* memory) {
#ifdef CBT_TEST_WRAPS_MALLOC
  __real_free(memory);
#else
  std::free(memory);
#endif
}

// Counts down while above 0; the allocation that makes it 0 fails, and if `sticky` all later ones.
std::atomic<int64_t> countdown = 0;
std::atomic<bool> sticky = false;
std::atomic<bool> failed = false;
std::atomic<int64_t> live = 0;  // allocations
std::atomic<const std::string_view*> watched_mark = nullptr;
std::atomic<int64_t> freed_with_mark = 0;

void* Allocate(std::size_t size, std::size_t alignment) {
  if (sticky && failed) throw std::bad_alloc();
  if (countdown > 0 && --countdown == 0) {
    failed = true;
    throw std::bad_alloc();
  }
  void* const memory =
      alignment == 0
          ? TakeMemory(size == 0 ? 1 : size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  ++live;
  // Earlier contents must not count as leaks of a secret.
  if (watched_mark != nullptr) std::memset(memory, 0, malloc_usable_size(memory));
  return memory;
}

// As the standard library does; the sanitizers' own would bypass this.
void* AllocateOrNull(std::size_t size) noexcept {
  try {
    return Allocate(size, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Release(void* memory) noexcept {
  if (memory != nullptr) --live;
  if (const std::string_view* const mark = watched_mark; mark != nullptr && memory != nullptr) {
    const std::string_view whole(static_cast<const char*>(memory), malloc_usable_size(memory));
    if (whole.find(*mark) != std::string_view::npos) ++freed_with_mark;
  }
  GiveMemory(memory);
}

int64_t allocations_failed = 0;
int64_t wrong_answers = 0;

}  // namespace

#ifdef CBT_TEST_WRAPS_MALLOC
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" void* __wrap_malloc(std::size_t size) { return AllocateOrNull(size); }
extern "C" void __wrap_free(void* memory) { Release(memory); }
// NOLINTEND(bugprone-reserved-identifier)
#endif

void* operator new(std::size_t size) { return Allocate(size, 0); }
void* operator new[](std::size_t size) { return Allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return AllocateOrNull(size);
}
void operator delete(void* memory) noexcept { Release(memory); }
void operator delete[](void* memory) noexcept { Release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { Release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { Release(memory); }
void operator delete(void* memory, std::size_t) noexcept { Release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { Release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { Release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { Release(memory); }

namespace cbt::test {

WatchFreed::WatchFreed(std::string_view mark) {
  static std::string_view kept;
  kept = mark;
  freed_with_mark = 0;
  watched_mark = &kept;
}
WatchFreed::~WatchFreed() { watched_mark = nullptr; }
int64_t WatchFreed::found() const { return freed_with_mark; }

int64_t FailEveryAllocation(const std::function<Found()>& work) {
  const Found expected = work();
  EXPECT_TRUE(expected.has_value());
  int64_t allocations = 0;
  for (const bool stay : {false, true}) {
    for (int64_t n = 1;; ++n) {
      const int64_t before = live;
      bool right = true;
      bool came_through = false;
      {
        sticky = stay;
        failed = false;
        countdown = n;
        Found found;
        bool thrown = false;
        try {
          found = work();
        } catch (const std::bad_alloc&) {
          thrown = true;
        }
        came_through = !failed;
        countdown = 0;
        sticky = false;
        failed = false;
        if (!thrown && found.has_value()) right = found == expected;
        if (came_through) right &= found.has_value();
      }
      if (!came_through) ++allocations_failed;
      const int64_t left = live - before;
      if (!right || left != 0) {
        ++wrong_answers;
        ADD_FAILURE() << "allocation " << n << (stay ? " and all after it" : "")
                      << " failed: " << (right ? "" : "another answer; ") << left
                      << " allocations leaked";
        return n;
      }
      if (came_through) {
        allocations = n;
        break;
      }
    }
  }
  return allocations;
}

FailAllocation::FailAllocation(int64_t n, bool all_after) {
  sticky = all_after;
  failed = false;
  countdown = n;
}

FailAllocation::~FailAllocation() {
  countdown = 0;
  sticky = false;
  failed = false;
}

bool FailAllocation::has_failed() const { return failed; }

Undisturbed::Undisturbed() : countdown_(countdown.exchange(0)), sticky_(sticky.exchange(false)) {}

Undisturbed::~Undisturbed() {
  sticky = sticky_;
  countdown = countdown_;
}

int64_t AllocationsFailed() { return allocations_failed; }
int64_t WrongAnswers() { return wrong_answers; }

}  // namespace cbt::test
