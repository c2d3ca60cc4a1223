#include "source/input/derived_inputs.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "cbt/units.h"

namespace cbt {

namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

enum : uint8_t { kBlank = 64, kPadding = 65, kInvalid = 66 };

// The value of a digit, or what else a character is.
constexpr std::array<uint8_t, 256> ValuesOfCharacters() {
  std::array<uint8_t, 256> values{};
  values.fill(kInvalid);
  for (const char blank : std::string_view(" \t\r\n\v\f")) {
    values[static_cast<uint8_t>(blank)] = kBlank;
  }
  values[static_cast<uint8_t>('=')] = kPadding;
  for (size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<uint8_t>(kDigits[i])] = static_cast<uint8_t>(i);
  }
  return values;
}
constexpr std::array<uint8_t, 256> kValues = ValuesOfCharacters();

class Base64Stream final : public ByteStream {
 public:
  explicit Base64Stream(ByteStream& text) : ByteStream(text.label()), text_(text) {}

 private:
  absl::StatusOr<size_t> DoRead(std::span<uint8_t> out) override {
    size_t done = 0;
    while (done == 0) {
      if (used_ == filled_) {
        const absl::StatusOr<size_t> count = text_.Read(buffer_);
        if (!count.ok()) return count.status();
        used_ = 0;
        filled_ = *count;
        if (filled_ == 0) return Finish();
      }
      while (used_ < filled_ && done < out.size()) {
        const uint8_t value = kValues[buffer_[used_]];
        if (value == kBlank) {
          ++used_;
          continue;
        }
        if (value == kInvalid || (value == kPadding ? !TakesPadding() : padded_)) return Invalid();
        padded_ = padded_ || value == kPadding;
        ++used_;
        if (++digits_ == 4) digits_ = 0;
        if (padded_) continue;
        bits_ = (bits_ << 6 | value) & 0xffff;
        pending_ += 6;
        if (pending_ < 8) continue;
        pending_ -= 8;
        out[done++] = static_cast<uint8_t>(bits_ >> pending_);
      }
    }
    return done;
  }

  // Padding fills the last group of four, after two or three digits.
  bool TakesPadding() const noexcept { return digits_ >= 2; }

  absl::StatusOr<size_t> Finish() const {
    // One digit of a group is no byte, the rest of a byte must be zero, and padding complete.
    const bool rest = (bits_ & ((1u << pending_) - 1)) != 0;
    if (rest || (padded_ ? digits_ != 0 : digits_ == 1)) return Invalid();
    return size_t{0};
  }

  absl::Status Invalid() const {
    return absl::DataLossError(absl::StrCat(label(), ": invalid base64 at character ",
                                            text_.position() - (filled_ - used_)));
  }

  ByteStream& text_;
  std::array<uint8_t, 16 * kKiB> buffer_;
  size_t used_ = 0;
  size_t filled_ = 0;
  uint32_t bits_ = 0;     // the last `pending_` of them are not a byte yet
  uint32_t pending_ = 0;  // below 8
  uint32_t digits_ = 0;   // of the group of four, padding included
  bool padded_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> MakeBase64Stream(ByteStream& text) {
  return std::make_unique<Base64Stream>(text);
}

namespace {

constexpr size_t kPieceBytes = 256 * kKiB;

std::string TemporaryDirectory() {
  const char* const directory = std::getenv("TMPDIR");
  return directory == nullptr || *directory == '\0' ? "/tmp" : directory;
}

// Also on file systems without O_TMPFILE.
absl::StatusOr<OwnedDescriptor> MakeNamelessFile(const std::string& directory) {
  std::string path = directory + "/cbt-XXXXXX";
  OwnedDescriptor file(::mkostemp(path.data(), O_CLOEXEC));
  if (file.number() < 0) return FileError(directory, errno);
  if (::unlink(path.c_str()) != 0) return FileError(path, errno);
  return file;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> SpoolToFile(ByteStream& stream) {
  const std::string directory = TemporaryDirectory();
  absl::StatusOr<OwnedDescriptor> file = MakeNamelessFile(directory);
  if (!file.ok()) return file.status();
  std::vector<uint8_t> piece(kPieceBytes);
  for (;;) {
    const absl::StatusOr<size_t> count = stream.Read(piece);
    if (!count.ok()) return count.status();
    if (*count == 0) break;
    const int error = WriteAll(file->number(), std::span(piece).first(*count));
    if (error == ENOSPC || error == EDQUOT) {
      return absl::ResourceExhaustedError(
          absl::StrCat(stream.label(), ": ", directory,
                       " has no room for a copy of it: name a larger directory (TMPDIR)"));
    }
    if (error != 0) return FileError(directory, error);
  }
  return MappedFile::FromDescriptor(*std::move(file), stream.label());
}

}  // namespace cbt
