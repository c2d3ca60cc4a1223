// The entry points of the kernels, for everything but instruction-set files: three per family. The
// first call chooses the variant (thread-safe), later calls cost an atomic load; callers that work
// on small pieces should keep the reference.
#ifndef CBT_SIMD_KERNELS_H_
#define CBT_SIMD_KERNELS_H_

#include <span>

#include "simd/check_tuples.h"
#include "simd/compare_blocks.h"
#include "simd/containers.h"
#include "simd/count_bits.h"
#include "simd/decode_tuples.h"
#include "simd/dispatch.h"
#include "simd/encode_tuples.h"
#include "simd/extract_runs.h"
#include "simd/load_bits.h"
#include "simd/sorted_extents.h"

namespace cbt::simd {

const ExtractRunsKernels& ExtractRuns() noexcept;
SimdLevel ExtractRunsLevel() noexcept;
std::span<const Variant<ExtractRunsKernels>> ExtractRunsVariants() noexcept;

const CompareBlocksKernels& CompareBlocks() noexcept;
SimdLevel CompareBlocksLevel() noexcept;
std::span<const Variant<CompareBlocksKernels>> CompareBlocksVariants() noexcept;

const EncodeTuplesKernels& EncodeTuples() noexcept;
SimdLevel EncodeTuplesLevel() noexcept;
std::span<const Variant<EncodeTuplesKernels>> EncodeTuplesVariants() noexcept;

const CountBitsKernels& CountBits() noexcept;
SimdLevel CountBitsLevel() noexcept;
std::span<const Variant<CountBitsKernels>> CountBitsVariants() noexcept;

const LoadBitsKernels& LoadBits() noexcept;
SimdLevel LoadBitsLevel() noexcept;
std::span<const Variant<LoadBitsKernels>> LoadBitsVariants() noexcept;

const DecodeTuplesKernels& DecodeTuples() noexcept;
SimdLevel DecodeTuplesLevel() noexcept;
std::span<const Variant<DecodeTuplesKernels>> DecodeTuplesVariants() noexcept;

const CheckTuplesKernels& CheckTuples() noexcept;
SimdLevel CheckTuplesLevel() noexcept;
std::span<const Variant<CheckTuplesKernels>> CheckTuplesVariants() noexcept;

const ContainersKernels& Containers() noexcept;
SimdLevel ContainersLevel() noexcept;
std::span<const Variant<ContainersKernels>> ContainersVariants() noexcept;

const SortedExtentsKernels& SortedExtentsInUse() noexcept;
SimdLevel SortedExtentsLevel() noexcept;
std::span<const Variant<SortedExtentsKernels>> SortedExtentsVariants() noexcept;

}  // namespace cbt::simd

#endif  // CBT_SIMD_KERNELS_H_
