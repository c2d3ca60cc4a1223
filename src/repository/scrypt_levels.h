// scrypt's lanes, several at a time, by the instruction set that it takes.
#ifndef CBT_REPOSITORY_SCRYPT_LEVELS_H_
#define CBT_REPOSITORY_SCRYPT_LEVELS_H_

#include <cstddef>
#include <cstdint>

namespace cbt::repository {

// scryptROMix of `count` lanes of 128 * r bytes, in place. `memory` has room for n + 2 times as
// much, from a multiple of 64 bytes on. `count`: 1 or 2; for AVX-512 also 4.
void MixLanesAvx2(size_t count, uint8_t* lanes, uint64_t n, size_t r, void* memory);
void MixLanesAvx512(size_t count, uint8_t* lanes, uint64_t n, size_t r, void* memory);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_SCRYPT_LEVELS_H_
