// Random values for properties. rapidcheck starts with small values and grows; these use the whole
// range from the first case on, and still shrink.
#ifndef CBT_TESTS_SUPPORT_GENERATORS_H_
#define CBT_TESTS_SUPPORT_GENERATORS_H_

#include <rapidcheck.h>

#include <cstddef>
#include <cstdint>
#include <random>

#include "tests/reference/volume.h"

namespace cbt::test {

// A value in [low, high).
template <typename T>
T Between(T low, T high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high));
}

// A generator for bulk data; a failing property prints its seed.
inline std::mt19937_64 AnyRandom() {
  return std::mt19937_64(
      *rc::gen::noShrink(rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<uint64_t>())));
}

// Runs and gaps of random lengths: about one run per `spacing` bytes, of `run` bytes on average.
inline reference::ByteSet RunsAndGaps(std::mt19937_64& random, size_t capacity, size_t spacing,
                                      size_t run = 4) {
  reference::ByteSet set(capacity);
  for (size_t i = 0; i < capacity; ++i) {
    set[i] = (i > 0 && set[i - 1]) ? random() % run != 0 : random() % spacing == 0;
  }
  return set;
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_GENERATORS_H_
