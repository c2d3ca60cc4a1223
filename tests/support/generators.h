// Random values for properties. rapidcheck begins with small values and grows; these take the whole
// range from the first try on, and still shrink.
#ifndef CBT_TESTS_SUPPORT_GENERATORS_H_
#define CBT_TESTS_SUPPORT_GENERATORS_H_

#include <rapidcheck.h>

#include <cstdint>
#include <random>

namespace cbt::test {

// A value in [low, high).
template <typename T>
T Between(T low, T high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high));
}

// A generator of its own for bulk data; its seed is part of what a failing property prints.
inline std::mt19937_64 AnyRandom() {
  return std::mt19937_64(
      *rc::gen::noShrink(rc::gen::resize(rc::kNominalSize, rc::gen::arbitrary<uint64_t>())));
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_GENERATORS_H_
