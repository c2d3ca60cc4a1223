// Properties that explain their failures.
#ifndef CBT_TESTS_SUPPORT_PROPERTIES_H_
#define CBT_TESTS_SUPPORT_PROPERTIES_H_

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstddef>

#include "tests/reference/volume.h"

namespace cbt::test {

// For rapidcheck: the failure's text becomes part of the counterexample.
inline void Require(const testing::AssertionResult& result) {
  if (!result) RC_FAIL(result.message());
}

// Checks that each byte of `a` is in `b`.
inline testing::AssertionResult IsSubset(const reference::ByteSet& a, const reference::ByteSet& b) {
  if (a.size() > b.size()) {
    return testing::AssertionFailure() << "of " << a.size() << " bytes in one of " << b.size();
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] && !b[i]) return testing::AssertionFailure() << "byte " << i << " is missing";
  }
  return testing::AssertionSuccess();
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_PROPERTIES_H_
