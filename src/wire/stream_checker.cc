#include "absl/strings/str_cat.h"
#include "cbt/wire.h"
#include "core/absl_view.h"

namespace cbt {
namespace {

absl::Status Broken(uint64_t tuple_index, const Extent& tuple, std::string_view why) {
  return absl::DataLossError(absl::StrCat("metadata stream: tuple ", tuple_index, " (byte_offset ",
                                          tuple.offset, ", size_bytes ", tuple.length, ") ",
                                          AbslView(why)));
}

}  // namespace

absl::Status StreamChecker::Check(const MetadataMessage& message) {
  if (message.type == BlockMetadataType::kUnknown) {
    return absl::DataLossError(
        absl::StrCat("metadata stream: message ", messages_, " has no block_metadata_type"));
  }
  if (messages_ == 0) {
    type_ = message.type;
    capacity_ = message.capacity;
  } else if (message.type != type_ || message.capacity != capacity_) {
    return absl::DataLossError(absl::StrCat(
        "metadata stream: message ", messages_, " says ",
        AbslView(BlockMetadataTypeName(message.type)), " and capacity ", message.capacity,
        " after ", AbslView(BlockMetadataTypeName(type_)), " and ", capacity_));
  }
  if (max_results_ != 0 && message.tuples.size() > max_results_) {
    return absl::DataLossError(absl::StrCat("metadata stream: message ", messages_, " has ",
                                            message.tuples.size(), " tuples, max_results is ",
                                            max_results_));
  }
  for (const Extent& tuple : message.tuples) {
    if (tuple.length == 0) return Broken(tuples_, tuple, "is empty");
    if (tuple.offset >= capacity_) {
      return Broken(tuples_, tuple, absl::StrCat("starts past the capacity ", capacity_));
    }
    if (tuples_ != 0 && tuple.offset < end_) {
      return Broken(tuples_, tuple, absl::StrCat("starts before the end ", end_, " of the last"));
    }
    if (tuple.end() <= starting_offset_) {
      return Broken(tuples_, tuple,
                    absl::StrCat("ends at or before the starting offset ", starting_offset_));
    }
    if (type_ == BlockMetadataType::kFixedLength) {
      if (block_size_ == 0) block_size_ = tuple.length;
      if (tuple.length != block_size_) {
        return Broken(tuples_, tuple, absl::StrCat("in a FIXED_LENGTH stream of ", block_size_));
      }
    } else if (tuple.end() > capacity_) {
      return Broken(tuples_, tuple, absl::StrCat("ends past the capacity ", capacity_));
    }
    end_ = tuple.end();
    bytes_ += tuple.length;
    ++tuples_;
  }
  ++messages_;
  return absl::OkStatus();
}

}  // namespace cbt
