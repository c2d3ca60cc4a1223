#include "wire/proto_reader.h"

#include "absl/strings/str_cat.h"

namespace cbt::wire {
namespace {

// libprotobuf's limit; deeper nesting is an attack.
constexpr int kMaxGroupDepth = 100;

}  // namespace

bool ProtoReader::Fail(const char* reason) noexcept {
  error_ = reason;
  return false;
}

bool ProtoReader::ReadVarint(uint64_t& value) noexcept {
  value = 0;
  for (unsigned shift = 0; shift < 70; shift += 7) {
    if (position_ == bytes_.size()) return Fail("the message ends inside a varint");
    const uint8_t byte = bytes_.data()[position_++];
    // Only one bit of the tenth byte fits; libprotobuf drops the others too.
    if (shift < 64) value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return true;
  }
  return Fail("a varint has more than ten bytes");
}

// For fields other than groups.
bool ProtoReader::ReadValue() noexcept {
  if (type_ == WireType::kVarint) return ReadVarint(value_);
  if (type_ == WireType::kFixed64 || type_ == WireType::kFixed32) {
    const size_t width = type_ == WireType::kFixed64 ? 8 : 4;
    if (bytes_.size() - position_ < width) return Fail("the message ends inside a fixed field");
    value_ = 0;
    for (size_t i = 0; i < width; ++i) {
      value_ |= uint64_t{bytes_.data()[position_ + i]} << (8 * i);
    }
    position_ += width;
    return true;
  }
  if (type_ != WireType::kBytes) return Fail("unknown wire type");
  // Like libprotobuf, accepts lengths of up to five bytes.
  constexpr size_t kMaxLengthBytes = 5;
  const size_t begin = position_;
  uint64_t length = 0;
  if (!ReadVarint(length)) return false;
  if (position_ - begin > kMaxLengthBytes) return Fail("a length of more than five bytes");
  if (length > bytes_.size() - position_) {
    return Fail("a field is longer than the rest of the message");
  }
  content_ = bytes_.subspan(position_, static_cast<size_t>(length));
  content_position_ = base_ + position_;
  position_ += static_cast<size_t>(length);
  return true;
}

// Accepts tags of up to five bytes, like libprotobuf; unlike it, rejects those of more than 32
// bits.
bool ProtoReader::ReadTag(uint32_t& tag) noexcept {
  constexpr size_t kMaxTagBytes = 5;
  const size_t begin = position_;
  uint64_t value = 0;
  if (!ReadVarint(value)) return false;
  if (position_ - begin > kMaxTagBytes || value > UINT32_MAX || value >> 3 == 0) {
    return Fail("invalid field number");
  }
  tag = static_cast<uint32_t>(value);
  return true;
}

bool ProtoReader::SkipGroup() noexcept {
  uint32_t open[kMaxGroupDepth];
  int depth = 0;
  open[depth++] = field_;
  while (depth > 0) {
    if (position_ == bytes_.size()) return Fail("the message ends inside a group");
    uint32_t tag = 0;
    if (!ReadTag(tag)) return false;
    type_ = static_cast<WireType>(tag & 7);
    const uint32_t field = tag >> 3;
    if (type_ == WireType::kStartGroup) {
      if (depth == kMaxGroupDepth) return Fail("groups are nested too deeply");
      open[depth++] = field;
    } else if (type_ == WireType::kEndGroup) {
      if (open[--depth] != field) return Fail("end of a group that was not started");
    } else if (!ReadValue()) {
      return false;
    }
  }
  return true;
}

bool ProtoReader::Next() noexcept {
  if (error_ != nullptr) return false;
  while (position_ < bytes_.size()) {
    tag_position_ = position_;
    uint32_t tag = 0;
    if (!ReadTag(tag)) return false;
    field_ = tag >> 3;
    type_ = static_cast<WireType>(tag & 7);
    if (type_ == WireType::kEndGroup) return Fail("end of a group that was not started");
    if (type_ != WireType::kStartGroup) return ReadValue();
    if (!SkipGroup()) return false;
  }
  return false;
}

absl::Status ProtoReader::status() const {
  if (error_ == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("malformed protobuf at byte ", base_ + tag_position_, ": ", error_));
}

}  // namespace cbt::wire
