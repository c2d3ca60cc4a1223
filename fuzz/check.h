// Checks that no build option can switch off.
#ifndef CBT_FUZZ_CHECK_H_
#define CBT_FUZZ_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define CBT_FUZZ_CHECK(condition)                                                        \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#endif  // CBT_FUZZ_CHECK_H_
