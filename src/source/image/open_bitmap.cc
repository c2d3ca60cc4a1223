// Opens dense bitmaps, and partclone images.
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/dense_bitmap.h"
#include "cbt/source/image.h"
#include "source/image/partclone.h"
#include "source/input/derived_inputs.h"
#include "source/open/openers.h"

namespace cbt {
namespace {

// A partclone image has a bitmap too, and says itself what that is.
absl::Status CheckPartclone(const SourceRequest& request, const DenseBitmapLayout& layout,
                            std::span<const uint8_t> first) {
  const std::string_view text(reinterpret_cast<const char*>(first.data()), first.size());
  if (!text.starts_with(kPartcloneMagic)) return absl::OkStatus();
  if (request.options().purpose == SourcePurpose::kDelta) {
    return CannotTell(request, "a partclone image holds what is allocated, not what changed");
  }
  constexpr std::string_view kRemedy =
      ": the format partclone (--from partclone) needs no numbers of yours";
  if (first.size() < kPartcloneHeaderBytes) return CannotTell(request, "its header is cut short");
  const absl::StatusOr<PartcloneHeader> header =
      ReadPartcloneHeader(first.first<kPartcloneHeaderBytes>(), request.label());
  if (!header.ok()) return header.status();
  const bool plain = layout.header_bytes == kPartcloneHeaderBytes && layout.first_bit == 0 &&
                     layout.format.order == BitmapFormat::BitOrder::kLeastSignificantFirst &&
                     layout.format.reversed_word_bytes == 1 && !layout.format.inverted;
  if (!plain || !header->has_bitmap) {
    return CannotTell(request,
                      absl::StrCat("partclone's bitmap does not lie like that", AbslView(kRemedy)));
  }
  if (layout.granularity != header->block_size ||
      BlockCount(*request.options().capacity, layout.granularity) != header->blocks) {
    return CannotTell(request,
                      absl::StrCat("partclone's header says ", header->blocks, " blocks of ",
                                   header->block_size, " bytes", AbslView(kRemedy)));
  }
  return absl::OkStatus();
}

// As many bytes as partclone's header has, or fewer at the end.
absl::StatusOr<std::vector<uint8_t>> FirstBytes(ByteStream& stream) {
  std::vector<uint8_t> bytes(kPartcloneHeaderBytes);
  const absl::StatusOr<size_t> count = stream.Peek(bytes);
  if (!count.ok()) return count.status();
  bytes.resize(*count);
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
  const absl::StatusOr<bool> once = request.IsReadOnce();
  if (!once.ok()) return once.status();
  absl::StatusOr<ByteStream*> stream = request.Stream();
  if (!stream.ok()) return stream.status();
  const bool base64 = request.Option("base64").has_value();
  const std::unique_ptr<ByteStream> decoded = base64 ? MakeBase64Stream(**stream) : nullptr;
  ByteStream& bits = base64 ? *decoded : **stream;
  const absl::StatusOr<std::vector<uint8_t>> first = FirstBytes(bits);
  if (!first.ok()) return first.status();
  if (status = CheckPartclone(request, layout, *first); !status.ok()) return status;
  if (base64 || *once) return OfCursor(ReadDenseBitmap(bits, false, layout, *options.capacity));
  absl::StatusOr<std::shared_ptr<const Image>> file = request.Image();
  if (!file.ok()) return file.status();
  return OfCursor(MakeDenseBitmapCursor(*std::move(file), layout, *options.capacity));
}

absl::StatusOr<OpenedSource> OpenPartcloneSource(SourceRequest& request) {
  if (request.options().purpose == SourcePurpose::kDelta) {
    return CannotTell(request, "a partclone image holds what is allocated, not what changed");
  }
  absl::StatusOr<ByteStream*> stream = request.Stream();
  if (!stream.ok()) return stream.status();
  return OfMap(ReadPartclone(**stream));
}

}  // namespace cbt
