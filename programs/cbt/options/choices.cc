#include "programs/cbt/options/choices.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cbt/extent.h"
#include "cbt/source/image.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

namespace {

// The parser's options cannot carry data of ours, but its validators have names.
constexpr std::string_view kOffers = "offers:";

std::string NameFor(const std::vector<std::string>& names) {
  return std::string(kOffers) + absl::StrJoin(names, ",");
}

}  // namespace

CLI::Validator IsOneOf(std::vector<std::string> names) {
  std::string name = NameFor(names);
  return {[names = std::move(names)](const std::string& text) {
            if (std::ranges::find(names, text) != names.end()) return std::string();
            return "'" + text + "': not one of " + absl::StrJoin(names, ", ");
          },
          "", std::move(name)};
}

CLI::Validator Offers(const std::vector<std::string>& names) {
  return {[](const std::string&) { return std::string(); }, "", NameFor(names)};
}

std::vector<std::string> OfferedBy(CLI::Option& option) {
  for (int index = 0;; ++index) {
    const CLI::Validator* validator = nullptr;
    try {
      validator = option.get_validator(index);
    } catch (const CLI::OptionNotFound&) {
      return {};  // this is the parser's only sign that it was the last one
    }
    const std::string& name = validator->get_name();
    if (!name.starts_with(kOffers)) continue;
    return absl::StrSplit(name.substr(kOffers.size()), ',');
  }
}

void AddBlockSizeOption(CLI::App& subcommand, std::optional<uint64_t>& block_size) {
  const std::string name = "--block-size";
  subcommand
      .add_option_function<std::string>(
          "-b," + name,
          [name, &block_size](const std::string& text) {
            const absl::StatusOr<uint64_t> value = ParseNumber(text, kMaxCapacity);
            if (!value.ok()) throw CLI::ValidationError(name, MessageOf(value.status()));
            if (!IsPowerOfTwo(*value) || *value < kMinImageBlockSize ||
                *value > kMaxImageBlockSize) {
              throw CLI::ValidationError(name,
                                         "'" + text + "': not a power of two from 512 to 64M");
            }
            block_size = *value;
          },
          "Granularity in bytes, a power of two from 512 to 64M")
      ->type_name("N")
      ->default_str("4096");
}

}  // namespace cbt::cli
