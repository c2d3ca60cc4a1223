// The kernel families, for everything but instruction-set files: the entry points, three per
// family. The first call of an entry point chooses (thread-safe), later calls cost an atomic load;
// callers that work on small pieces should keep the reference.
#ifndef CBT_SIMD_KERNELS_H_
#define CBT_SIMD_KERNELS_H_

#include "simd/compare_blocks.h"
#include "simd/containers.h"
#include "simd/count_bits.h"
#include "simd/dispatch/variants.h"
#include "simd/extract_runs.h"
#include "simd/list_blocks.h"
#include "simd/load_bits.h"
#include "simd/tuples/check_tuples.h"
#include "simd/tuples/decode_tuples.h"
#include "simd/tuples/digest_tuples.h"
#include "simd/tuples/encode_tuples.h"
#include "simd/tuples/sorted_extents.h"
#include "simd/tuples/split_extents.h"

namespace cbt::simd {

CBT_DECLARE_KERNELS(ExtractRuns)
CBT_DECLARE_KERNELS(CompareBlocks)
CBT_DECLARE_KERNELS(EncodeTuples)
CBT_DECLARE_KERNELS(CountBits)
CBT_DECLARE_KERNELS(LoadBits)
CBT_DECLARE_KERNELS(ListBlocks)
CBT_DECLARE_KERNELS(DecodeTuples)
CBT_DECLARE_KERNELS(CheckTuples)
CBT_DECLARE_KERNELS(DigestTuples)
CBT_DECLARE_KERNELS(Containers)
CBT_DECLARE_KERNELS(SortedExtents)
CBT_DECLARE_KERNELS(SplitExtents)

}  // namespace cbt::simd

#endif  // CBT_SIMD_KERNELS_H_
