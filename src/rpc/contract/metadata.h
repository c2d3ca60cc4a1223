// What travels beside the messages of a call.
#ifndef CBT_RPC_CONTRACT_METADATA_H_
#define CBT_RPC_CONTRACT_METADATA_H_

#include <grpcpp/support/string_ref.h>

#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cbt::rpc {

// Initial or trailing metadata of a call; keys in lower case.
using Metadata = std::vector<std::pair<std::string, std::string>>;

// What a lookup finds where a key occurs more than once. It is no value of any of our keys.
inline constexpr std::string_view kGivenTwice = "given more than once";

// The value of `key`. kGivenTwice where there are more values than one, also equal ones: receivers
// that take the first and receivers that take the last would read different things.
inline std::optional<std::string_view> FindOnly(
    const std::multimap<grpc::string_ref, grpc::string_ref>& metadata, std::string_view key) {
  const auto [first, last] = metadata.equal_range(grpc::string_ref(key.data(), key.size()));
  if (first == last) return std::nullopt;
  if (std::next(first) != last) return kGivenTwice;
  return std::string_view(first->second.data(), first->second.size());
}

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_METADATA_H_
