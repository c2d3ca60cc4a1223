// Trees: the directories of a snapshot.
#ifndef CBT_REPOSITORY_TREE_H_
#define CBT_REPOSITORY_TREE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "repository/id.h"

namespace cbt::repository {

// What is kept of a file or directory.
struct TreeNode {
  std::string name = {};
  std::string type = {};  // "file", "dir" and so on
  uint64_t size = 0;
  std::vector<Id> content = {};  // a file's blobs of data
  std::optional<Id> subtree = {};
};

// Calls `use` for each node and forgets it. Memory: 32 bytes for each blob of the largest node.
// Errors: DATA_LOSS, RESOURCE_EXHAUSTED past `max_blobs` in one node; that of `use`.
absl::Status DecodeTree(std::string_view json, size_t max_blobs,
                        const std::function<absl::Status(TreeNode&)>& use);

// A tree of one file, owned by root and readable by its owner, last written at `time`.
std::string EncodeFileTree(const TreeNode& file, absl::Time time);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_TREE_H_
