// Runs work in a child process.
#ifndef CBT_TESTS_SUPPORT_CHILD_H_
#define CBT_TESTS_SUPPORT_CHILD_H_

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>

namespace cbt::test {

// Runs `work` in a forked copy of this process that exits without destructors, as if killed. `work`
// must not fail.
inline void RunInChild(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    // Nothing may propagate into the parent's tests.
    try {
      work();
    } catch (const std::exception& exception) {
      ADD_FAILURE() << exception.what();
    }
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_CHILD_H_
