#include "programs/cbt/options/choices.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

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

}  // namespace cbt::cli
