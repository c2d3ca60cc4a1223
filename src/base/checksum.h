// XXH3, 64 bits (https://github.com/Cyan4973/xxHash): finds what hardware and mistakes do to bytes,
// not what somebody does on purpose.
#ifndef CBT_BASE_CHECKSUM_H_
#define CBT_BASE_CHECKSUM_H_

#include <cstdint>
#include <span>

namespace cbt {

uint64_t Checksum(std::span<const uint8_t> bytes) noexcept;

}  // namespace cbt

#endif  // CBT_BASE_CHECKSUM_H_
