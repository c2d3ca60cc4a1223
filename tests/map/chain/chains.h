// Shorthands for tests of chains.
#ifndef CBT_TESTS_MAP_CHAIN_CHAINS_H_
#define CBT_TESTS_MAP_CHAIN_CHAINS_H_

#include <cstdint>
#include <set>
#include <string>

#include "cbt/change_chain.h"
#include "tests/map/maps.h"
#include "tests/support/status.h"

namespace cbt::test {

// The blocks that changed between two snapshots.
inline std::set<uint64_t> DeltaOf(const ChangeChain& chain, const std::string& base,
                                  const std::string& target) {
  const Blocks blocks = BlocksOf(*ValueOf(chain.Delta(base, target)));
  return {blocks.begin(), blocks.end()};
}

}  // namespace cbt::test

#endif  // CBT_TESTS_MAP_CHAIN_CHAINS_H_
