// The version of the library. CMake reads it from here.
#ifndef CBT_VERSION_H_
#define CBT_VERSION_H_

#define CBT_VERSION_MAJOR 0
#define CBT_VERSION_MINOR 1
#define CBT_VERSION_PATCH 0

namespace cbt {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace cbt

#endif  // CBT_VERSION_H_
