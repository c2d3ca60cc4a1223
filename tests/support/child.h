// Work in a process of its own.
#ifndef CBT_TESTS_SUPPORT_CHILD_H_
#define CBT_TESTS_SUPPORT_CHILD_H_

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>

namespace cbt::test {

// Runs `work` in a copy of this process that ends without destructors, as one that is killed; it
// must not have failed.
inline void RunInChild(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    // Nothing may come back into the parent's tests.
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
