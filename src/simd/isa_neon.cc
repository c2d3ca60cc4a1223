// Every kernel body at level neon (64-bit ARM).
#define CBT_ISA_NAMESPACE neon
#define CBT_ISA_ARCH ::xsimd::neon64

#include "simd/compare_blocks_inl.h"
#include "simd/containers_inl.h"
#include "simd/count_bits_inl.h"
#include "simd/extract_runs_inl.h"
#include "simd/list_blocks_inl.h"
#include "simd/load_bits_inl.h"
#include "simd/tuples/check_tuples_inl.h"
#include "simd/tuples/digest_tuples_inl.h"
