// Metadata of a call.
#ifndef CBT_RPC_CONTRACT_METADATA_H_
#define CBT_RPC_CONTRACT_METADATA_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cbt::rpc {

// Initial or trailing metadata of a call; keys in lower case.
using Metadata = std::vector<std::pair<std::string, std::string>>;

// The result of a lookup if the key occurs more than once. No key of ours has this value.
inline constexpr std::string_view kGivenTwice = "given more than once";

// The value of `key` in a range of pairs; kGivenTwice if there are several, even equal ones: some
// receivers use the first and some the last.
template <typename Pairs>
std::optional<std::string_view> FindOnly(const Pairs& metadata, std::string_view key) {
  std::optional<std::string_view> found;
  for (const auto& [name, value] : metadata) {
    if (std::string_view(name.data(), name.size()) != key) continue;
    if (found.has_value()) return kGivenTwice;
    found = std::string_view(value.data(), value.size());
  }
  return found;
}

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_METADATA_H_
