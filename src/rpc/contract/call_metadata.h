// Looks up keys in what a server sent beside its messages.
#ifndef CBT_RPC_CONTRACT_CALL_METADATA_H_
#define CBT_RPC_CONTRACT_CALL_METADATA_H_

#include <grpcpp/support/string_ref.h>

#include <iterator>
#include <map>
#include <optional>
#include <string_view>

#include "rpc/contract/completeness.h"

namespace cbt::rpc {

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

#endif  // CBT_RPC_CONTRACT_CALL_METADATA_H_
