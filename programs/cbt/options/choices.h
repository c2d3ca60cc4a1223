// Options that several commands have: named values, with one list for the check, the error and the
// shells' completions, and --block-size.
#ifndef CBT_PROGRAMS_CBT_OPTIONS_CHOICES_H_
#define CBT_PROGRAMS_CBT_OPTIONS_CHOICES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"

namespace cbt::cli {

// Refuses a value that is not one of `names`, and offers them to completions. If the option takes a
// list, checks each part of it. O(names) per value.
CLI::Validator IsOneOf(std::vector<std::string> names);

// Offers `names` to completions and accepts every value.
CLI::Validator Offers(const std::vector<std::string>& names);

// The values that the validators of `option` offer, in order; empty if it takes any value.
std::vector<std::string> OfferedBy(CLI::Option& option);

// Adds the option `name` for one of `choices`, pairs of a name and a value. `value` is assigned if
// the option is given, and must outlive the parsing.
template <typename Value, typename Assigned>
CLI::Option* AddChoiceOption(CLI::App& subcommand, const std::string& name, Assigned& value,
                             const std::vector<std::pair<std::string, Value>>& choices,
                             const char* what) {
  std::vector<std::string> names;
  for (const auto& [choice, unused] : choices) names.push_back(choice);
  return subcommand
      .add_option_function<std::string>(
          name,
          [choices, &value](const std::string& text) {
            for (const auto& [choice, meant] : choices) {
              if (choice == text) value = meant;
            }
          },
          what)
      ->check(IsOneOf(std::move(names)));
}

// `block_size` must outlive the parsing.
void AddBlockSizeOption(CLI::App& subcommand, std::optional<uint64_t>& block_size);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OPTIONS_CHOICES_H_
