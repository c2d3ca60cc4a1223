#include "repository/tree.h"

#include "absl/strings/str_cat.h"
#include "base/json_builder.h"
#include "repository/host.h"
#include "repository/json.h"

namespace cbt::repository {
namespace {

// {"nodes": [{"name": ..., "content": [ID...], ...}...]}
class TreeEvents : public JsonEvents<TreeEvents> {
 public:
  TreeEvents(size_t max_blobs, const std::function<absl::Status(TreeNode&)>& use)
      : max_blobs_(max_blobs), use_(use) {}

  bool Started(bool object) {
    if (depth == 1) return object;
    if (in_nodes_ && depth == kNode) {
      node_ = {};
      member_ = Member::kOther;
      return object;
    }
    return true;
  }

  bool Ended(bool) {
    if (in_nodes_ && depth == kNode) {
      status_ = use_(node_);
      node_ = {};
      return status_.ok();
    }
    if (depth == 1) whole_ = true;
    return true;
  }

  bool KeyIs(std::string_view key) {
    if (depth == 1) in_nodes_ = key == "nodes";
    if (in_nodes_ && depth == kNode) {
      member_ = key == "name"      ? Member::kName
                : key == "type"    ? Member::kType
                : key == "size"    ? Member::kSize
                : key == "content" ? Member::kContent
                : key == "subtree" ? Member::kSubtree
                                   : Member::kOther;
    }
    return true;
  }

  bool TextIs(std::string_view text) {
    if (!in_nodes_) return true;
    if (depth == kNode && member_ == Member::kName) node_.name = text;
    if (depth == kNode && member_ == Member::kType) node_.type = text;
    const bool subtree = depth == kNode && member_ == Member::kSubtree;
    const bool blob = depth == kNode + 1 && member_ == Member::kContent;
    if (!subtree && !blob) return true;
    const std::optional<Id> id = Id::Parse(text);
    if (!id.has_value()) return false;
    if (subtree) node_.subtree = id;
    if (blob) {
      if (node_.content.size() >= max_blobs_) {
        status_ = absl::ResourceExhaustedError(
            absl::StrCat("has a file of more than ", max_blobs_, " blobs"));
        return false;
      }
      node_.content.push_back(*id);
    }
    return true;
  }

  bool NumberIs(uint64_t number) {
    if (in_nodes_ && depth == kNode && member_ == Member::kSize) node_.size = number;
    return true;
  }

  const absl::Status& status() const { return status_; }
  bool whole() const { return whole_; }

 private:
  static constexpr int kNode = 3;  // the depth of a node's object
  enum class Member { kOther, kName, kType, kSize, kContent, kSubtree };

  const size_t max_blobs_;
  const std::function<absl::Status(TreeNode&)>& use_;
  absl::Status status_;
  bool whole_ = false;
  bool in_nodes_ = false;
  Member member_ = Member::kOther;
  TreeNode node_;
};

}  // namespace

absl::Status DecodeTree(std::string_view json, size_t max_blobs,
                        const std::function<absl::Status(TreeNode&)>& use) {
  TreeEvents events(max_blobs, use);
  const bool good = ReadEvents(json, events);
  if (!events.status().ok()) return events.status();
  if (good && events.whole()) return absl::OkStatus();
  return absl::DataLossError("is not the JSON of a tree");
}

std::string EncodeFileTree(const TreeNode& file, absl::Time time) {
  const std::string text = TimeText(time);
  JsonBuilder json;
  json.BeginObject().Key("nodes").BeginArray().BeginObject();
  json.Field("name", file.name).Field("type", "file").Field("mode", 0600);
  json.Field("mtime", text).Field("atime", text).Field("ctime", text);
  json.Field("uid", 0).Field("gid", 0).Field("user", "root").Field("group", "root");
  json.Field("inode", 1).Field("device_id", 0).Field("size", file.size).Field("links", 1);
  json.Key("content").BeginArray();
  for (const Id& id : file.content) json.Value(id.Hex());
  json.EndArray().EndObject().EndArray().EndObject();
  // restic ends trees with a newline.
  return json.Take() + "\n";
}

}  // namespace cbt::repository
