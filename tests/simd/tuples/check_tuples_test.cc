#include <gtest/gtest.h>

#include "simd/kernels.h"
#include "tests/support/variants.h"

namespace cbt {
namespace check_tuples_test {

using simd::CheckTuplesKernels;
using simd::TupleCheck;
using simd::TupleRules;

class CheckTuplesTest : public test::VariantTest<CheckTuplesKernels> {};

// The header's rules, tuple by tuple.
bool Sound(const std::vector<uint64_t>& offsets, const std::vector<uint64_t>& lengths,
           const TupleRules& rules) {
  uint64_t floor = rules.floor;
  for (size_t i = 0; i < offsets.size(); ++i) {
    const uint64_t end = offsets[i] + lengths[i];
    if (offsets[i] < floor || offsets[i] >= rules.capacity || end > rules.most_end) return false;
    if (offsets[i] > INT64_MAX || lengths[i] > INT64_MAX) return false;
    if (lengths[i] == 0 || (rules.size != 0 && lengths[i] != rules.size)) return false;
    floor = end;
  }
  return true;
}

TEST_P(CheckTuplesTest, FindsEveryFaultAtEveryPlace) {
  for (size_t count = 0; count < 40; ++count) {
    for (size_t at = 0; at <= count; ++at) {
      for (int fault = 0; fault < 11; ++fault) {
        std::vector<uint64_t> offsets;
        std::vector<uint64_t> lengths;
        for (size_t i = 0; i < count; ++i) {
          offsets.push_back(100 + 10 * i);
          lengths.push_back(10);
        }
        // The index past the last tuple: no fault.
        if (at < count) {
          switch (fault) {
            case 0:
              lengths[at] = 0;
              break;
            case 1:
              lengths[at] = 11;
              break;
            case 2:
              offsets[at] -= 1;
              break;
            case 3:
              offsets[at] = 1'000'000;
              break;
            case 4:
              lengths[at] = INT64_MAX;
              break;
            case 5:
              offsets[at] = INT64_MAX;
              break;
            case 6:
              offsets[at] = lengths[at] = INT64_MAX;
              break;
            case 7:
              offsets[at] = uint64_t{1} << 63 | (100 + 10 * at);
              break;
            case 8:
              lengths[at] = uint64_t{1} << 63 | 10;
              break;
            case 9:
              // Ends where it should, if that wraps.
              offsets[at] = UINT64_MAX - 9;
              lengths[at] = 120 + 10 * at;
              break;
            default:
              lengths[at] = 9;
              break;
          }
        }
        const uint64_t end = 100 + 10 * count;
        for (const TupleRules& rules :
             {TupleRules{0, end, end, 0}, TupleRules{100, end, INT64_MAX, 10},
              TupleRules{101, end, end, 0}, TupleRules{0, INT64_MAX, INT64_MAX, 0},
              TupleRules{0, end - 10, end, 0}, TupleRules{0, end, end - 1, 0}}) {
          uint64_t bytes = 0;
          uint64_t bits = 0;
          for (const uint64_t length : lengths) bytes += length;
          for (const uint64_t offset : offsets) bits |= offset;
          const TupleCheck check = kernels().check(offsets.data(), lengths.data(), count, rules);
          ASSERT_EQ(check.sound, Sound(offsets, lengths, rules))
              << count << ' ' << at << ' ' << fault;
          ASSERT_EQ(check.bytes, bytes);
          ASSERT_EQ(check.offset_bits, bits);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, CheckTuplesTest,
                         testing::ValuesIn(test::AsVector(simd::CheckTuplesVariants())),
                         test::VariantName<CheckTuplesKernels>);

}  // namespace check_tuples_test
}  // namespace cbt
