// The version of the library, which CMake reads from here, and the version of C++ that it needs.
// Every public header includes this one.
#ifndef CBT_VERSION_H_
#define CBT_VERSION_H_

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "libcbt needs C++20: compile with -std=c++20 or newer"
#endif

#define CBT_VERSION_MAJOR 0
#define CBT_VERSION_MINOR 1
#define CBT_VERSION_PATCH 0

namespace cbt {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace cbt

#endif  // CBT_VERSION_H_
