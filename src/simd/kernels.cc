// Which variant of each kernel family runs here.
#include "simd/kernels.h"

#include <vector>

#include "cbt/simd.h"

namespace cbt {

std::vector<KernelInfo> ActiveKernels() {
  return {
      {"extract_runs", simd::ExtractRunsLevel()},   {"compare_blocks", simd::CompareBlocksLevel()},
      {"count_bits", simd::CountBitsLevel()},       {"load_bits", simd::LoadBitsLevel()},
      {"list_blocks", simd::ListBlocksLevel()},     {"encode_tuples", simd::EncodeTuplesLevel()},
      {"decode_tuples", simd::DecodeTuplesLevel()}, {"check_tuples", simd::CheckTuplesLevel()},
      {"digest_tuples", simd::DigestTuplesLevel()}, {"sorted_extents", simd::SortedExtentsLevel()},
      {"split_extents", simd::SplitExtentsLevel()}, {"containers", simd::ContainersLevel()}};
}

}  // namespace cbt
