// The oracles: a volume as one bit per byte or block, without cleverness. Shares no code with the
// library; header-only, so that every test can use it.
#ifndef CBT_TESTS_REFERENCE_VOLUME_H_
#define CBT_TESTS_REFERENCE_VOLUME_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace cbt::reference {

// (offset, length) pairs in stream order.
using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;

// One bit for each byte of a volume: true where the byte is reported.
using ByteSet = std::vector<bool>;

// The maximal runs of true.
inline Ranges RunsOf(const ByteSet& set) {
  Ranges runs;
  for (size_t i = 0; i < set.size(); ++i) {
    if (!set[i]) continue;
    if (i > 0 && set[i - 1]) {
      ++runs.back().second;
    } else {
      runs.emplace_back(i, 1);
    }
  }
  return runs;
}

// The bytes of `ranges`, cut at `capacity`.
inline ByteSet BytesOf(const Ranges& ranges, size_t capacity) {
  ByteSet set(capacity, false);
  for (const auto& [offset, length] : ranges) {
    for (uint64_t i = 0; i < length && offset + i < capacity; ++i) {
      set[static_cast<size_t>(offset + i)] = true;
    }
  }
  return set;
}

// Byte i of an image, which reads as zeros past its end.
inline uint8_t ByteAt(const std::vector<uint8_t>& image, size_t i) {
  return i < image.size() ? image[i] : 0;
}

// The bytes of `target` in blocks in which any byte differs from `base`.
inline ByteSet ChangedBytes(const std::vector<uint8_t>& base, const std::vector<uint8_t>& target,
                            size_t block_size) {
  ByteSet set(target.size(), false);
  for (size_t i = 0; i < target.size(); ++i) {
    if (set[i] || ByteAt(base, i) == target[i]) continue;
    const size_t begin = i / block_size * block_size;
    for (size_t k = begin; k < begin + block_size && k < target.size(); ++k) set[k] = true;
  }
  return set;
}

// All bytes of each block of `block_size` with a set byte.
inline ByteSet RoundedOutward(const ByteSet& set, size_t block_size) {
  ByteSet out(set.size(), false);
  for (size_t i = 0; i < set.size(); ++i) {
    if (!set[i] || out[i]) continue;
    const size_t begin = i / block_size * block_size;
    for (size_t k = begin; k < begin + block_size && k < set.size(); ++k) out[k] = true;
  }
  return out;
}

// Fills every gap of at most `max_gap` clear bytes between two set ones.
inline ByteSet Bridged(const ByteSet& set, uint64_t max_gap) {
  ByteSet out = set;
  size_t last = set.size();
  for (size_t i = 0; i < set.size(); ++i) {
    if (!set[i]) continue;
    if (last != set.size() && i - last - 1 <= max_gap) {
      for (size_t k = last + 1; k < i; ++k) out[k] = true;
    }
    last = i;
  }
  return out;
}

// Clears everything outside [begin, end).
inline ByteSet Window(const ByteSet& set, uint64_t begin, uint64_t end) {
  ByteSet out(set.size(), false);
  for (size_t i = 0; i < set.size(); ++i) out[i] = set[i] && i >= begin && i < end;
  return out;
}

// The blocks with a set byte, each at full size.
inline Ranges BlocksOf(const ByteSet& set, size_t block_size) {
  Ranges blocks;
  for (size_t i = 0; i < set.size(); ++i) {
    const uint64_t begin = i / block_size * block_size;
    if (set[i] && (blocks.empty() || blocks.back().first != begin)) {
      blocks.emplace_back(begin, block_size);
    }
  }
  return blocks;
}

// Ranges cut into pieces of at most `length`, counted from each range's start.
inline Ranges PiecesOf(const Ranges& ranges, uint64_t length) {
  Ranges pieces;
  for (auto [offset, rest] : ranges) {
    while (rest > 0) {
      const uint64_t piece = rest < length ? rest : length;
      pieces.emplace_back(offset, piece);
      offset += piece;
      rest -= piece;
    }
  }
  return pieces;
}

// The part of an answer at or after `offset`.
inline Ranges CutAt(const Ranges& ranges, uint64_t offset) {
  Ranges out;
  for (const auto& [begin, length] : ranges) {
    if (begin + length <= offset) continue;
    const uint64_t from = begin < offset ? offset : begin;
    out.emplace_back(from, begin + length - from);
  }
  return out;
}

}  // namespace cbt::reference

#endif  // CBT_TESTS_REFERENCE_VOLUME_H_
