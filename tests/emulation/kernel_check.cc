// Compares every variant of every kernel family that this processor can run with the scalar one, on
// fixed pseudo-random and adversarial inputs. Needs no test framework, so that it can be built for
// any machine and run under an emulator. Prints a line `family: level level ...` per family and
// exits with 1 at the first difference. Arguments: required levels, as family=level.
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "simd/kernels.h"

namespace {

using cbt::simd::CheckPattern;
using Words = std::vector<uint64_t>;

std::map<std::string, std::set<std::string>> ran;
CheckPattern random_numbers;

uint64_t Next(uint64_t range) { return random_numbers.Next() % range; }

// Quiet, full, sparse and dense words, in stretches.
Words AnyWords(size_t count) {
  Words words(count);
  uint64_t kind = 0;
  for (uint64_t& word : words) {
    if (Next(20) == 0) kind = Next(5);
    const uint64_t any = random_numbers.Next();
    word = kind == 0   ? 0
           : kind == 1 ? ~uint64_t{0}
           : kind == 2 ? (Next(4) == 0 ? uint64_t{1} << Next(64) : 0)
           : kind == 3 ? any
                       : any & random_numbers.Next() & random_numbers.Next();
  }
  return words;
}

const uint8_t* Bytes(const Words& words) { return reinterpret_cast<const uint8_t*>(words.data()); }

// Runs `job` for each variant; all results must equal the first, scalar one.
template <typename Kernels>
void Compare(const char* family, std::span<const cbt::simd::Variant<Kernels>> variants,
             const std::function<Words(const Kernels&)>& job) {
  const Words want = job(*variants.front().kernels);
  for (const auto& variant : variants) {
    if (!cbt::simd::IsRunnable(variant.level)) continue;
    const char* level = cbt::SimdLevelName(variant.level);
    ran[family].insert(level);
    if (job(*variant.kernels) == want) continue;
    std::printf("%s: %s differs from scalar\n", family, level);
    std::exit(1);
  }
}

void ExtractRuns(size_t words, const Words& a, const Words& b) {
  using cbt::simd::ExtractRunsKernels;
  const size_t room = 1 + Next(words * 20 + 10);
  const uint64_t open = Next(2);
  const cbt::simd::BitLayout layout = {.most_significant_first = Next(2) != 0,
                                       .reversed_word_bytes = 1u << Next(4),
                                       .flip_a = uint64_t{0} - Next(2),
                                       .flip_b = uint64_t{0} - Next(2)};
  Compare<ExtractRunsKernels>(
      "extract_runs", cbt::simd::ExtractRunsVariants(), [&](const ExtractRunsKernels& kernels) {
        Words all;
        const auto run = [&](auto scan) {
          Words offsets(room + cbt::simd::kRunSlack);
          Words lengths(room + cbt::simd::kRunSlack);
          const auto done = scan(offsets.data(), lengths.data());
          all.insert(all.end(), {done.words, done.runs, done.open});
          const auto runs = static_cast<std::ptrdiff_t>(done.runs);
          all.insert(all.end(), offsets.begin(),
                     offsets.begin() + runs + static_cast<std::ptrdiff_t>(done.open));
          all.insert(all.end(), lengths.begin(), lengths.begin() + runs);
        };
        for (auto* scan :
             {kernels.single, kernels.exclusive, kernels.and_not, kernels.either, kernels.both}) {
          run([&](uint64_t* offsets, uint64_t* lengths) {
            return scan(Bytes(a), Bytes(b), words, 777, 12, open, offsets, lengths, room);
          });
        }
        const auto& other = kernels.in_layout;
        for (auto* scan :
             {other.single, other.exclusive, other.and_not, other.either, other.both}) {
          run([&](uint64_t* offsets, uint64_t* lengths) {
            return scan(layout, Bytes(a), Bytes(b), words, 777, 12, open, offsets, lengths, room);
          });
        }
        return all;
      });
}

void ListBlocks(size_t words, const Words& a, const Words& b) {
  using cbt::simd::ListBlocksKernels;
  const size_t room = 1 + Next(words * 40 + 10);
  Compare<ListBlocksKernels>(
      "list_blocks", cbt::simd::ListBlocksVariants(), [&](const ListBlocksKernels& kernels) {
        Words all;
        for (const auto* kernel :
             {kernels.single, kernels.exclusive, kernels.and_not, kernels.either, kernels.both}) {
          Words offsets(room + cbt::simd::kBlockSlack);
          const auto done = kernel->list(Bytes(a), Bytes(b), words, 777, 12, offsets.data(), room);
          all.insert(all.end(), {done.words, done.blocks});
          all.insert(all.end(), offsets.begin(),
                     offsets.begin() + static_cast<std::ptrdiff_t>(done.blocks));
          for (unsigned fold = 1; fold <= 6; ++fold) {
            Words folded(words >> fold);
            kernel->fold(Bytes(a), Bytes(b), folded.size(), fold, folded.data());
            all.insert(all.end(), folded.begin(), folded.end());
          }
        }
        return all;
      });
}

void CountAndLoadBits(size_t words, const Words& a, const Words& b) {
  using cbt::simd::CountBitsKernels;
  using cbt::simd::LoadBitsKernels;
  Compare<CountBitsKernels>(
      "count_bits", cbt::simd::CountBitsVariants(), [&](const CountBitsKernels& kernels) {
        Words all;
        for (auto* count :
             {kernels.single, kernels.exclusive, kernels.and_not, kernels.either, kernels.both}) {
          const auto counts = count(Bytes(a), Bytes(b), words, 1);
          all.insert(all.end(), {counts.ones, counts.starts, counts.open});
        }
        return all;
      });
  for (unsigned layout = 0; layout < 32; ++layout) {
    Compare<LoadBitsKernels>("load_bits", cbt::simd::LoadBitsVariants(),
                             [&](const LoadBitsKernels& kernels) {
                               Words out(words);
                               kernels.load(Bytes(a), layout % 8, (layout & 8) != 0,
                                            (layout & 16) != 0, out.data(), words - 1);
                               return out;
                             });
  }
}

void CompareBlocks(const Words& a, const Words& b) {
  using cbt::simd::CompareBlocksKernels;
  const size_t bytes = a.size() * 8 - Next(8);
  const size_t block = 1 + Next(700);
  Compare<CompareBlocksKernels>("compare_blocks", cbt::simd::CompareBlocksVariants(),
                                [&](const CompareBlocksKernels& kernels) {
                                  Words out(2 * (bytes / block / 64 + 2));
                                  kernels.compare(Bytes(a), Bytes(b), bytes, block, out.data());
                                  kernels.nonzero(Bytes(a), bytes, block,
                                                  out.data() + out.size() / 2);
                                  return out;
                                });
}

void Tuples(size_t count) {
  using cbt::simd::CheckTuplesKernels;
  using cbt::simd::DecodeTuplesKernels;
  using cbt::simd::DigestTuplesKernels;
  using cbt::simd::EncodeTuplesKernels;
  Words offsets(count);
  Words lengths(count);
  // Or most with one length, and offsets of one size.
  const bool alike = Next(2) == 0;
  const uint64_t length = random_numbers.Next() >> (1 + Next(63));
  for (size_t i = 0; i < count; ++i) {
    const bool as_others = alike && Next(100) != 0;
    offsets[i] = random_numbers.Next() >> (as_others ? 20 : 1 + Next(63));
    lengths[i] = as_others ? length : random_numbers.Next() >> (1 + Next(63));
  }
  const size_t room = count * (4 + Next(19));
  Compare<EncodeTuplesKernels>(
      "encode_tuples", cbt::simd::EncodeTuplesVariants(), [&](const EncodeTuplesKernels& kernels) {
        std::vector<uint8_t> out(room);
        const auto done =
            kernels.encode(offsets.data(), lengths.data(), count, out.data(), out.size());
        Words all = {done.tuples, done.bytes};
        all.insert(all.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(done.bytes));
        return all;
      });
  std::vector<uint8_t> bytes(count * cbt::simd::kTupleBytes);
  const size_t size = cbt::simd::scalar::kEncodeTuples
                          .encode(offsets.data(), lengths.data(), count, bytes.data(), bytes.size())
                          .bytes;
  if (size > 0 && Next(2) == 0) bytes[Next(size)] ^= static_cast<uint8_t>(1u << Next(8));
  Compare<DecodeTuplesKernels>(
      "decode_tuples", cbt::simd::DecodeTuplesVariants(), [&](const DecodeTuplesKernels& kernels) {
        Words all(2 * count);
        const auto done = kernels.decode(bytes.data(), size, all.data(), all.data() + count, count);
        for (size_t i = done.tuples; i < count; ++i) all[i] = all[count + i] = 0;
        all.insert(all.end(), {done.tuples, done.bytes});
        return all;
      });
  Compare<DigestTuplesKernels>(
      "digest_tuples", cbt::simd::DigestTuplesVariants(), [&](const DigestTuplesKernels& kernels) {
        cbt::simd::DigestLanes lanes = {{1, 2, 3, 4}, {5, 6, 7, 8}, count % 16};
        kernels.add(offsets.data(), lengths.data(), count / 4, lanes);
        Words all(lanes.even, lanes.even + 4);
        all.insert(all.end(), lanes.odd, lanes.odd + 4);
        all.push_back(lanes.stripe);
        return all;
      });
  uint64_t end = 0;
  for (size_t i = 0; i < count; ++i) {
    offsets[i] = end + Next(3);
    lengths[i] = 1 + Next(5);
    end = offsets[i] + lengths[i];
  }
  if (count > 0 && Next(2) == 0) offsets[Next(count)] -= Next(2);
  Compare<CheckTuplesKernels>(
      "check_tuples", cbt::simd::CheckTuplesVariants(), [&](const CheckTuplesKernels& kernels) {
        const auto check = kernels.check(offsets.data(), lengths.data(), count, {0, end, end, 0});
        return Words{check.sound ? uint64_t{1} : 0, check.bytes, check.offset_bits};
      });
}

void SortedExtents(size_t count) {
  using cbt::simd::SortedExtentsKernels;
  using cbt::simd::SplitExtentsKernels;
  Words starts[2];
  Words ends[2];
  for (int list = 0; list < 2; ++list) {
    uint64_t at = 0;
    for (uint64_t i = Next(count + 1); i > 0; --i) {
      starts[list].push_back(at += Next(5));
      ends[list].push_back(at += 1 + Next(5));
    }
  }
  const size_t both = starts[0].size() + starts[1].size();
  Words sizes;
  for (size_t i = 0; i < starts[0].size(); ++i) sizes.push_back(ends[0][i] - starts[0][i]);
  // In the last extent.
  const uint64_t limit = sizes.empty() ? 1 : starts[0].back() + 1 + Next(sizes.back());
  Compare<SortedExtentsKernels>(
      "sorted_extents", cbt::simd::SortedExtentsVariants(),
      [&](const SortedExtentsKernels& kernels) {
        const size_t places = both + cbt::simd::kSortedSlack;
        Words s(places);
        Words e(places);
        kernels.merge({starts[0].data(), ends[0].data(), starts[0].size()},
                      {starts[1].data(), ends[1].data(), starts[1].size()}, s.data(), e.data());
        Words offsets(places);
        Words lengths(places);
        Words all(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(both));
        for (const bool overlap : {false, true}) {
          const size_t found =
              overlap ? kernels.overlap(s.data(), e.data(), both, offsets.data(), lengths.data())
                      : kernels.unite(s.data(), e.data(), both, 2, offsets.data(), lengths.data());
          const auto end = static_cast<std::ptrdiff_t>(found);
          all.insert(all.end(), offsets.begin(), offsets.begin() + end);
          all.insert(all.end(), lengths.begin(), lengths.begin() + end);
        }
        cbt::simd::OpenExtent open = {0, both % 2};
        const auto end = static_cast<std::ptrdiff_t>(kernels.join(starts[0].data(), sizes.data(),
                                                                  sizes.size(), {4, limit, 2}, open,
                                                                  offsets.data(), lengths.data()));
        all.insert(all.end(), {open.start, open.end});
        all.insert(all.end(), offsets.begin(), offsets.begin() + end);
        all.insert(all.end(), lengths.begin(), lengths.begin() + end);
        return all;
      });
  Compare<SplitExtentsKernels>(
      "split_extents", cbt::simd::SplitExtentsVariants(), [&](const SplitExtentsKernels& kernels) {
        Words offsets(both + cbt::simd::kSplitSlack);
        Words lengths(both + cbt::simd::kSplitSlack);
        const auto scan = kernels.split(starts[0].data(), sizes.data(), sizes.size(), 3, limit,
                                        offsets.data(), lengths.data(), both);
        const auto end = static_cast<std::ptrdiff_t>(scan.pieces);
        Words all = {scan.extents, scan.pieces};
        all.insert(all.end(), offsets.begin(), offsets.begin() + end);
        all.insert(all.end(), lengths.begin(), lengths.begin() + end);
        return all;
      });
}

// Arrays and run lists, their checks, and the values of a bitset.
void Containers(size_t stretch) {
  using cbt::simd::ContainersKernels;
  Words bits(1024);
  size_t left = cbt::simd::kMaxArrayValues - 64;
  for (size_t i = Next(300); i < bits.size() && left >= 64; i += 1 + Next(stretch)) {
    bits[i] = uint64_t{1} << Next(64);
    // Sometimes a few bits in every word.
    if (stretch % 3 != 0) bits[i] |= AnyWords(1)[0];
    left -= static_cast<size_t>(__builtin_popcountll(bits[i]));
  }
  Compare<ContainersKernels>(
      "containers", cbt::simd::ContainersVariants(), [&](const ContainersKernels& kernels) {
        constexpr size_t kPlaces = cbt::simd::kMaxArrayValues + cbt::simd::kContainerSlack;
        std::vector<uint16_t> values(kPlaces);
        Words offsets(kPlaces);
        Words lengths(kPlaces);
        const size_t count = kernels.collect_values(Bytes(bits), values.data());
        Words all(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count));
        std::vector<uint16_t> few_values(kPlaces);
        const auto few = kernels.collect_few(Bytes(bits), few_values.data());
        all.insert(all.end(), {few.count, few.runs});
        if (few.count != cbt::simd::kNotFew) {
          all.insert(all.end(), few_values.begin(),
                     few_values.begin() + static_cast<std::ptrdiff_t>(few.count));
        }
        const auto* const array = reinterpret_cast<const uint8_t*>(values.data());
        if (count == 0) return all;
        const size_t runs =
            kernels.expand_values(array, count, 77, 9, offsets.data(), lengths.data());
        const auto take = [&](size_t found) {
          const auto end = static_cast<std::ptrdiff_t>(found);
          all.insert(all.end(), offsets.begin(), offsets.begin() + end);
          all.insert(all.end(), lengths.begin(), lengths.begin() + end);
        };
        take(runs);
        // Any values form pairs, valid or not.
        kernels.expand_pairs(array, count / 2, 77, 9, offsets.data(), lengths.data());
        take(count / 2);
        all.push_back(kernels.check_pairs(array, count / 2));
        all.push_back(kernels.check_values(array, count) ? 1 : 0);
        std::swap(values[count / 2], values[0]);
        all.push_back(kernels.check_values(array, count) ? 1 : 0);
        return all;
      });
}

}  // namespace

