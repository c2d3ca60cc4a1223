// XXH3, 64 bits (https://github.com/Cyan4973/xxHash): detects damage by hardware and by mistakes,
// not deliberate changes.
#ifndef CBT_BASE_CHECKSUM_H_
#define CBT_BASE_CHECKSUM_H_

#include <cstdint>
#include <span>

namespace cbt {

uint64_t Checksum(std::span<const uint8_t> bytes) noexcept;

}  // namespace cbt

#endif  // CBT_BASE_CHECKSUM_H_
