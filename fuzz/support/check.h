// Checks that no build option can switch off.
#ifndef FUZZ_SUPPORT_CHECK_H_
#define FUZZ_SUPPORT_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define CBT_FUZZ_CHECK(condition)                                                        \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#endif  // FUZZ_SUPPORT_CHECK_H_
