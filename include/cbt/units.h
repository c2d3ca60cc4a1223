// Sizes in bytes that can't overflow: `5 << 30` is an int, and silently something else.
//
// snippet: tests/consumer/snippets/core.cc#units
//   using namespace cbt::units;
//   const cbt::VolumeGeometry volume = {.capacity = 64_GiB, .granularity = 4_KiB};
#ifndef CBT_UNITS_H_
#define CBT_UNITS_H_

#include <cstdint>

#include "cbt/version.h"

namespace cbt {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;
inline constexpr uint64_t kTiB = uint64_t{1} << 40;
inline constexpr uint64_t kPiB = uint64_t{1} << 50;
inline constexpr uint64_t kEiB = uint64_t{1} << 60;

namespace internal {

// A size that does not fit does not compile: this is no constant expression then.
consteval uint64_t SizeOf(unsigned long long count, uint64_t unit) {
  if (count > UINT64_MAX / unit) throw "the size exceeds 64 bits";
  return count * unit;
}

}  // namespace internal

// Bring them in with `using namespace cbt::units`.
namespace units {

consteval uint64_t operator""_KiB(unsigned long long count) {
  return internal::SizeOf(count, kKiB);
}
consteval uint64_t operator""_MiB(unsigned long long count) {
  return internal::SizeOf(count, kMiB);
}
consteval uint64_t operator""_GiB(unsigned long long count) {
  return internal::SizeOf(count, kGiB);
}
consteval uint64_t operator""_TiB(unsigned long long count) {
  return internal::SizeOf(count, kTiB);
}
consteval uint64_t operator""_PiB(unsigned long long count) {
  return internal::SizeOf(count, kPiB);
}
consteval uint64_t operator""_EiB(unsigned long long count) {
  return internal::SizeOf(count, kEiB);
}

}  // namespace units
}  // namespace cbt

#endif  // CBT_UNITS_H_