int main(int argc, char** argv) {
  for (size_t round = 0; round < 400; ++round) {
    const size_t words = 2 + round % 200 + (round % 10 == 0 ? 300 : 0);
    const Words a = AnyWords(words);
    const Words b = round % 3 == 0 ? a : AnyWords(words);
    ExtractRuns(words, a, b);
    ListBlocks(words, a, b);
    CountAndLoadBits(words, a, b);
    CompareBlocks(a, b);
    Tuples(round % 150);
    SortedExtents(round % 90);
    Containers(1 + round % 100);
  }
  for (uint64_t pattern = 0; pattern < 65536; pattern += 1 + pattern % 3) {
    const Words a(1, pattern << (pattern % 4 * 16));
    ExtractRuns(1, a, Words(1, 0));
  }
  // The variants chosen here after the known-answer checks.
  for (const cbt::KernelInfo& kernel : cbt::ActiveKernels()) {
    std::printf("%s:", kernel.family.c_str());
    for (const std::string& level : ran[kernel.family]) std::printf(" %s", level.c_str());
    std::printf(" (in use: %s)\n", cbt::SimdLevelName(kernel.level));
    if (ran[kernel.family].empty()) return 1;
  }
  for (int i = 1; i < argc; ++i) {
    const std::string wanted = argv[i];
    const size_t at = wanted.find('=');
    const std::string family = wanted.substr(0, at);
    const std::string level = wanted.substr(at + 1);
    const bool must = level[0] != '!';
    if ((ran[family].count(must ? level : level.substr(1)) != 0) != must) {
      std::printf("%s: %s was %s\n", family.c_str(), level.c_str() + (must ? 0 : 1),
                  must ? "not run" : "run, on a processor that has it not");
      return 1;
    }
  }
  return 0;
}
