// Compares the parts of a kernel's answer with the scalar variant's, so that a failure shows
// expected and actual values.
#ifndef CBT_TESTS_SIMD_ANSWER_PARTS_H_
#define CBT_TESTS_SIMD_ANSWER_PARTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace cbt::test {

struct Number {
  const char* name;
  uint64_t want;
  uint64_t got;

  bool Same() const { return want == got; }
  std::string Difference() const { return absl::StrCat(name, ": expected ", want, ", got ", got); }
};

template <typename T>
struct List {
  const char* name;
  const T* want;
  const T* got;
  size_t count;

  bool Same() const { return std::equal(want, want + count, got); }
  std::string Difference() const {
    const size_t at = static_cast<size_t>(std::mismatch(want, want + count, got).first - want);
    return absl::StrCat(name, "[", at, "] of ", count, ": expected ", uint64_t{want[at]}, ", got ",
                        uint64_t{got[at]});
  }
};
template <typename T>
List(const char*, const T*, const T*, size_t) -> List<T>;

}  // namespace cbt::test

#endif  // CBT_TESTS_SIMD_ANSWER_PARTS_H_
