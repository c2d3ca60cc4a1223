// Random numbers for tests other than properties.
#ifndef CBT_TESTS_SUPPORT_SEEDED_RANDOM_H_
#define CBT_TESTS_SUPPORT_SEEDED_RANDOM_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

#include "absl/strings/str_cat.h"

namespace cbt::test {

// Every failure in its scope reports the seed; like SCOPED_TRACE, only on the thread that made it.
class SeededRandom : public std::mt19937_64 {
 public:
  explicit SeededRandom(uint64_t seed, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE())
      : std::mt19937_64(seed), trace_(file, line, absl::StrCat("seed ", seed)) {}

 private:
  const testing::ScopedTrace trace_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_SEEDED_RANDOM_H_
