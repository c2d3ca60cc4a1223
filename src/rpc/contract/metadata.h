// gRPC metadata of a call.
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

// The result of a lookup if the key occurs more than once. No key of ours has this value.
inline constexpr std::string_view kGivenTwice = "given more than once";

// The value of `key`; kGivenTwice if there are several, even equal ones: some receivers use the
// first and some the last.
inline std::optional<std::string_view> FindOnly(
    const std::multimap<grpc::string_ref, grpc::string_ref>& metadata, std::string_view key) {
  const auto [first, last] = metadata.equal_range(grpc::string_ref(key.data(), key.size()));
  if (first == last) return std::nullopt;
  if (std::next(first) != last) return kGivenTwice;
  return std::string_view(first->second.data(), first->second.size());
}

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_METADATA_H_
