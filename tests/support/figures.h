#ifndef CBT_TESTS_SUPPORT_FIGURES_H_
#define CBT_TESTS_SUPPORT_FIGURES_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string_view>

namespace cbt::test {

// How many times its usual work a test that counts its checks should do: CBT_TEST_SCALE, 1 by
// default. `make scorecard` sets it.
inline int64_t TestScale() {
  const char* const value = std::getenv("CBT_TEST_SCALE");
  const int64_t scale = value == nullptr ? 1 : std::atoll(value);
  return scale < 1 ? 1 : scale;
}

// Under a sanitizer, tests of millions of checks do one in this many.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(CBT_TEST_PLAIN)
inline constexpr size_t kThinned = 8;
#else
inline constexpr size_t kThinned = 1;
#endif

// Prints a figure of the scorecard on a line that tests/scorecard/scorecard.py parses. Names are
// snake_case; a program prints each only once.
template <typename Number>
void PrintFigure(std::string_view name, Number value) {
  std::cout << "figure: " << name << ' ' << value << '\n';
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_FIGURES_H_
