#include "rpc/server/packed_extents.h"

#include <bit>
#include <utility>

namespace cbt::rpc {
namespace {

size_t PackedSize(uint64_t value) {
  return (static_cast<size_t>(std::bit_width(value | 1)) + 6) / 7;
}

void Put(uint64_t value, uint8_t*& at) {
  for (; value >= 0x80; value >>= 7) *at++ = static_cast<uint8_t>(value | 0x80);
  *at++ = static_cast<uint8_t>(value);
}

uint64_t Take(const uint8_t*& at) {
  uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const uint8_t byte = *at++;
    value |= uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
}

// The two numbers of each extent. The distance wraps around for extents out of order.
template <typename Visit>
void ForEachNumber(const ExtentBatch& batch, size_t from, const Visit& visit) {
  uint64_t end = 0;
  for (size_t i = from; i < batch.size(); ++i) {
    visit(batch[i].offset - end);
    visit(batch[i].length);
    end = batch[i].offset + batch[i].length;
  }
}

}  // namespace

void PackedExtents::Pack(const ExtentBatch& batch, size_t from) {
  size_t size = 0;
  ForEachNumber(batch, from, [&](uint64_t value) { size += PackedSize(value); });
  std::unique_ptr<uint8_t[]> bytes(new uint8_t[size]);
  uint8_t* at = bytes.get();
  ForEachNumber(batch, from, [&](uint64_t value) { Put(value, at); });
  bytes_ = std::move(bytes);
  count_ = batch.size() - from;
}

void PackedExtents::UnpackTo(ExtentBatch& batch) noexcept {
  const uint8_t* at = bytes_.get();
  uint64_t end = 0;
  for (; count_ > 0; --count_) {
    const uint64_t offset = end + Take(at);
    const uint64_t length = Take(at);
    batch.push_back({offset, length});
    end = offset + length;
  }
  bytes_.reset();
}

}  // namespace cbt::rpc
