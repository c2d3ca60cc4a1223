// Every kernel body at level avx512. Its compiler flags and CPU features are in CMakeLists.txt.
#define CBT_ISA_NAMESPACE avx512
#define CBT_ISA_ARCH ::xsimd::avx512bw

#include "simd/compare_blocks_inl.h"
#include "simd/containers_avx512_inl.h"
#include "simd/count_bits_inl.h"
#include "simd/extract_runs_inl.h"
#include "simd/list_blocks_inl.h"
#include "simd/load_bits_inl.h"
#include "simd/tuples/check_tuples_inl.h"
#include "simd/tuples/decode_tuples_avx512_inl.h"
#include "simd/tuples/digest_tuples_avx512_inl.h"
#include "simd/tuples/encode_tuples_avx512_inl.h"
#include "simd/tuples/sorted_extents_avx512_inl.h"
#include "simd/tuples/split_extents_avx512_inl.h"
