// Statuses in tests: an unexpected error fails the test with the status and its place, and the
// program continues with the next test.
#ifndef CBT_TESTS_SUPPORT_STATUS_H_
#define CBT_TESTS_SUPPORT_STATUS_H_

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace cbt::test {

// The text of an absl or gRPC status, or of a StatusOr's.
template <typename Result>
std::string StatusText(const Result& result) {
  if constexpr (requires { result.status(); }) {
    return StatusText(result.status());
  } else if constexpr (requires { result.error_message(); }) {
    return absl::StrCat("code ", static_cast<int>(result.error_code()), ": ",
                        result.error_message());
  } else {
    return result.ToString();
  }
}

template <typename Result>
testing::AssertionResult IsOk(const char* expression, const Result& result) {
  if (result.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << expression << "\nexpected OK, got " << StatusText(result);
}

// The value, for helpers, properties and subexpressions. An error is thrown as an exception with
// the status and the caller's place, which fails the test. Not for other threads, where exceptions
// end the program.
template <typename T>
T ValueOf(absl::StatusOr<T> result, const char* file = __builtin_FILE(),
          int line = __builtin_LINE()) {
  if (result.ok()) return *std::move(result);
  throw std::runtime_error(
      absl::StrCat(file, ":", line, ": expected a value, got ", StatusText(result)));
}

// The same for a result whose value is missing or not needed.
template <typename Result>
void RequireOk(const Result& result, const char* file = __builtin_FILE(),
               int line = __builtin_LINE()) {
  if (result.ok()) return;
  throw std::runtime_error(
      absl::StrCat(file, ":", line, ": expected OK, got ", StatusText(result)));
}

}  // namespace cbt::test

// The expression's status must be OK; a message can be streamed in.
#define ASSERT_OK(...) ASSERT_PRED_FORMAT1(::cbt::test::IsOk, (__VA_ARGS__))
#define EXPECT_OK(...) EXPECT_PRED_FORMAT1(::cbt::test::IsOk, (__VA_ARGS__))

// Declares or assigns `lhs` from a StatusOr; an error ends the test as with ASSERT_OK.
#define ASSERT_OK_AND_ASSIGN(lhs, ...) \
  CBT_TEST_OK_AND_ASSIGN_(CBT_TEST_JOIN_(status_or_, __LINE__), lhs, __VA_ARGS__)
#define CBT_TEST_OK_AND_ASSIGN_(result, lhs, ...)                                \
  auto result = (__VA_ARGS__);                                                   \
  if (!result.ok()) FAIL() << ::cbt::test::IsOk(#__VA_ARGS__, result).message(); \
  lhs = *std::move(result)
#define CBT_TEST_JOIN_(a, b) CBT_TEST_JOIN_INNER_(a, b)
#define CBT_TEST_JOIN_INNER_(a, b) a##b

#endif  // CBT_TESTS_SUPPORT_STATUS_H_
