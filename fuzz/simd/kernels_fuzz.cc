// Every variant of every kernel family against the scalar one.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "fuzz/support/check.h"
#include "simd/kernels.h"

namespace {

using cbt::simd::kRunSlack;
using cbt::simd::kTupleBytes;

// Bytes with repetitions, so that vectors of equal words occur. Exactly as long as needed, so that
// the sanitizer detects an overread.
std::vector<uint8_t> Bytes(FuzzedDataProvider& in, size_t size) {
  std::vector<uint8_t> bytes(size, in.ConsumeIntegral<uint8_t>());
  const std::vector<uint8_t> some =
      in.ConsumeBytes<uint8_t>(in.ConsumeIntegralInRange<size_t>(0, size));
  const size_t at = in.ConsumeIntegralInRange<size_t>(0, size - some.size());
  std::copy(some.begin(), some.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
  return bytes;
}

void ExtractRuns(FuzzedDataProvider& in) {
  // Mostly few bytes, which then repeat.
  const size_t words = in.ConsumeIntegralInRange<size_t>(1, in.ConsumeBool() ? 24 : 300);
  const size_t room = in.ConsumeIntegralInRange<size_t>(1, words * 32 + 1);
  const uint64_t open = in.ConsumeIntegralInRange<uint64_t>(0, 1);
  const uint64_t origin = in.ConsumeIntegral<uint64_t>() >> 8;
  const auto shift = in.ConsumeIntegralInRange<unsigned>(0, 40);
  const cbt::simd::BitLayout layout = {
      .most_significant_first = in.ConsumeBool(),
      .reversed_word_bytes = 1u << in.ConsumeIntegralInRange<unsigned>(0, 3),
      .flip_a = uint64_t{0} - in.ConsumeIntegralInRange<uint64_t>(0, 1),
      .flip_b = uint64_t{0} - in.ConsumeIntegralInRange<uint64_t>(0, 1)};
  const auto a = Bytes(in, words * 8);
  const auto b = in.ConsumeBool() ? a : Bytes(in, words * 8);
  const auto run = [&](const cbt::simd::ExtractRunsKernels& kernels) {
    std::vector<uint64_t> all;
    const auto add = [&](auto scan) {
      std::vector<uint64_t> offsets(room + kRunSlack);
      std::vector<uint64_t> lengths(room + kRunSlack);
      offsets[0] = open;
      const auto done = scan(offsets.data(), lengths.data());
      CBT_FUZZ_CHECK(done.words <= words && done.runs <= room + 32);
      offsets.resize(done.runs + done.open);
      lengths.resize(done.runs);
      all.push_back(done.words);
      all.insert(all.end(), offsets.begin(), offsets.end());
      all.insert(all.end(), lengths.begin(), lengths.end());
    };
    for (auto* scan :
         {kernels.single, kernels.exclusive, kernels.and_not, kernels.either, kernels.both}) {
      add([&](uint64_t* offsets, uint64_t* lengths) {
        return scan(a.data(), b.data(), words, origin, shift, open, offsets, lengths, room);
      });
    }
    const auto& other = kernels.in_layout;
    for (auto* scan : {other.single, other.exclusive, other.and_not, other.either, other.both}) {
      add([&](uint64_t* offsets, uint64_t* lengths) {
        return scan(layout, a.data(), b.data(), words, origin, shift, open, offsets, lengths, room);
      });
    }
    return all;
  };
  const auto want = run(cbt::simd::scalar::kExtractRuns);
  for (const auto& variant : cbt::simd::ExtractRunsVariants()) {
    if (cbt::simd::IsRunnable(variant.level)) CBT_FUZZ_CHECK(run(*variant.kernels) == want);
  }
}

void CountBits(FuzzedDataProvider& in) {
  const size_t words = in.ConsumeIntegralInRange<size_t>(0, 100);
  const uint64_t open = in.ConsumeIntegralInRange<uint64_t>(0, 1);
  const auto a = Bytes(in, words * 8);
  const auto b = Bytes(in, words * 8);
  const auto run = [&](const cbt::simd::CountBitsKernels& kernels) {
    std::vector<uint64_t> all;
    for (auto* count :
         {kernels.single, kernels.exclusive, kernels.and_not, kernels.either, kernels.both}) {
      const auto counts = count(a.data(), b.data(), words, open);
      all.insert(all.end(), {counts.ones, counts.starts, counts.open});
    }
    return all;
  };
  const auto want = run(cbt::simd::scalar::kCountBits);
  for (const auto& variant : cbt::simd::CountBitsVariants()) {
    if (cbt::simd::IsRunnable(variant.level)) CBT_FUZZ_CHECK(run(*variant.kernels) == want);
  }
}

void Containers(FuzzedDataProvider& in) {
  const size_t count = in.ConsumeIntegralInRange<size_t>(1, 300);
  const auto shift = in.ConsumeIntegralInRange<unsigned>(0, 30);
  const auto bytes = Bytes(in, count * 4);
  // Ascending values, made through a bitset.
  std::vector<uint8_t> bitset(8192);
  for (size_t i = 0; i < count; ++i) {
    const size_t value = bytes[2 * i] | size_t{bytes[2 * i + 1]} << 8;
    bitset[value / 8] = static_cast<uint8_t>(bitset[value / 8] | 1u << value % 8);
  }
  const auto run = [&](const cbt::simd::ContainersKernels& kernels) {
    const size_t places = count + cbt::simd::kContainerSlack;
    std::vector<uint16_t> values(places);
    std::vector<uint64_t> offsets(places);
    std::vector<uint64_t> lengths(places);
    const size_t found = kernels.collect_values(bitset.data(), values.data());
    std::vector<uint64_t> all(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(found));
    std::vector<uint16_t> some(cbt::simd::kMaxArrayValues + cbt::simd::kContainerSlack);
    const auto few = kernels.collect_few(bitset.data(), some.data());
    all.insert(all.end(), {few.count, few.runs});
    if (few.count != cbt::simd::kNotFew) {
      all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(few.count));
    }
    const auto take = [&](size_t runs) {
      const auto end = static_cast<std::ptrdiff_t>(runs);
      all.insert(all.end(), offsets.begin(), offsets.begin() + end);
      all.insert(all.end(), lengths.begin(), lengths.begin() + end);
    };
    take(kernels.expand_values(reinterpret_cast<const uint8_t*>(values.data()), found, 5, shift,
                               offsets.data(), lengths.data()));
    kernels.expand_pairs(bytes.data(), count, 5, shift, offsets.data(), lengths.data());
    take(count);
    all.push_back(kernels.check_pairs(bytes.data(), count));
    all.push_back(kernels.check_values(bytes.data(), count) ? 1 : 0);
    return all;
  };
  const auto want = run(cbt::simd::scalar::kContainers);
  for (const auto& variant : cbt::simd::ContainersVariants()) {
    if (cbt::simd::IsRunnable(variant.level)) CBT_FUZZ_CHECK(run(*variant.kernels) == want);
  }
}

void LoadBits(FuzzedDataProvider& in) {
  const size_t words = in.ConsumeIntegralInRange<size_t>(0, 40);
  const auto shift = in.ConsumeIntegralInRange<unsigned>(0, 7);
  const bool reverse = in.ConsumeBool();
  const bool invert = in.ConsumeBool();
  const auto from = Bytes(in, words * 8 + (shift != 0 ? 1 : 0));
  const auto run = [&](const cbt::simd::LoadBitsKernels& kernels) {
    std::vector<uint64_t> out(words);
    kernels.load(from.data(), shift, reverse, invert, out.data(), words);
    return out;
  };
  const auto want = run(cbt::simd::scalar::kLoadBits);
  for (const auto& variant : cbt::simd::LoadBitsVariants()) {
    if (cbt::simd::IsRunnable(variant.level)) CBT_FUZZ_CHECK(run(*variant.kernels) == want);
  }
}

void CompareBlocks(FuzzedDataProvider& in) {
  const size_t size = in.ConsumeIntegralInRange<size_t>(1, 3000);
  const size_t block_size = in.ConsumeIntegralInRange<size_t>(1, 1500);
  const auto a = Bytes(in, size);
  const auto b = Bytes(in, size);
  const auto run = [&](const cbt::simd::CompareBlocksKernels& kernels) {
    std::vector<uint64_t> bits((size / block_size + 64) / 64 + 1);
    kernels.compare(a.data(), b.data(), size, block_size, bits.data());
    std::vector<uint64_t> nonzero(bits.size());
    kernels.nonzero(a.data(), size, block_size, nonzero.data());
    bits.insert(bits.end(), nonzero.begin(), nonzero.end());
    return bits;
  };
  const auto want = run(cbt::simd::scalar::kCompareBlocks);
  for (const auto& variant : cbt::simd::CompareBlocksVariants()) {
    if (cbt::simd::IsRunnable(variant.level)) CBT_FUZZ_CHECK(run(*variant.kernels) == want);
  }
}

void EncodeTuples(FuzzedDataProvider& in) {
  const size_t count = in.ConsumeIntegralInRange<size_t>(0, 50);
  const size_t room = in.ConsumeIntegralInRange<size_t>(0, count * kTupleBytes);
  std::vector<uint64_t> offsets(count);
  std::vector<uint64_t> lengths(count);
  for (size_t i = 0; i < count; ++i) {
    offsets[i] = in.ConsumeIntegral<uint64_t>() >> in.ConsumeIntegralInRange<int>(1, 63);
    lengths[i] = in.ConsumeIntegral<uint64_t>() >> in.ConsumeIntegralInRange<int>(1, 63);
  }
  const auto run = [&](const cbt::simd::EncodeTuplesKernels& kernels) {
    std::vector<uint8_t> out(room);
    const auto done = kernels.encode(offsets.data(), lengths.data(), count, out.data(), out.size());
    CBT_FUZZ_CHECK(done.tuples <= count && done.bytes <= room);
    out.resize(done.bytes);
    return out;
  };
  const auto want = run(cbt::simd::scalar::kEncodeTuples);
  for (const auto& variant : cbt::simd::EncodeTuplesVariants()) {
    if (cbt::simd::IsRunnable(variant.level)) CBT_FUZZ_CHECK(run(*variant.kernels) == want);
  }
}

void DecodeTuples(FuzzedDataProvider& in) {
  const size_t room = in.ConsumeIntegralInRange<size_t>(0, 60);
  const auto bytes = in.ConsumeRemainingBytes<uint8_t>();
  const auto run = [&](const cbt::simd::DecodeTuplesKernels& kernels) {
    std::vector<uint64_t> all(2 * room);
    const auto done =
        kernels.decode(bytes.data(), bytes.size(), all.data(), all.data() + room, room);
    CBT_FUZZ_CHECK(done.tuples <= room && done.bytes <= bytes.size());
    for (size_t i = done.tuples; i < room; ++i) all[i] = all[room + i] = 0;
    all.push_back(done.tuples);
    all.push_back(done.bytes);
    return all;
  };
  const auto want = run(cbt::simd::scalar::kDecodeTuples);
  for (const auto& variant : cbt::simd::DecodeTuplesVariants()) {
    if (cbt::simd::IsRunnable(variant.level)) CBT_FUZZ_CHECK(run(*variant.kernels) == want);
  }
}

void CheckTuples(FuzzedDataProvider& in) {
  const size_t count = in.ConsumeIntegralInRange<size_t>(0, 40);
  constexpr auto kMost = static_cast<uint64_t>(INT64_MAX);
  const auto value = [&] { return in.ConsumeIntegralInRange<uint64_t>(0, kMost); };
  const uint64_t size = in.ConsumeIntegralInRange<uint64_t>(0, 3);
  const cbt::simd::TupleRules rules{value(), value(), value(), size};
  std::vector<uint64_t> offsets(count);
  std::vector<uint64_t> lengths(count);
  uint64_t end = rules.floor;
  for (size_t i = 0; i < count; ++i) {
    offsets[i] = in.ConsumeBool() ? end : value();
    lengths[i] = in.ConsumeBool() ? in.ConsumeIntegralInRange<uint64_t>(0, 3) : value();
    end = offsets[i] + lengths[i];
  }
  const auto want =
      cbt::simd::scalar::kCheckTuples.check(offsets.data(), lengths.data(), count, rules);
  for (const auto& variant : cbt::simd::CheckTuplesVariants()) {
    if (!cbt::simd::IsRunnable(variant.level)) continue;
    const auto got = variant.kernels->check(offsets.data(), lengths.data(), count, rules);
    CBT_FUZZ_CHECK(got.sound == want.sound && got.bytes == want.bytes &&
                   got.offset_bits == want.offset_bits);
  }
}

void DigestTuples(FuzzedDataProvider& in) {
  constexpr size_t kTuples = cbt::simd::kStripeTuples;
  const size_t stripes = in.ConsumeIntegralInRange<size_t>(0, 60);
  const auto stripe = in.ConsumeIntegralInRange<size_t>(0, cbt::simd::kBlockStripes - 1);
  std::vector<uint64_t> offsets(stripes * kTuples);
  std::vector<uint64_t> lengths(stripes * kTuples);
  // Most have one length.
  const auto length = in.ConsumeIntegral<uint64_t>();
  const bool other = in.ConsumeBool();
  for (size_t i = 0; i < offsets.size(); ++i) {
    offsets[i] = in.ConsumeIntegral<uint64_t>();
    lengths[i] = other && in.ConsumeBool() ? in.ConsumeIntegral<uint64_t>() : length;
  }
  const auto run = [&](const cbt::simd::DigestTuplesKernels& kernels) {
    cbt::simd::DigestLanes lanes = {{1, 2, 3, 4}, {5, 6, 7, 8}, stripe};
    std::vector<uint64_t> all = {kernels.add(offsets.data(), lengths.data(), stripes, lanes)};
    all.insert(all.end(), lanes.even, lanes.even + 4);
    all.insert(all.end(), lanes.odd, lanes.odd + 4);
    all.push_back(lanes.stripe);
    return all;
  };
  const auto want = run(cbt::simd::scalar::kDigestTuples);
  for (const auto& variant : cbt::simd::DigestTuplesVariants()) {
    if (cbt::simd::IsRunnable(variant.level)) CBT_FUZZ_CHECK(run(*variant.kernels) == want);
  }
}

void SortedExtents(FuzzedDataProvider& in) {
  constexpr auto kMost = static_cast<uint64_t>(INT64_MAX);
  std::vector<uint64_t> starts[2];
  std::vector<uint64_t> ends[2];
  for (int list = 0; list < 2; ++list) {
    uint64_t at = in.ConsumeIntegralInRange<uint64_t>(0, kMost);
    for (size_t i = in.ConsumeIntegralInRange<size_t>(0, 60); i > 0 && at < kMost; --i) {
      starts[list].push_back(at);
      at += in.ConsumeIntegralInRange<uint64_t>(1, std::min<uint64_t>(20, kMost - at));
      ends[list].push_back(at);
      at += in.ConsumeIntegralInRange<uint64_t>(0, std::min<uint64_t>(20, kMost - at));
    }
  }
  const uint64_t gap = in.ConsumeIntegral<uint8_t>() >> 3;
  const uint64_t alignment = uint64_t{1} << in.ConsumeIntegralInRange<int>(0, 6);
  const bool has_open = in.ConsumeBool();
  // Above where the last extent begins.
  const uint64_t limit =
      starts[0].empty()
          ? kMost
          : starts[0].back() + in.ConsumeIntegralInRange<uint64_t>(
                                   1, std::min<uint64_t>(100, kMost - starts[0].back()));
  const size_t count = starts[0].size() + starts[1].size();
  const auto run = [&](const cbt::simd::SortedExtentsKernels& kernels) {
    const size_t places = count + cbt::simd::kSortedSlack;
    std::vector<uint64_t> s(places);
    std::vector<uint64_t> e(places);
    kernels.merge({starts[0].data(), ends[0].data(), starts[0].size()},
                  {starts[1].data(), ends[1].data(), starts[1].size()}, s.data(), e.data());
    std::vector<uint64_t> all(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(count));
    std::vector<uint64_t> offsets(places);
    std::vector<uint64_t> lengths(places);
    for (const bool both : {false, true}) {
      const size_t found =
          both ? kernels.overlap(s.data(), e.data(), count, offsets.data(), lengths.data())
               : kernels.unite(s.data(), e.data(), count, gap, offsets.data(), lengths.data());
      const auto end = static_cast<std::ptrdiff_t>(found);
      all.insert(all.end(), offsets.begin(), offsets.begin() + end);
      all.insert(all.end(), lengths.begin(), lengths.begin() + end);
    }
    std::vector<uint64_t> sizes;
    for (size_t i = 0; i < starts[0].size(); ++i) sizes.push_back(ends[0][i] - starts[0][i]);
    std::vector<uint64_t> joined(sizes.size() + 1 + cbt::simd::kSortedSlack);
    std::vector<uint64_t> joined_sizes(joined.size());
    cbt::simd::OpenExtent open = {0, has_open && !sizes.empty() ? starts[0].front() : 0};
    const auto end = static_cast<std::ptrdiff_t>(
        kernels.join(starts[0].data(), sizes.data(), sizes.size(), {alignment, limit, gap}, open,
                     joined.data(), joined_sizes.data()));
    all.insert(all.end(), {open.start, open.end});
    all.insert(all.end(), joined.begin(), joined.begin() + end);
    all.insert(all.end(), joined_sizes.begin(), joined_sizes.begin() + end);
    return all;
  };
  const auto want = run(cbt::simd::scalar::kSortedExtents);
  for (const auto& variant : cbt::simd::SortedExtentsVariants()) {
    if (cbt::simd::IsRunnable(variant.level)) CBT_FUZZ_CHECK(run(*variant.kernels) == want);
  }
}

void SplitExtents(FuzzedDataProvider& in) {
  const auto most = in.ConsumeIntegralInRange<uint64_t>(1, 20);
  const size_t room = in.ConsumeIntegralInRange<size_t>(0, 80);
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> lengths;
  uint64_t at = in.ConsumeIntegralInRange<uint64_t>(0, INT64_MAX - 10'000);
  for (size_t i = in.ConsumeIntegralInRange<size_t>(0, 60); i > 0; --i) {
    offsets.push_back(at);
    lengths.push_back(in.ConsumeIntegralInRange<uint64_t>(1, in.ConsumeBool() ? 2 * most : 100));
    at += lengths.back() + in.ConsumeIntegralInRange<uint64_t>(0, 3);
  }
  // Above where the last extent begins.
  const uint64_t limit =
      offsets.empty() ? at : offsets.back() + in.ConsumeIntegralInRange<uint64_t>(1, 100);
  const auto run = [&](const cbt::simd::SplitExtentsKernels& kernels) {
    std::vector<uint64_t> all(2 * (room + cbt::simd::kSplitSlack));
    uint64_t* const sizes = all.data() + room + cbt::simd::kSplitSlack;
    const auto scan = kernels.split(offsets.data(), lengths.data(), offsets.size(), most, limit,
                                    all.data(), sizes, room);
    CBT_FUZZ_CHECK(scan.extents <= offsets.size() && scan.pieces <= room);
    std::copy_n(sizes, scan.pieces, all.data() + scan.pieces);
    all.resize(2 * scan.pieces);
    all.push_back(scan.extents);
    return all;
  };
  const auto want = run(cbt::simd::scalar::kSplitExtents);
  for (const auto& variant : cbt::simd::SplitExtentsVariants()) {
    if (cbt::simd::IsRunnable(variant.level)) CBT_FUZZ_CHECK(run(*variant.kernels) == want);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  switch (in.ConsumeIntegralInRange<int>(0, 10)) {
    case 0:
      ExtractRuns(in);
      break;
    case 1:
      CompareBlocks(in);
      break;
    case 2:
      CountBits(in);
      break;
    case 3:
      LoadBits(in);
      break;
    case 4:
      DecodeTuples(in);
      break;
    case 5:
      CheckTuples(in);
      break;
    case 6:
      SortedExtents(in);
      break;
    case 7:
      Containers(in);
      break;
    case 8:
      DigestTuples(in);
      break;
    case 9:
      SplitExtents(in);
      break;
    default:
      EncodeTuples(in);
      break;
  }
  return 0;
}
