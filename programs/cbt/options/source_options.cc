#include "programs/cbt/options/source_options.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
void AddBytesOption(CLI::App& subcommand, const std::string& name, std::optional<uint64_t>& bytes,
                    const char* what) {
  subcommand
      .add_option_function<std::string>(
          name,
          [name, &bytes](const std::string& text) {
            const absl::StatusOr<uint64_t> value = ParseNumber(text, kMaxCapacity);
            if (!value.ok()) throw CLI::ValidationError(name, MessageOf(value.status()));
            bytes = *value;
          },
          what)
      ->type_name("N");
}

CLI::Validator IsNotEmpty() {
  return {[](const std::string& text) { return text.empty() ? "is empty" : std::string(); }, ""};
}

void AddSourceInput(CLI::App& subcommand, SourceInput& input, bool delta) {
  std::vector<std::string> formats;
  for (const SourceFormatInfo& info : SourceFormats()) {
    if (delta || info.allocated) formats.emplace_back(info.name);
  }
  subcommand
      .add_option_function<std::string>(
          "--from",
          [&input](const std::string& text) {
            absl::StatusOr<SourceSpec> spec = ParseSourceSpec(text);
            if (!spec.ok()) throw CLI::ValidationError("--from", MessageOf(spec.status()));
            input.spec = *std::move(spec);
          },
          "Format of the input, if its content does not show it, and the format's options")
      ->type_name("FORMAT[:KEY=VALUE,...]")
      ->check(Offers(formats));
  AddBytesOption(subcommand, "--capacity", input.capacity,
                 "Size of the volume in bytes, for inputs that don't hold it");
  if (delta) {
    AddBytesOption(subcommand, "--base-capacity", input.base_capacity,
                   "Size of the base in bytes, if it was larger");
  }
}

SourceSpec WithBlockSize(SourceSpec spec, std::optional<uint64_t> block_size) {
  if (!spec.format.has_value() || !block_size.has_value()) return spec;
  const char* key = nullptr;
  if (*spec.format == SourceFormat::kRoaring64 || *spec.format == SourceFormat::kRoaring32) {
    key = "block-size";
  } else if (*spec.format == SourceFormat::kBitmap) {
    key = "granularity";
  } else {
    return spec;
  }
  const bool said = std::any_of(spec.options.begin(), spec.options.end(),
                                [key](const auto& option) { return option.first == key; });
  if (!said) spec.options.emplace_back(key, std::to_string(*block_size));
  return spec;
}

void NoteFormat(const SourceSpec& spec, const OpenedSource& source) {
  if (spec.format.has_value() || source.format == SourceFormat::kImage ||
      source.format == SourceFormat::kNbd) {
    return;
  }
  const SourceFormatInfo& info = InfoOf(source.format);
  Note("", std::string("read as ") + info.name + ": " + info.what +
               " (--from image reads the bytes of a volume instead)");
}

std::string FormatsText(std::optional<SourcePurpose> purpose) {
  std::string text =
      "Formats (* detected by content or address) and the options that --from takes:\n";
  for (const SourceFormatInfo& info : SourceFormats()) {
    if (purpose == SourcePurpose::kAllocated && !info.allocated) continue;
    std::string name = info.name;
    name.resize(16, ' ');
    text += (info.detected ? "* " : "  ") + name + info.what + "\n";
    std::string line;
    const std::string options = info.options;
    for (size_t at = 0; at < options.size();) {
      const size_t end = std::min(options.find(' ', at), options.size());
      const std::string option = options.substr(at, end - at);
      if (!line.empty() && line.size() + option.size() > 62) {
        text += std::string(20, ' ') + line + "\n";
        line.clear();
      }
      line += (line.empty() ? ":" : " ") + option;
      at = end + 1;
    }
    if (!line.empty()) text += std::string(20, ' ') + line + "\n";
  }
  return text;
}

}  // namespace cbt::cli
