#include "map/container.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "simd/kernels.h"

namespace cbt {

static_assert(kMaxArrayCardinality == simd::kMaxArrayValues);
static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

namespace {

uint32_t PairFirst(const Container& container, uint32_t index) noexcept {
  return LoadU16(container.data + 4 * size_t{index});
}

uint32_t PairLast(const Container& container, uint32_t index) noexcept {
  return PairFirst(container, index) + LoadU16(container.data + 4 * size_t{index} + 2);
}

uint32_t ValueAt(const Container& container, uint32_t index) noexcept {
  return LoadU16(container.data + 2 * size_t{index});
}

uint64_t WordAt(const Container& container, size_t index) noexcept {
  return LoadU64(container.data + 8 * index);
}

}  // namespace

const char* CheckContainer(const Container& container) noexcept {
  switch (container.kind) {
    case ContainerKind::kArray:
      return simd::Containers().check_values(container.data, container.count)
                 ? nullptr
                 : "the array is not ascending";
    case ContainerKind::kBitset:
      return simd::CountBits().single(container.data, nullptr, kBitsetWords, 0).ones ==
                     container.cardinality
                 ? nullptr
                 : "the bitset does not match its cardinality";
    case ContainerKind::kRun:
      break;
  }
  const uint32_t blocks = simd::Containers().check_pairs(container.data, container.count);
  if (blocks == 0) return "runs touch, overlap or leave their container";
  return blocks == container.cardinality ? nullptr : "the runs do not match their cardinality";
}

uint32_t LastValue(const Container& container) noexcept {
  switch (container.kind) {
    case ContainerKind::kArray:
      return ValueAt(container, container.count - 1);
    case ContainerKind::kRun:
      return PairLast(container, container.count - 1);
    case ContainerKind::kBitset:
      break;
  }
  for (size_t i = kBitsetWords; i-- > 0;) {
    if (const uint64_t word = WordAt(container, i); word != 0) {
      return static_cast<uint32_t>(i * 64) + 63 - static_cast<uint32_t>(std::countl_zero(word));
    }
  }
  return 0;
}

uint32_t CountRuns(const Container& container) noexcept {
  if (container.kind == ContainerKind::kRun) return container.count;
  if (container.kind == ContainerKind::kBitset) {
    return static_cast<uint32_t>(
        simd::CountBits().single(container.data, nullptr, kBitsetWords, 0).starts);
  }
  uint32_t runs = 1;
  for (uint32_t i = 1; i < container.count; ++i) {
    runs += ValueAt(container, i) - ValueAt(container, i - 1) != 1 ? 1 : 0;
  }
  return runs;
}

uint32_t LowerBound(const Container& container, uint32_t value) noexcept {
  const bool pairs = container.kind == ContainerKind::kRun;
  uint32_t first = 0;
  uint32_t count = container.count;
  while (count > 0) {
    const uint32_t half = count / 2;
    const uint32_t last =
        pairs ? PairLast(container, first + half) : ValueAt(container, first + half);
    if (last < value) {
      first += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return first;
}

uint32_t CountBelow(const Container& container, uint32_t value) noexcept {
  if (container.kind == ContainerKind::kArray) return LowerBound(container, value);
  if (container.kind == ContainerKind::kRun) {
    uint32_t below = 0;
    for (uint32_t i = 0; i < container.count && PairFirst(container, i) < value; ++i) {
      below += std::min(PairLast(container, i) + 1, value) - PairFirst(container, i);
    }
    return below;
  }
  const uint32_t words = value / 64;
  uint64_t below = simd::CountBits().single(container.data, nullptr, words, 0).ones;
  if (value % 64 != 0) {
    below += static_cast<uint64_t>(
        std::popcount(WordAt(container, words) & ((uint64_t{1} << value % 64) - 1)));
  }
  return static_cast<uint32_t>(below);
}

bool ContainsValue(const Container& container, uint32_t value) noexcept {
  if (container.kind == ContainerKind::kBitset) {
    return (WordAt(container, value / 64) >> value % 64 & 1) != 0;
  }
  const uint32_t index = LowerBound(container, value);
  if (index == container.count) return false;
  return container.kind == ContainerKind::kArray ? ValueAt(container, index) == value
                                                 : PairFirst(container, index) <= value;
}

void SetRange(ContainerWords& words, uint32_t begin, uint32_t end) noexcept {
  if (begin >= end) return;
  const uint32_t first = begin / 64;
  const uint32_t last = (end - 1) / 64;
  const uint64_t head = ~uint64_t{0} << begin % 64;
  const uint64_t tail = ~uint64_t{0} >> (63 - (end - 1) % 64);
  if (first == last) {
    words[first] |= head & tail;
    return;
  }
  words[first] |= head;
  std::fill(words.begin() + first + 1, words.begin() + last, ~uint64_t{0});
  words[last] |= tail;
}

void UniteInto(const Container& container, ContainerWords& words) noexcept {
  switch (container.kind) {
    case ContainerKind::kArray:
      for (uint32_t i = 0; i < container.count; ++i) {
        const uint32_t value = ValueAt(container, i);
        words[value / 64] |= uint64_t{1} << value % 64;
      }
      return;
    case ContainerKind::kBitset:
      for (size_t i = 0; i < kBitsetWords; ++i) words[i] |= WordAt(container, i);
      return;
    case ContainerKind::kRun:
      break;
  }
  for (uint32_t i = 0; i < container.count; ++i) {
    SetRange(words, PairFirst(container, i), PairLast(container, i) + 1);
  }
}

void FoldBits(const uint8_t* bitset, unsigned fold, uint64_t* words) noexcept {
  constexpr unsigned kAtOnce = 6;
  static_assert(kBitsetWords >> kMaxFolds == 1);
  simd::FoldBitsFn* const fold_bits = simd::ListBlocks().single->fold;
  if (fold == 0) {
    std::memcpy(words, bitset, kBitsetBytes);
  } else if (fold <= kAtOnce) {
    fold_bits(bitset, nullptr, kBitsetWords >> fold, fold, words);
  } else {
    std::array<uint64_t, (kBitsetWords >> kAtOnce)> folded;
    fold_bits(bitset, nullptr, folded.size(), kAtOnce, folded.data());
    fold_bits(reinterpret_cast<const uint8_t*>(folded.data()), nullptr, kBitsetWords >> fold,
              fold - kAtOnce, words);
  }
}

void CopyInto(const Container& container, ContainerWords& words) noexcept {
  if (container.kind == ContainerKind::kBitset) {
    std::memcpy(words.data(), container.data, kBitsetBytes);
    return;
  }
  words.fill(0);
  UniteInto(container, words);
}

}  // namespace cbt
