// scrypt with the instructions of avx2, whose flags are in CMakeLists.txt.
#include <cstddef>
#include <cstdint>

#define CBT_SCRYPT_NAMESPACE scrypt_avx2
#include "repository/scrypt_lanes_inl.h"

namespace cbt::repository {

void MixLanesAvx2(size_t count, uint8_t* lanes, uint64_t n, size_t r, void* memory) {
  if (count == 1) scrypt_avx2::MixLanes<1>(lanes, n, r, memory);
  if (count == 2) scrypt_avx2::MixLanes<2>(lanes, n, r, memory);
}

}  // namespace cbt::repository
