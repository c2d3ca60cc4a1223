// Scalar reference of containers, the list of its variants, and the choice between them.
#include "simd/containers.h"

#include <bit>
#include <cstring>

#include "simd/kernels.h"

namespace cbt::simd {
namespace scalar {
namespace {

uint32_t ValueAt(const uint8_t* values, size_t index) noexcept {
  return uint32_t{values[2 * index]} | uint32_t{values[2 * index + 1]} << 8;
}

size_t ExpandValues(const uint8_t* values, size_t count, uint64_t origin, unsigned shift,
                    uint64_t* offsets, uint64_t* lengths) noexcept {
  size_t runs = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t value = ValueAt(values, i);
    if (i > 0 && ValueAt(values, i - 1) + 1 == value) {
      lengths[runs - 1] += uint64_t{1} << shift;
    } else {
      offsets[runs] = origin + (value << shift);
      lengths[runs] = uint64_t{1} << shift;
      ++runs;
    }
  }
  return runs;
}

void ExpandPairs(const uint8_t* pairs, size_t count, uint64_t origin, unsigned shift,
                 uint64_t* offsets, uint64_t* lengths) noexcept {
  for (size_t i = 0; i < count; ++i) {
    offsets[i] = origin + (uint64_t{ValueAt(pairs, 2 * i)} << shift);
    lengths[i] = (uint64_t{ValueAt(pairs, 2 * i + 1)} + 1) << shift;
  }
}

bool CheckValues(const uint8_t* values, size_t count) noexcept {
  for (size_t i = 1; i < count; ++i) {
    if (ValueAt(values, i - 1) >= ValueAt(values, i)) return false;
  }
  return true;
}

uint32_t CheckPairs(const uint8_t* pairs, size_t count) noexcept {
  uint32_t total = 0;
  uint32_t floor = 0;  // the lowest value at which the next run may start
  for (size_t i = 0; i < count; ++i) {
    const uint32_t start = ValueAt(pairs, 2 * i);
    const uint32_t last = start + ValueAt(pairs, 2 * i + 1);
    if (start < floor || last > 0xffff) return 0;
    total += last - start + 1;
    floor = last + 2;
  }
  return total;
}

size_t CollectValues(const uint8_t* words, uint16_t* values) noexcept {
  size_t count = 0;
  for (unsigned i = 0; i < 1024; ++i) {
    uint64_t word;
    std::memcpy(&word, words + 8 * size_t{i}, sizeof(word));
    for (; word != 0; word &= word - 1) {
      values[count++] = static_cast<uint16_t>(i * 64 + unsigned(std::countr_zero(word)));
    }
  }
  return count;
}

FewValues CollectFew(const uint8_t* words, uint16_t* values) noexcept {
  FewValues few = {0, 0};
  uint64_t before = 0;
  for (unsigned i = 0; i < 1024; ++i) {
    uint64_t word;
    std::memcpy(&word, words + 8 * size_t{i}, sizeof(word));
    // Every variant looks at the room before groups of 32 words.
    if (i % 32 == 0 && few.count > kMaxArrayValues - 32 * kFewBits) return {kNotFew, 0};
    if (word != 0) {
      if (static_cast<size_t>(std::popcount(word)) > kFewBits) return {kNotFew, 0};
      few.runs += static_cast<size_t>(std::popcount(word & ~(word << 1 | before >> 63)));
    }
    before = word;
    for (; word != 0; word &= word - 1) {
      values[few.count++] = static_cast<uint16_t>(i * 64 + unsigned(std::countr_zero(word)));
    }
  }
  return few;
}

}  // namespace

const ContainersKernels kContainers = {&ExpandValues, &ExpandPairs,   &CheckValues,
                                       &CheckPairs,   &CollectValues, &CollectFew};

}  // namespace scalar

