// The oracle for portable 64-bit roaring bytes: parses them front to back, trusts nothing, and
// shares no code with the library. After https://github.com/RoaringBitmap/RoaringFormatSpec.
#ifndef CBT_TESTS_REFERENCE_PORTABLE_ROARING_H_
#define CBT_TESTS_REFERENCE_PORTABLE_ROARING_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cbt::reference {

class PortableRoaring {
 public:
  // The values of `bytes`; nullopt if they are not a valid bitmap.
  static std::optional<std::vector<uint64_t>> Decode(const std::vector<uint8_t>& bytes) {
    PortableRoaring reader(bytes);
    const uint64_t groups = reader.Number(8);
    uint64_t last = 0;
    for (uint64_t i = 0; i < groups && reader.sound_; ++i) {
      const uint64_t high = reader.Number(4);
      if (i > 0 && high <= last) reader.sound_ = false;
      last = high;
      reader.Group(high << 32);
    }
    if (!reader.sound_ || reader.at_ != bytes.size()) return std::nullopt;
    return reader.values_;
  }

 private:
  explicit PortableRoaring(const std::vector<uint8_t>& bytes) : bytes_(bytes) {}

  uint64_t Number(size_t size) {
    if (bytes_.size() - at_ < size) {
      sound_ = false;
      at_ = bytes_.size();
      return 0;
    }
    uint64_t number = 0;
    for (size_t i = 0; i < size; ++i) number |= uint64_t{bytes_[at_++]} << 8 * i;
    return number;
  }

  void Group(uint64_t high) {
    const size_t begin = at_;
    const uint64_t cookie = Number(4);
    const bool runs = (cookie & 0xffff) == 12347;
    if (!runs && cookie != 12346) sound_ = false;
    const uint64_t count = runs ? (cookie >> 16) + 1 : Number(4);
    if (count > 65536) sound_ = false;
    if (!sound_) return;
    std::vector<bool> is_run(count);
    for (uint64_t i = 0; runs && i < (count + 7) / 8 * 8 && sound_; i += 8) {
      const uint64_t flags = Number(1);
      for (uint64_t k = 0; k < 8; ++k) {
        if ((flags >> k & 1) == 0) continue;
        if (i + k >= count) {
          sound_ = false;
        } else {
          is_run[i + k] = true;
        }
      }
    }
    std::vector<uint64_t> keys;
    std::vector<uint64_t> cardinalities;
    for (uint64_t i = 0; i < count && sound_; ++i) {
      keys.push_back(Number(2));
      cardinalities.push_back(Number(2) + 1);
      if (i > 0 && keys[i] <= keys[i - 1]) sound_ = false;
    }
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; (!runs || count >= 4) && i < count && sound_; ++i) {
      offsets.push_back(Number(4));
    }
    for (uint64_t i = 0; i < count && sound_; ++i) {
      if (!offsets.empty() && offsets[i] != at_ - begin) sound_ = false;
      const size_t before = values_.size();
      const uint64_t base = high | keys[i] << 16;
      if (is_run[i]) {
        Runs(base);
      } else if (cardinalities[i] <= 4096) {
        for (uint64_t k = 0; k < cardinalities[i] && sound_; ++k) Append(base + Number(2));
      } else {
        for (uint64_t k = 0; k < 65536 && sound_; k += 64) {
          const uint64_t word = Number(8);
          for (uint64_t bit = 0; bit < 64; ++bit) {
            if ((word >> bit & 1) != 0) Append(base + k + bit);
          }
        }
      }
      if (values_.size() - before != cardinalities[i]) sound_ = false;
    }
  }

  void Runs(uint64_t base) {
    const uint64_t runs = Number(2);
    uint64_t floor = 0;
    for (uint64_t k = 0; k < runs && sound_; ++k) {
      const uint64_t first = Number(2);
      const uint64_t last = first + Number(2);
      if (first < floor || last > 65535) sound_ = false;
      for (uint64_t v = first; v <= last && sound_; ++v) Append(base + v);
      floor = last + 2;  // adjacent runs must be one
    }
  }

  void Append(uint64_t value) {
    if (!values_.empty() && value <= values_.back()) sound_ = false;
    values_.push_back(value);
  }

  const std::vector<uint8_t>& bytes_;
  size_t at_ = 0;
  bool sound_ = true;
  std::vector<uint64_t> values_;
};

}  // namespace cbt::reference

#endif  // CBT_TESTS_REFERENCE_PORTABLE_ROARING_H_
