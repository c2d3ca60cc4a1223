#include "repository/index_file.h"

#include <limits>
#include <utility>

#include "base/json_builder.h"
#include "repository/crypto.h"
#include "repository/json.h"

namespace cbt::repository {
namespace {

// {"supersedes": [ID...], "packs": [{"id": ID, "blobs": [{"id": ID, "type": ..., ...}...]}...]}
class IndexEvents : public JsonEvents<IndexEvents> {
 public:
  IndexEvents(std::vector<Id>& supersedes,
              const std::function<absl::Status(const IndexedPack&)>& use)
      : supersedes_(supersedes), use_(use) {}

  bool Started(bool object) {
    if (depth == 1) return object;
    if (InPacks() && depth == kPack) {
      pack_ = {};
      has_pack_id_ = false;
      in_pack_ = InPack::kOther;
      return object;
    }
    if (InBlobs() && depth == kBlob) {
      blob_ = {};
      seen_ = 0;
      return object;
    }
    return true;
  }

  bool Ended(bool) {
    if (InBlobs() && depth == kBlob) {
      if (seen_ != kAll || blob_.length < kSealBytes) return false;
      pack_.blobs.push_back(blob_);
    } else if (InPacks() && depth == kPack) {
      if (!has_pack_id_) return false;
      if (!pack_.blobs.empty()) status_ = use_(pack_);
      return status_.ok();
    } else if (depth == 1) {
      whole_ = true;
    }
    return true;
  }

  bool KeyIs(std::string_view key) {
    if (depth == 1) {
      top_ = key == "packs" ? Top::kPacks : key == "supersedes" ? Top::kSupersedes : Top::kOther;
    } else if (InPacks() && depth == kPack) {
      in_pack_ = key == "blobs" ? InPack::kBlobs : key == "id" ? InPack::kId : InPack::kOther;
    } else if (InBlobs() && depth == kBlob) {
      in_blob_ = key == "id"                    ? kId
                 : key == "type"                ? kType
                 : key == "offset"              ? kOffset
                 : key == "length"              ? kLength
                 : key == "uncompressed_length" ? kUncompressed
                                                : 0;
    }
    return true;
  }

  bool TextIs(std::string_view text) {
    if (top_ == Top::kSupersedes && depth == 2) {
      const std::optional<Id> id = Id::Parse(text);
      if (id.has_value()) supersedes_.push_back(*id);
      return id.has_value();
    }
    if (InPacks() && depth == kPack && in_pack_ == InPack::kId) {
      const std::optional<Id> id = Id::Parse(text);
      if (id.has_value()) pack_.id = *id;
      has_pack_id_ = id.has_value();
      return has_pack_id_;
    }
    if (!InBlobs() || depth != kBlob) return true;
    if (in_blob_ == kId) {
      const std::optional<Id> id = Id::Parse(text);
      if (!id.has_value()) return false;
      blob_.id = *id;
      seen_ |= kId;
    } else if (in_blob_ == kType) {
      if (text != "data" && text != "tree") return false;
      blob_.type = text == "tree" ? BlobType::kTree : BlobType::kData;
      seen_ |= kType;
    }
    return true;
  }

  bool NumberIs(uint64_t number) {
    if (!InBlobs() || depth != kBlob) return true;
    if (number > std::numeric_limits<uint32_t>::max()) return false;
    const auto value = static_cast<uint32_t>(number);
    if (in_blob_ == kOffset) blob_.offset = value;
    if (in_blob_ == kLength) blob_.length = value;
    if (in_blob_ == kUncompressed) blob_.uncompressed = value;
    if (in_blob_ == kOffset || in_blob_ == kLength) seen_ |= in_blob_;
    return true;
  }

  const absl::Status& status() const { return status_; }
  bool whole() const { return whole_; }

 private:
  static constexpr int kPack = 3;  // depths
  static constexpr int kBlob = 5;
  enum class Top { kOther, kPacks, kSupersedes };
  enum class InPack { kOther, kId, kBlobs };
  // Members of a blob, those without which it can't be found in kAll.
  static constexpr unsigned kId = 1;
  static constexpr unsigned kType = 2;
  static constexpr unsigned kOffset = 4;
  static constexpr unsigned kLength = 8;
  static constexpr unsigned kUncompressed = 16;
  static constexpr unsigned kAll = kId | kType | kOffset | kLength;

  bool InPacks() const { return top_ == Top::kPacks; }
  bool InBlobs() const { return InPacks() && in_pack_ == InPack::kBlobs; }

  std::vector<Id>& supersedes_;
  const std::function<absl::Status(const IndexedPack&)>& use_;
  absl::Status status_;
  bool whole_ = false;
  Top top_ = Top::kOther;
  InPack in_pack_ = InPack::kOther;
  unsigned in_blob_ = 0;
  unsigned seen_ = 0;
  bool has_pack_id_ = false;
  IndexedPack pack_;
  PackedBlob blob_;
};

}  // namespace

absl::Status DecodeIndex(std::string_view json, std::vector<Id>& supersedes,
                         const std::function<absl::Status(const IndexedPack&)>& use) {
  IndexEvents events(supersedes, use);
  const bool good = ReadEvents(json, events);
  if (!events.status().ok()) return events.status();
  if (good && events.whole()) return absl::OkStatus();
  return absl::DataLossError("is not the JSON of an index");
}

std::string EncodeIndex(std::span<const IndexedPack> packs) {
  JsonBuilder json;
  json.BeginObject().Key("packs").BeginArray();
  for (const IndexedPack& pack : packs) {
    json.BeginObject().Field("id", pack.id.Hex()).Key("blobs").BeginArray();
    for (const PackedBlob& blob : pack.blobs) {
      json.BeginObject().Field("id", blob.id.Hex());
      json.Field("type", blob.type == BlobType::kTree ? "tree" : "data");
      json.Field("offset", blob.offset).Field("length", blob.length);
      if (blob.uncompressed != 0) json.Field("uncompressed_length", blob.uncompressed);
      json.EndObject();
    }
    json.EndArray().EndObject();
  }
  return json.EndArray().EndObject().Take();
}

}  // namespace cbt::repository
