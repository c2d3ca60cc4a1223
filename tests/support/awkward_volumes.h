// Small volumes with awkward sizes, block sizes and patterns of changes.
#ifndef CBT_TESTS_SUPPORT_AWKWARD_VOLUMES_H_
#define CBT_TESTS_SUPPORT_AWKWARD_VOLUMES_H_

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "cbt/units.h"
#include "tests/reference/volume.h"

namespace cbt::test {

// The largest volume (bytes).
inline constexpr uint64_t kLargestAwkward = 4 * kMiB;

struct Geometry {
  uint64_t capacity = 0;
  uint64_t block = 1;
  uint64_t blocks() const { return (capacity + block - 1) / block; }
};

template <typename T>
T OneOf(std::mt19937_64& random, std::initializer_list<T> values) {
  return *(values.begin() + static_cast<std::ptrdiff_t>(random() % values.size()));
}

inline Geometry AnyGeometry(std::mt19937_64& random, bool image) {
  Geometry geometry;
  geometry.block = image ? OneOf<uint64_t>(random, {512, 512, 513, 520, 700, 1000, 1024, 4096})
                         : OneOf<uint64_t>(random, {1, 1, 1, 2, 3, 4, 7, 8, 10, 16, 33, 64, 100,
                                                    512, 513, 1000, 4096, 4097});
  const uint64_t size = random() % 1000;
  if (!image && size >= 960 && size < 999) {
    // A number of blocks near the limits of containers and words, the last block partial.
    const auto blocks = OneOf<uint64_t>(random, {4094, 4095, 4096, 4097, 4098, 8191, 8192, 8193,
                                                 65534, 65535, 65536, 65537, 131071, 131073});
    if (blocks * geometry.block > 300'000) geometry.block = 1 + random() % 2;
    geometry.capacity = blocks * geometry.block - random() % geometry.block;
    return geometry;
  }
  const uint64_t most = size < 10 ? 1 : size < 600 ? 600 : size < 930 ? 5000 : 40'000;
  geometry.capacity = size >= 999 && random() % 4 == 0 ? random() % (kLargestAwkward + 1)
                                                       : random() % (most * (image ? 8 : 1));
  return geometry;
}

// Blocks in one of the patterns that trackers have got wrong.
inline reference::ByteSet AnyBlocks(std::mt19937_64& random, uint64_t count) {
  reference::ByteSet set(count, false);
  if (count == 0) return set;
  const auto run = [&](uint64_t begin, uint64_t length) {
    for (uint64_t b = begin; b < count && b < begin + length; ++b) set[b] = true;
  };
  switch (random() % 12) {
    case 0:
      break;
    case 1:
      run(0, count);
      break;
    case 2: {
      const uint64_t one_in = 1 + random() % 100;
      for (uint64_t b = random() % one_in; b < count; b += 1 + random() % (2 * one_in)) {
        set[b] = true;
      }
      break;
    }
    case 3:
      for (uint64_t b = random() % 50; b < count; b += 1 + random() % 300) {
        const uint64_t length = random() % 60;
        run(b, length);
        b += length;
      }
      break;
    case 4:
      for (uint64_t b = random() % 2; b < count; b += 2) set[b] = true;
      break;
    case 5:
      set[0] = true;
      break;
    case 6:
      set[count - 1] = true;
      break;
    case 7:
      set[0] = set[count - 1] = true;
      break;
    case 8:
      run(0, count);
      set[random() % count] = false;
      break;
    case 9:  // across the edges of words, array containers and containers
      for (const uint64_t edge : {64u, 512u, 4096u, 65536u, 131072u}) {
        if (random() % 2 == 0) run(edge - 1 - random() % 10, 1 + random() % 12);
      }
      break;
    case 10: {  // cardinalities at which a container changes its kind
      const uint64_t members = 4094 + random() % 5;
      for (uint64_t b = random() % 3, n = 0; b < count && n < members; b += 2 + b % 2, ++n) {
        set[b] = true;
      }
      break;
    }
    case 11: {
      const uint64_t begin = random() % count;
      run(begin, 1 + random() % (count - begin));
      break;
    }
  }
  return set;
}

inline reference::ByteSet BytesOfBlocks(const reference::ByteSet& blocks,
                                        const Geometry& geometry) {
  reference::ByteSet set(geometry.capacity, false);
  for (uint64_t b = 0; b < blocks.size(); ++b) {
    if (!blocks[b]) continue;
    const uint64_t end = std::min(geometry.capacity, (b + 1) * geometry.block);
    for (uint64_t i = b * geometry.block; i < end; ++i) set[i] = true;
  }
  return set;
}

struct Images {
  std::vector<uint8_t> base;
  std::vector<uint8_t> target;
};

// Writes to every block of `blocks`: its left or right part, one byte, or the whole block.
inline Images AnyImages(std::mt19937_64& random, const reference::ByteSet& blocks,
                        const Geometry& geometry, bool zeros) {
  Images images;
  images.base.resize(geometry.capacity);
  if (!zeros) {
    for (size_t i = 0; i < images.base.size(); i += 1 + i / 64) {
      images.base[i] = static_cast<uint8_t>(random());
    }
  }
  images.target = images.base;
  for (uint64_t b = 0; b < blocks.size(); ++b) {
    if (!blocks[b]) continue;
    const uint64_t begin = b * geometry.block;
    const uint64_t size = std::min(geometry.capacity, begin + geometry.block) - begin;
    uint64_t first = 0;
    uint64_t length = size;
    switch (random() % 4) {
      case 0:
        length = 1 + random() % size;
        break;
      case 1:
        first = random() % size;
        length = size - first;
        break;
      case 2:
        first = random() % size;
        length = 1;
        break;
      default:
        break;
    }
    const auto change = static_cast<uint8_t>(1 + random() % 255);
    for (uint64_t i = begin + first; i < begin + first + length; ++i) images.target[i] ^= change;
  }
  return images;
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_AWKWARD_VOLUMES_H_
