// The namespaces of the instruction-set levels. Each level's file defines the kernels of a family
// in its own namespace; these macros declare them.
//
// Contract header: instruction-set files include it, so nothing in it is inline.
#ifndef CBT_SIMD_LEVELS_H_
#define CBT_SIMD_LEVELS_H_

// Declares `name` in the namespace `level`.
#define CBT_DECLARE_AT_LEVEL(level, Kernels, name) \
  namespace level {                                \
  extern const Kernels name;                       \
  }

// Declares `name` at every level, compiled in or not.
#define CBT_DECLARE_AT_EVERY_LEVEL(Kernels, name) \
  CBT_DECLARE_AT_LEVEL(scalar, Kernels, name)     \
  CBT_DECLARE_AT_LEVEL(sse42, Kernels, name)      \
  CBT_DECLARE_AT_LEVEL(avx2, Kernels, name)       \
  CBT_DECLARE_AT_LEVEL(avx512, Kernels, name)     \
  CBT_DECLARE_AT_LEVEL(neon, Kernels, name)

#endif  // CBT_SIMD_LEVELS_H_
