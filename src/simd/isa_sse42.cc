// Every kernel body at level sse42. Its compiler flags and CPU features are in CMakeLists.txt.
#define CBT_ISA_NAMESPACE sse42
#define CBT_ISA_ARCH ::xsimd::sse4_2

#include "simd/compare_blocks_inl.h"
#include "simd/containers_inl.h"
#include "simd/count_bits_inl.h"
#include "simd/extract_runs_inl.h"
#include "simd/list_blocks_inl.h"
#include "simd/load_bits_inl.h"
#include "simd/tuples/check_tuples_inl.h"
#include "simd/tuples/digest_tuples_inl.h"
