// How a stream reports ranges: as blocks of one size, or as extents.
#ifndef CBT_METADATA_TYPE_H_
#define CBT_METADATA_TYPE_H_

#include <cstdint>
#include <string_view>

#include "cbt/version.h"

namespace cbt {

// Values as on the wire.
enum class BlockMetadataType : int32_t {
  kUnknown = 0,
  kFixedLength = 1,     // every tuple of a stream has the same size
  kVariableLength = 2,  // extents
};

// "FIXED_LENGTH", "VARIABLE_LENGTH" or "UNKNOWN".
std::string_view BlockMetadataTypeName(BlockMetadataType type) noexcept;

}  // namespace cbt

#endif  // CBT_METADATA_TYPE_H_
