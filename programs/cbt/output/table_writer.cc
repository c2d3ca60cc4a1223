// A table for people, with a summary and a picture below it.

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "programs/cbt/output/extent_writer.h"
#include "programs/cbt/output/shades.h"
#include "programs/cbt/output/volume_picture.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

constexpr size_t kSizeColumn = 10;  // "1023.9 KiB"
constexpr std::string_view kGap = "  ";

char* PutRight(char* out, std::string_view text, size_t width) noexcept {
  for (size_t i = text.size(); i < width; ++i) *out++ = ' ';
  return PutText(out, text);
}

char* PutRight(char* out, uint64_t value, size_t width) noexcept {
  std::array<char, kMaxDigits> digits;
  const char* const end = PutNumber(digits.data(), value);
  return PutRight(out, {digits.data(), static_cast<size_t>(end - digits.data())}, width);
}

// "0.42 %"; a nonzero share never looks like zero.
std::string Percent(uint64_t part, uint64_t whole) {
  if (part == 0 || whole == 0) return "0 %";
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  if (percent < 0.01) return "less than 0.01 %";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f %%", percent);
  return text.data();
}

class TableWriter final : public ExtentWriter {
 public:
  TableWriter(Output& output, const WriterOptions& options)
      : output_(output),
        options_(options),
        picture_(options.capacity.value_or(0), options.starting_offset),
        column_(std::max(std::string_view("OFFSET").size(),
                         std::to_string(options.capacity.value_or(0)).size())) {}

  void Begin() override { PutRow("OFFSET", "LENGTH", "SIZE"); }

  void Write(const ExtentBatch& batch) override {
    for (size_t i = 0; i < batch.size(); ++i) {
      const Extent extent = batch[i];
      picture_.Add(extent);
      ++tuples_;
      // Blocks have one size per stream, and so do many extents of a backup.
      if (extent.length != last_length_) {
        last_length_ = extent.length;
        last_size_ = HumanSize(extent.length);
      }
      PutRow(extent.offset, extent.length, last_size_);
    }
  }

  void End() override {
    const bool blocks = options_.type == BlockMetadataType::kFixedLength;
    std::string text = "\n";
    text += std::to_string(tuples_) + (blocks ? " block" : " extent");
    if (tuples_ != 1) text += "s";
    if (!options_.capacity.has_value()) {
      output_.Append(text + " of a volume of unknown size\n");
      return;
    }
    text += ", " + HumanSize(picture_.bytes()) + " of " + HumanSize(*options_.capacity) + " ";
    text += options_.adjective;
    text += " (" + Percent(picture_.bytes(), *options_.capacity) + ")";
    if (options_.starting_offset != 0) {
      text += ", from offset " + std::to_string(options_.starting_offset) + " on";
    }
    output_.Append(text + "\n[" + picture_.Draw(options_.glyphs) + "]\n" +
                   ShadesLegend(options_.glyphs) + "\n");
  }

  void Fail(const absl::Status& reason) override {
    output_.Append("INCOMPLETE: " + OneLine(MessageOf(reason)) + "\n");
  }

 private:
  template <typename Value>
  void PutRow(Value offset, Value length, std::string_view size) {
    char* out = output_.Reserve(3 * (kGap.size() + kMaxDigits));
    out = PutRight(out, offset, column_);
    out = PutText(out, kGap);
    out = PutRight(out, length, column_);
    out = PutText(out, kGap);
    out = PutRight(out, size, kSizeColumn);
    *out++ = '\n';
    output_.Commit(out);
  }

  Output& output_;
  const WriterOptions options_;
  VolumePicture picture_;
  const size_t column_;
  uint64_t tuples_ = 0;
  uint64_t last_length_ = 0;
  std::string last_size_;
};

}  // namespace

std::unique_ptr<ExtentWriter> MakeTableWriter(Output& output, const WriterOptions& options) {
  return std::make_unique<TableWriter>(output, options);
}

}  // namespace cbt::cli