namespace {

// collect_few of sparse words, of one word with too many bits, and of too many words.
bool KnowsFew(const ContainersKernels& candidate) noexcept {
  static uint64_t words[1024];
  static uint16_t values[2][kMaxArrayValues + kContainerSlack];
  const auto* const bytes = reinterpret_cast<const uint8_t*>(words);
  for (unsigned round = 0; round < 4; ++round) {
    CheckPattern pattern;
    for (uint64_t& word : words) {
      word = pattern.Next() & pattern.Next() & pattern.Next() & pattern.Next();
      if (round == 3) word |= pattern.Next() & pattern.Next() & pattern.Next();
      if (std::popcount(word) > 10) word = uint64_t{7} << 61;
      if (round < 2 && word % 4 != 0) word = 0;
      if (word % 3 == 0) word &= uint64_t{1} << 63 | 1;
    }
    if (round == 1) words[pattern.Next() % 1024] = 0x7ff;
    if (round == 2) words[1000] = 0;
    const FewValues want = scalar::kContainers.collect_few(bytes, values[0]);
    const FewValues got = candidate.collect_few(bytes, values[1]);
    if (got.count != want.count || got.runs != want.runs) return false;
    if (want.count != kNotFew && std::memcmp(values[0], values[1], 2 * want.count) != 0) {
      return false;
    }
  }
  return true;
}

// Runs and single values, in whole vectors and a tail; then the same as pairs.
bool KnownAnswer(const ContainersKernels& candidate) noexcept {
  constexpr size_t kPlaces = kMaxArrayValues + kContainerSlack;
  static uint64_t words[1024];
  CheckPattern pattern;
  size_t left = 999;
  for (uint64_t& word : words) {
    word = pattern.Next() & pattern.Next() & pattern.Next();
    if (word % 3 == 0) word |= word << 1;
    if (left < 64 || word % 2 == 0) word = 0;
    left -= static_cast<size_t>(std::popcount(word));
  }
  const auto* const bytes = reinterpret_cast<const uint8_t*>(words);
  static uint16_t values[2][kPlaces];
  static uint64_t offsets[2][kPlaces];
  static uint64_t lengths[2][kPlaces];
  static uint16_t pairs[2 * kPlaces];
  const ContainersKernels* const both[] = {&scalar::kContainers, &candidate};
  size_t count[2];
  size_t runs[2];
  for (size_t i = 0; i < 2; ++i) {
    count[i] = both[i]->collect_values(bytes, values[i]);
    if (count[i] != count[0] || count[i] == 0 ||
        std::memcmp(values[i], values[0], 2 * count[i]) != 0) {
      return false;
    }
    runs[i] = both[i]->expand_values(reinterpret_cast<const uint8_t*>(values[i]), count[i],
                                     uint64_t{5} << 40, 12, offsets[i], lengths[i]);
    if (runs[i] != runs[0] || std::memcmp(offsets[i], offsets[0], 8 * runs[i]) != 0 ||
        std::memcmp(lengths[i], lengths[0], 8 * runs[i]) != 0) {
      return false;
    }
  }
  if (!KnowsFew(candidate)) return false;
  const auto* const array = reinterpret_cast<const uint8_t*>(values[0]);
  for (size_t i = 0; i < runs[0]; ++i) {
    pairs[2 * i] = static_cast<uint16_t>((offsets[0][i] - (uint64_t{5} << 40)) >> 12);
    pairs[2 * i + 1] = static_cast<uint16_t>((lengths[0][i] >> 12) - 1);
  }
  const auto* const list = reinterpret_cast<const uint8_t*>(pairs);
  if (!candidate.check_values(array, count[0]) ||
      candidate.check_pairs(list, runs[0]) != count[0]) {
    return false;
  }
  candidate.expand_pairs(list, runs[0], uint64_t{5} << 40, 12, offsets[1], lengths[1]);
  if (std::memcmp(offsets[1], offsets[0], 8 * runs[0]) != 0 ||
      std::memcmp(lengths[1], lengths[0], 8 * runs[0]) != 0) {
    return false;
  }
  // Both must detect a repeated value, and a run that begins where another ends.
  pairs[2 * (runs[0] / 2)] =
      static_cast<uint16_t>(pairs[2 * (runs[0] / 2) - 2] + pairs[2 * (runs[0] / 2) - 1] + 1);
  values[0][count[0] / 2] = values[0][count[0] / 2 - 1];
  return !candidate.check_values(array, count[0]) && candidate.check_pairs(list, runs[0]) == 0;
}

}  // namespace

CBT_DEFINE_KERNELS(Containers, CBT_EVERY_VARIANT(kContainers))

}  // namespace cbt::simd
