// Memory that runs out: who links failing_memory.cc gets operator new and delete that can fail and
// that count what is there.
#ifndef CBT_TESTS_FAULTS_SUPPORT_FAILING_MEMORY_H_
#define CBT_TESTS_FAULTS_SUPPORT_FAILING_MEMORY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace cbt::test {

// What some work found; nothing for an error that it reported itself.
using Found = std::optional<std::vector<uint8_t>>;

// Runs `work` again and again, with its first, second, third, ... allocation failing, and then with
// all from the first, second, ... on, until it comes through; returns how many allocations that
// were. What it finds must be the same as undisturbed, and it must leave no memory behind.
int64_t FailEveryAllocation(const std::function<Found()>& work);

// While it lives the n-th allocation fails, and with `all_after` those after it.
class FailAllocation {
 public:
  explicit FailAllocation(int64_t n, bool all_after = false);
  ~FailAllocation();
  FailAllocation(const FailAllocation&) = delete;
  FailAllocation& operator=(const FailAllocation&) = delete;
  bool has_failed() const;
};

// Nothing fails while it lives; what was to fail then fails afterwards.
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

// While it lives, memory that is given back is looked through for `mark`, which must stay where it
// is.
class WatchFreed {
 public:
  explicit WatchFreed(std::string_view mark);
  ~WatchFreed();
  WatchFreed(const WatchFreed&) = delete;
  WatchFreed& operator=(const WatchFreed&) = delete;
  // How many pieces of memory held it.
  int64_t found() const;
};

// Over all that the program did: allocations that failed, and answers that were wrong or left
// memory behind.
int64_t AllocationsFailed();
int64_t WrongAnswers();

}  // namespace cbt::test

#endif  // CBT_TESTS_FAULTS_SUPPORT_FAILING_MEMORY_H_
