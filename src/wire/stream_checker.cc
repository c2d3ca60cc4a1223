#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/extent.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/message.h"
#include "simd/kernels.h"

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
  // 0 is omitted on the wire, so it can't be distinguished from a missing field.
  if (message.capacity == 0) {
    return absl::DataLossError(absl::StrCat(
        "metadata stream: message ", messages_,
        ": volume_capacity_bytes is missing or 0, as in a message that was never filled in"));
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
  const TupleList& tuples = message.tuples;
  if (!tuples.empty()) {
    const bool fixed = type_ == BlockMetadataType::kFixedLength;
    const uint64_t size = block_size_ != 0 ? block_size_ : tuples.front().length;
    const simd::TupleRules rules{tuples_ == 0 ? 0 : end_, capacity_,
                                 fixed ? kMaxCapacity : capacity_, fixed ? size : 0};
    const simd::TupleCheck check = simd::CheckTuples().check(
        tuples.offsets().data(), tuples.lengths().data(), tuples.size(), rules);
    if (check.sound && tuples.front().end() > starting_offset_) {
      if (fixed) block_size_ = size;
      end_ = tuples.back().end();
      bytes_ += check.bytes;
      tuples_ += tuples.size();
    } else if (absl::Status status = CheckOneByOne(tuples); !status.ok()) {
      return status;
    }
  }
  ++messages_;
  return absl::OkStatus();
}

absl::Status StreamChecker::CheckOneByOne(const TupleList& tuples) {
  for (size_t i = 0; i < tuples.size(); ++i) {
    const Extent tuple = tuples[i];
    if (tuple.length == 0) return Broken(tuples_, tuple, "is empty");
    if (tuple.offset >= capacity_) {
      return Broken(tuples_, tuple, absl::StrCat("starts past the capacity ", capacity_));
    }
    // The last block may extend past the capacity, and so past kMaxCapacity, but only to its own
    // end. Beyond 2^63, rounding an end up could wrap to 0.
    if (tuple.length > kMaxCapacity + 1 - tuple.offset) {
      return Broken(tuples_, tuple, "ends past the largest possible volume");
    }
    if (tuples_ != 0 && tuple.offset < end_) {
      return Broken(tuples_, tuple,
                    absl::StrCat("starts before the end ", end_, " of the previous tuple"));
    }
    if (tuple.end() <= starting_offset_) {
      return Broken(tuples_, tuple,
                    absl::StrCat("ends at or before the starting offset ", starting_offset_));
    }
    if (type_ == BlockMetadataType::kFixedLength) {
      if (block_size_ == 0) block_size_ = tuple.length;
      if (tuple.length != block_size_) {
        return Broken(tuples_, tuple,
                      absl::StrCat("in a FIXED_LENGTH stream with block size ", block_size_));
      }
    } else if (tuple.end() > capacity_) {
      return Broken(tuples_, tuple, absl::StrCat("ends past the capacity ", capacity_));
    }
    end_ = tuple.end();
    bytes_ += tuple.length;
    ++tuples_;
  }
  return absl::OkStatus();
}

}  // namespace cbt
