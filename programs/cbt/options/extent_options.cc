#include "programs/cbt/options/extent_options.h"

#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "cbt/source/image.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

// The value of a numeric option; throws the exception that ends parsing.
uint64_t NumberOf(const std::string& option, const std::string& text, uint64_t max) {
  const absl::StatusOr<uint64_t> value = ParseNumber(text, max);
  if (!value.ok()) throw CLI::ValidationError(option, MessageOf(value.status()));
  return *value;
}

}  // namespace

void AddStyleOption(CLI::App& subcommand, std::optional<BlockMetadataType>& type) {
  AddChoiceOption<BlockMetadataType>(subcommand, "--style", type,
                                     {{"extents", BlockMetadataType::kVariableLength},
                                      {"blocks", BlockMetadataType::kFixedLength}},
                                     "Maximal extents, or blocks of one size: extents, blocks")
      ->type_name("STYLE")
      ->default_str("extents");
}

void ShowOtherDefault(CLI::App& subcommand, const std::string& option, const std::string& what) {
  CLI::Option* const shown = subcommand.get_option(option);
  shown->default_str("");
  shown->description(shown->get_description() + "; default: " + what);
}

void AddExtentOptions(CLI::App& subcommand, ExtentOptions& options) {
  AddBlockSizeOption(subcommand, options.block_size);
  AddStyleOption(subcommand, options.type);

  const std::string offset = "--starting-offset";
  subcommand
      .add_option_function<std::string>(
          offset,
          [offset, &options](const std::string& text) {
            options.starting_offset = NumberOf(offset, text, kMaxCapacity);
          },
          "Start at this offset (bytes), such as the end of a broken stream's last tuple")
      ->type_name("N")
      ->default_str("0");

  const std::string results = "--max-results";
  subcommand
      .add_option_function<std::string>(
          results,
          [results, &options](const std::string& text) {
            constexpr uint64_t kMost = std::numeric_limits<int32_t>::max();
            options.max_results = static_cast<int32_t>(NumberOf(results, text, kMost));
          },
          "Tuples per message (list), or per object of --format json; 0: the choice of "
          "the server or the tool")
      ->type_name("N")
      ->default_str("0");

  AddChoiceOption<Format>(subcommand, "-f,--format", options.format,
                          {{"ndjson", Format::kNdjson},
                           {"json", Format::kJson},
                           {"csv", Format::kCsv},
                           {"table", Format::kTable}},
                          "ndjson, json, csv or table; table on a terminal, else ndjson")
      ->type_name("FORMAT");
}

}  // namespace cbt::cli
