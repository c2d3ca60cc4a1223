// Chains in directories that are open already: whatever a path names meanwhile, it is the same one.
#ifndef CBT_MAP_CHAIN_CHAIN_ACCESS_H_
#define CBT_MAP_CHAIN_CHAIN_ACCESS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/directory.h"
#include "cbt/change_chain.h"

namespace cbt {

// As ChangeChain::Create(), of arguments that are valid.
absl::StatusOr<std::unique_ptr<ChangeChain>> CreateChainIn(const Directory& directory,
                                                           const std::string& volume,
                                                           uint64_t granularity,
                                                           const ChainSnapshot& first,
                                                           const ChainOptions& options = {});
// The error of a directory without one.
absl::Status NoChain(std::string_view shown);

// As ChangeChain::Open().
absl::StatusOr<std::unique_ptr<ChangeChain>> OpenChainIn(const Directory& directory,
                                                         ChangeChain::Access access,
                                                         const ChainOptions& options = {});

}  // namespace cbt

#endif  // CBT_MAP_CHAIN_CHAIN_ACCESS_H_
