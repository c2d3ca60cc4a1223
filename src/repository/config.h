// The file `config` of a repository.
#ifndef CBT_REPOSITORY_CONFIG_H_
#define CBT_REPOSITORY_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "repository/id.h"

namespace cbt::repository {

struct Config {
  uint64_t version = 2;
  Id id = {};
  uint64_t polynomial = 0;  // with which restic, and nothing here, cuts files
};

// Errors: DATA_LOSS; UNIMPLEMENTED for versions other than 1 and 2.
absl::StatusOr<Config> DecodeConfig(std::string_view json);
std::string EncodeConfig(const Config& config);

// A new repository's: random, the polynomial irreducible over GF(2) and of degree 53 as restic
// demands it. Errors: INTERNAL without random bytes.
absl::StatusOr<Config> RandomConfig();

// For tests.
bool IsIrreducible(uint64_t polynomial) noexcept;

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_CONFIG_H_
