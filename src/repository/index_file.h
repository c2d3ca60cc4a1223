// Files of the index: which blobs lie where in which packs.
#ifndef CBT_REPOSITORY_INDEX_FILE_H_
#define CBT_REPOSITORY_INDEX_FILE_H_

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "repository/id.h"
#include "repository/pack.h"

namespace cbt::repository {

struct IndexedPack {
  Id id = {};
  std::vector<PackedBlob> blobs = {};
};

// Calls `use` for each pack, in order, with at least one blob each. `supersedes`: indexes that this
// one replaces, whose content counts no more. Memory: that of the largest pack's blobs.
// Errors: DATA_LOSS; that of `use`.
absl::Status DecodeIndex(std::string_view json, std::vector<Id>& supersedes,
                         const std::function<absl::Status(const IndexedPack&)>& use);

std::string EncodeIndex(std::span<const IndexedPack> packs);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_INDEX_FILE_H_
