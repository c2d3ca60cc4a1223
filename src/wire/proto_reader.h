// Reads the fields of a protobuf message one by one, without libprotobuf.
//
// The format is defined by the protobuf encoding guide (varints, tags, wire types 0 to 5). Accepts
// what libprotobuf's parser accepts: fields in any order, unknown fields, groups (skipped as a
// whole), overlong varints of up to ten bytes.
#ifndef CBT_WIRE_PROTO_READER_H_
#define CBT_WIRE_PROTO_READER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace cbt::wire {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

// A position in a message that the caller owns.
//
//   ProtoReader reader(bytes);
//   while (reader.Next()) {
//     if (reader.Is(1, WireType::kVarint)) id = reader.varint();
//   }
//   if (!reader.status().ok()) return reader.status();
class ProtoReader {
 public:
  // `base` is added to the byte positions in errors, for messages inside messages.
  explicit ProtoReader(std::span<const uint8_t> bytes, size_t base = 0) noexcept
      : bytes_(bytes), base_(base) {}

  // Moves to the next field, skipping the contents of the current one and any groups. False at the
  // end and on malformed bytes; status() distinguishes them.
  bool Next() noexcept;

  uint32_t field() const noexcept { return field_; }
  WireType wire_type() const noexcept { return type_; }
  bool Is(uint32_t field, WireType type) const noexcept { return field_ == field && type_ == type; }

  // Value of a field of type kVarint, kFixed64 or kFixed32.
  uint64_t varint() const noexcept { return value_; }
  // Contents of a field of type kBytes, and their position (including `base`).
  std::span<const uint8_t> bytes() const noexcept { return content_; }
  // The same as a string, not validated: see IsUtf8() (base/text.h).
  std::string_view text() const noexcept {
    return {reinterpret_cast<const char*>(content_.data()), content_.size()};
  }
  size_t content_position() const noexcept { return content_position_; }

  // The position of the next field, without `base`.
  size_t position() const noexcept { return position_; }

  // INVALID_ARGUMENT with the byte position and the reason after Next() stopped on malformed bytes.
  absl::Status status() const;

 private:
  bool Fail(const char* reason) noexcept;
  bool ReadVarint(uint64_t& value) noexcept;
  bool ReadValue() noexcept;
  bool ReadTag(uint32_t& tag) noexcept;
  bool SkipGroup() noexcept;

  std::span<const uint8_t> bytes_;
  size_t base_;
  size_t position_ = 0;
  size_t tag_position_ = 0;
  uint32_t field_ = 0;
  WireType type_ = WireType::kVarint;
  uint64_t value_ = 0;
  std::span<const uint8_t> content_;
  size_t content_position_ = 0;
  const char* error_ = nullptr;
};

}  // namespace cbt::wire

#endif  // CBT_WIRE_PROTO_READER_H_
