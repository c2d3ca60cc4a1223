// Opens dense bitmaps.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/dense_bitmap.h"
#include "cbt/source/image.h"
#include "source/open/openers.h"

namespace cbt {
namespace {

constexpr std::string_view kPartclone = "partclone-image";

// A partclone image holds the bitmap of what is allocated, after a magic number.
absl::Status CheckPartclone(const SourceRequest& request, std::string_view first) {
  if (request.options().purpose != SourcePurpose::kDelta || !first.starts_with(kPartclone)) {
    return absl::OkStatus();
  }
  return CannotTell(request, "a partclone image holds what is allocated, not what changed");
}

// Peeks at as many bytes as partclone's magic number has, or fewer at the end; decodes base64.
absl::StatusOr<std::string> FirstBytes(ByteStream& stream, bool base64) {
  std::string text(base64 ? ByteStream::kMaxPeek : kPartclone.size(), '\0');
  const absl::StatusOr<size_t> count =
      stream.Peek({reinterpret_cast<uint8_t*>(text.data()), text.size()});
  if (!count.ok()) return count.status();
  text.resize(*count);
  if (!base64) return text;
  std::erase_if(text, [](char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); });
  constexpr size_t kEncoded = kPartclone.size() / 3 * 4;
  static_assert(kPartclone.size() % 3 == 0);
  if (text.size() < kEncoded && *count == ByteStream::kMaxPeek) {
    return absl::DataLossError(
        absl::StrCat(stream.label(), ": base64 that begins with white space only"));
  }
  std::string bytes;
  if (!absl::Base64Unescape(text.substr(0, kEncoded), &bytes)) {
    return absl::DataLossError(absl::StrCat(stream.label(), ": invalid base64"));
  }
  return bytes;
}

}  // namespace

absl::StatusOr<OpenedSource> OpenBitmapSource(SourceRequest& request) {
  const SourceOptions& options = request.options();
  if (!options.capacity.has_value()) {
    return CannotTell(request,
                      "a dense bitmap does not hold the volume's size: give it (--capacity)");
  }
  DenseBitmapLayout layout = {.granularity = 0};
  uint64_t word = 1;
  absl::Status status = request.Number("granularity", kMaxGranularity, layout.granularity);
  if (status.ok()) status = request.Number("header", kMaxCapacity, layout.header_bytes);
  if (status.ok()) status = request.Number("first-bit", kMaxCapacity, layout.first_bit);
  if (status.ok()) status = request.Number("reversed-words", 8, word);
  bool msb = false;
  if (status.ok()) status = request.Choice("order", "lsb", "msb", msb);
  if (status.ok()) status = request.Choice("set", "changed", "same", layout.format.inverted);
  if (!status.ok()) return status;
  // What follows the volume's last bit is not read, so a size that is too large would pass.
  if (layout.granularity == 0) {
    return CannotTell(request,
                      "a dense bitmap does not hold the size of its blocks: give it "
                      "(bitmap:granularity=N)");
  }
  layout.format.reversed_word_bytes = static_cast<uint8_t>(word);
  if (msb) layout.format.order = BitmapFormat::BitOrder::kMostSignificantFirst;
  const bool base64 = request.Option("base64").has_value();
  const absl::StatusOr<bool> once = request.IsReadOnce();
  if (!once.ok()) return once.status();
  if (!base64 && !*once) {
    absl::StatusOr<std::shared_ptr<const Image>> file = request.Image();
    if (!file.ok()) return file.status();
    std::string first(kPartclone.size(), '\0');
    if ((*file)->size() >= first.size()) {
      absl::Status read = (*file)->Read(0, first.size(), reinterpret_cast<uint8_t*>(first.data()));
      if (!read.ok()) return read;
    }
    if (status = CheckPartclone(request, first); !status.ok()) return status;
    return OfCursor(MakeDenseBitmapCursor(*std::move(file), layout, *options.capacity));
  }
  absl::StatusOr<ByteStream*> stream = request.Stream();
  if (!stream.ok()) return stream.status();
  const absl::StatusOr<std::string> first = FirstBytes(**stream, base64);
  if (!first.ok()) return first.status();
  if (status = CheckPartclone(request, *first); !status.ok()) return status;
  return OfCursor(ReadDenseBitmap(**stream, base64, layout, *options.capacity));
}

}  // namespace cbt
