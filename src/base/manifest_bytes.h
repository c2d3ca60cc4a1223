// The common format of the manifests of chains and trackers: eight bytes that name the kind, major
// and minor version, fields, and the checksum of everything before it.
#ifndef CBT_BASE_MANIFEST_BYTES_H_
#define CBT_BASE_MANIFEST_BYTES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt {

// A kind of manifest.
struct ManifestKind {
  std::array<uint8_t, 8> magic;
  uint16_t major;
  uint16_t minor;
  const char* owner;          // in messages: "chain"
  uint16_t oldest_major = 1;  // the oldest that is still read
};

// A file that a manifest names. Its name contains `number`, which is never reused; 0: none.
struct ManifestFile {
  uint64_t number = 0;
  uint64_t checksum = 0;  // of its header, which holds the checksums of everything else

  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

class ManifestWriter {
 public:
  explicit ManifestWriter(const ManifestKind& kind);

  template <typename T>
  void Number(T number) {
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(number));
    std::memcpy(bytes_.data() + at, &number, sizeof(number));
  }
  void Text(const std::string& text);
  void File(const ManifestFile& file);

  std::vector<uint8_t> Finish() &&;

 private:
  std::vector<uint8_t> bytes_;
};

// Reads the fields of a manifest whose checksum matches. Reading past its end, or a text that can't
// be a name, makes the reader unsound; numbers are 0 then.
class ManifestReader {
 public:
  // Errors: INVALID_ARGUMENT for anything but such a manifest, DATA_LOSS with the offset for a
  //         damaged one, UNIMPLEMENTED for a major version that is not read. `name` is for
  //         messages, here and later.
  static absl::StatusOr<ManifestReader> Open(std::span<const uint8_t> bytes,
                                             const ManifestKind& kind, std::string_view name);

  template <typename T>
  T Number() {
    T number = 0;
    if (bytes_.size() - at_ < sizeof(number)) {
      sound_ = false;
      return 0;
    }
    std::memcpy(&number, bytes_.data() + at_, sizeof(number));
    at_ += sizeof(number);
    return number;
  }
  std::string Text();
  ManifestFile File();

  uint16_t major() const noexcept { return major_; }
  size_t at() const noexcept { return at_; }
  bool sound() const noexcept { return sound_; }
  // True if exactly everything was read.
  bool ended() const noexcept { return sound_ && at_ == bytes_.size(); }

  // DATA_LOSS for the field at `at`.
  absl::Status Damaged(size_t at, std::string_view why) const;

 private:
  ManifestReader(std::span<const uint8_t> bytes, size_t at, std::string_view name)
      : bytes_(bytes), at_(at), name_(name) {}

  std::span<const uint8_t> bytes_;  // without the checksum
  size_t at_ = 0;
  uint16_t major_ = 0;
  bool sound_ = true;
  std::string name_;
};

uint64_t Checksum(std::span<const uint8_t> bytes) noexcept;

}  // namespace cbt

#endif  // CBT_BASE_MANIFEST_BYTES_H_
