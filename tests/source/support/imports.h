// Runs importers on texts and on samples of real systems.
#ifndef CBT_TESTS_SOURCE_SUPPORT_IMPORTS_H_
#define CBT_TESTS_SOURCE_SUPPORT_IMPORTS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/source/byte_stream.h"
#include "tests/reference/volume.h"
#include "tests/support/cursors.h"
#include "tests/support/files.h"
#include "tests/support/status.h"

namespace cbt::test {

inline std::string SamplePath(const std::string& name) {
  return std::string(CBT_SAMPLES) + "/" + name;
}

inline std::string Sample(const std::string& name) { return ReadFile(SamplePath(name)); }

// Imports `text`, or returns the error.
template <typename Read, typename... Options>
absl::StatusOr<ChangeMap> From(Read read, const std::string& text, const Options&... options) {
  const auto stream =
      MakeBorrowedMemoryStream({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "in");
  return read(*stream, options...);
}

}  // namespace cbt::test

// Expects `result` to be a map of these ranges.
#define EXPECT_RANGES(result, ...)                                                        \
  do {                                                                                    \
    const auto ranges_of = (result);                                                      \
    ASSERT_OK(ranges_of);                                                                 \
    EXPECT_EQ(::cbt::test::RangesOf(*ranges_of), (::cbt::reference::Ranges __VA_ARGS__)); \
  } while (false)

// Expects `result` to be an error of this code whose message contains `text`.
#define EXPECT_REFUSED(result, code_, text)                                \
  do {                                                                     \
    const absl::Status refused = (result).status();                        \
    EXPECT_EQ(refused.code(), absl::StatusCode::code_) << refused;         \
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(text)); \
  } while (false)

#endif  // CBT_TESTS_SOURCE_SUPPORT_IMPORTS_H_
