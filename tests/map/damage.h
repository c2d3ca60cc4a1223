// Damages the bytes of checksummed codecs in every way that disks and networks do.
#ifndef CBT_TESTS_MAP_DAMAGE_H_
#define CBT_TESTS_MAP_DAMAGE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/figures.h"
#include "tests/support/seeded_random.h"

namespace cbt::test {

using Bytes = std::vector<uint8_t>;

// How a codec reacts: an error, unchanged contents, other contents.
enum class Verdict { kRefused, kSame, kOther };

// What was tried on a codec, and what it accepted.
struct Tally {
  uint64_t tried = 0;
  uint64_t missed = 0;

  void Add(Verdict verdict, const std::function<std::string()>& what) {
    ++tried;
    if (verdict == Verdict::kRefused) return;
    ++missed;
    ADD_FAILURE() << what() << ": expected an error, got "
                  << (verdict == Verdict::kSame ? "the same contents" : "other contents");
  }
  // Kinds that were not tried are not printed.
  void Print(const std::string& name) const {
    EXPECT_GT(tried, 0u) << name;
    PrintFigure(absl::StrCat(name, "_tried"), tried);
    PrintFigure(absl::StrCat(name, "_missed"), missed);
  }
};

using Judge = std::function<Verdict(const Bytes&)>;

inline void Flip(Bytes& bytes, size_t bit) {
  bytes[bit / 8] = static_cast<uint8_t>(bytes[bit / 8] ^ 1u << bit % 8);
}

// Flips every bit; with `step` > 1, every bit of the first 4 KiB and each `step`-th one after that.
inline Tally SingleFlips(Bytes bytes, size_t step, const Judge& judge) {
  Tally tally;
  for (size_t bit = 0; bit < bytes.size() * 8; bit += bit < 4096 * 8 ? 1 : step) {
    Flip(bytes, bit);
    tally.Add(judge(bytes), [&] { return absl::StrCat("bit ", bit); });
    Flip(bytes, bit);
  }
  return tally;
}

inline Tally DoubleFlips(Bytes bytes, uint64_t count, const Judge& judge) {
  Tally tally;
  SeededRandom random(1);
  for (uint64_t i = 0; i < count; ++i) {
    const size_t first = random() % (bytes.size() * 8);
    // Often close together: in one word or vector.
    const size_t near = (first + 1 + random() % 600) % (bytes.size() * 8);
    const size_t second = random() % 2 == 0 ? near : random() % (bytes.size() * 8);
    if (first == second) continue;
    Flip(bytes, first);
    Flip(bytes, second);
    tally.Add(judge(bytes), [&] { return absl::StrCat("bits ", first, " and ", second); });
    Flip(bytes, first);
    Flip(bytes, second);
  }
  return tally;
}

// Every shorter length, and up to 64 extra bytes of several kinds.
inline Tally Lengths(const Bytes& bytes, const Judge& judge) {
  Tally tally;
  Bytes cut;
  for (size_t size = 0; size < bytes.size(); ++size) {
    cut.assign(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    tally.Add(judge(cut), [&] { return absl::StrCat("the first ", size, " bytes"); });
  }
  SeededRandom random(2);
  for (int kind = 0; kind < 5; ++kind) {
    Bytes longer = bytes;
    for (size_t more = 0; more < 64; ++more) {
      const uint8_t tails[] = {0, 0xff, static_cast<uint8_t>(random()), bytes[more],
                               bytes[bytes.size() - 64 + more]};
      longer.push_back(tails[kind]);
      tally.Add(judge(longer), [&] { return absl::StrCat(more + 1, " more, kind ", kind); });
    }
  }
  return tally;
}

// Blocks that were swapped, or written over another.
inline Tally Swaps(const Bytes& bytes, size_t block, size_t step, const Judge& judge) {
  Tally tally;
  const size_t blocks = bytes.size() / block;
  const auto at = [block](size_t number) { return static_cast<std::ptrdiff_t>(number * block); };
  const auto length = static_cast<std::ptrdiff_t>(block);
  for (size_t pair = 0; pair < blocks * blocks; pair += step) {
    const size_t a = pair / blocks;
    const size_t b = pair % blocks;
    if (std::equal(bytes.begin() + at(a), bytes.begin() + at(a) + length, bytes.begin() + at(b))) {
      continue;
    }
    Bytes mixed = bytes;
    if (a < b) {
      std::swap_ranges(mixed.begin() + at(a), mixed.begin() + at(a) + length,
                       mixed.begin() + at(b));
    } else {
      std::copy_n(bytes.begin() + at(a), length, mixed.begin() + at(b));
    }
    tally.Add(judge(mixed), [&] { return absl::StrCat("blocks ", a, " and ", b, " of ", block); });
  }
  return tally;
}

// Mixes blocks of an older file of the same size into the newer one: every contiguous range, and
// `subsets` random sets. A mix that equals either file does not count.
inline Tally Splices(const Bytes& now, const Bytes& before, size_t block, uint64_t subsets,
                     const Judge& judge) {
  Tally tally;
  const size_t blocks = (now.size() + block - 1) / block;
  const auto try_one = [&](const std::string& what, const std::function<bool(size_t)>& old) {
    Bytes mixed = now;
    for (size_t i = 0; i < mixed.size(); ++i) {
      if (old(i / block)) mixed[i] = before[i];
    }
    if (mixed == now || mixed == before) return;
    tally.Add(judge(mixed),
              [&] { return absl::StrCat("old blocks of ", block, " bytes: ", what); });
  };
  for (size_t first = 0; first < blocks; ++first) {
    const size_t step = 1 + blocks / 40;
    for (size_t end = first + 1; end <= blocks; end += step) {
      try_one(absl::StrCat(first, " to ", end), [=](size_t b) { return b >= first && b < end; });
    }
  }
  SeededRandom random(3);
  for (uint64_t i = 0; i < subsets; ++i) {
    std::vector<bool> chosen(blocks);
    for (size_t b = 0; b < blocks; ++b) chosen[b] = random() % 2 == 0;
    try_one(absl::StrCat("subset ", i), [&](size_t b) { return chosen[b]; });
  }
  return tally;
}

}  // namespace cbt::test

#endif  // CBT_TESTS_MAP_DAMAGE_H_
