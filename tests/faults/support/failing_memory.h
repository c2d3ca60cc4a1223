// Memory that runs out: programs that link failing_memory.cc get operator new and delete that can
// fail and that count allocations. With CBT_TEST_WRAPS_MALLOC, and linked with --wrap=malloc and
// --wrap=free, the calls of malloc() and free() in static libraries do so too.
#ifndef CBT_TESTS_FAULTS_SUPPORT_FAILING_MEMORY_H_
#define CBT_TESTS_FAULTS_SUPPORT_FAILING_MEMORY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace cbt::test {

// What some work found; nullopt if it reported an error.
using Found = std::optional<std::vector<uint8_t>>;

// Repeats `work` with its first, second, third, ... allocation failing, and then with all
// allocations from the first, second, ... on, until it succeeds. Returns that number of
// allocations. The result must be the same as without failures, and no memory may leak.
int64_t FailEveryAllocation(const std::function<Found()>& work);

// Makes the n-th allocation of its lifetime fail, and with `all_after` all later ones.
class FailAllocation {
 public:
  explicit FailAllocation(int64_t n, bool all_after = false);
  ~FailAllocation();
  FailAllocation(const FailAllocation&) = delete;
  FailAllocation& operator=(const FailAllocation&) = delete;
  bool has_failed() const;
};

// Suspends failures for its lifetime.
class Undisturbed {
 public:
  Undisturbed();
  ~Undisturbed();
  Undisturbed(const Undisturbed&) = delete;
  Undisturbed& operator=(const Undisturbed&) = delete;

 private:
  int64_t countdown_;
  bool sticky_;
};

// For its lifetime, searches freed memory for `mark`, which must stay valid.
class WatchFreed {
 public:
  explicit WatchFreed(std::string_view mark);
  ~WatchFreed();
  WatchFreed(const WatchFreed&) = delete;
  WatchFreed& operator=(const WatchFreed&) = delete;
  // The number of freed allocations that contained it.
  int64_t found() const;
};

// Totals of the program: failed allocations, and wrong or leaking results.
int64_t AllocationsFailed();
int64_t WrongAnswers();

}  // namespace cbt::test

#endif  // CBT_TESTS_FAULTS_SUPPORT_FAILING_MEMORY_H_
