#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/source/lists.h"
#include "cbt/units.h"
#include "source/lists/change_collector.h"
#include "source/lists/json_records.h"

namespace cbt {
namespace {

constexpr size_t kMaxWaitingRuns = size_t{1} << 22;

class EbsReader final : public JsonPages {
 public:
  EbsReader(ChangeCollector& changes, const ImportOptions& options)
      : changes_(changes), purpose_(options.purpose) {}

  // Checks that need all pages.
  absl::Status Finish() const {
    if (pages_ == 0) return absl::DataLossError("no page");
    if (more_) return absl::DataLossError("the last page has a NextToken: pages are missing");
    return absl::OkStatus();
  }

  std::optional<uint64_t> volume_size() const noexcept { return volume_size_; }
  uint64_t block_size() const noexcept { return block_size_.value_or(1); }

 private:
  absl::Status OnPage() override {
    if (pages_ > 0 && !more_) {
      return absl::DataLossError("a page after the last one, which has no NextToken");
    }
    ++pages_;
    more_ = token_seen_ = list_seen_ = in_list_ = false;
    return absl::OkStatus();
  }

  absl::Status OnPageEnd() override {
    if (!list_seen_) return absl::DataLossError("a page without Blocks or ChangedBlocks");
    if (!waiting_.empty()) return absl::DataLossError("a page without BlockSize");
    return absl::OkStatus();
  }

  absl::Status OnOpen(int depth, std::string_view key, bool array) override {
    if (depth == 1) {
      const bool changed = key == "ChangedBlocks";
      in_list_ = changed || key == "Blocks";
      if (!in_list_) return NoScalar(key);
      if (!array) return absl::DataLossError("a list of blocks that is not an array");
      if (list_seen_) return absl::DataLossError("two lists of blocks in a page");
      list_seen_ = true;
      const SourcePurpose purpose = changed ? SourcePurpose::kDelta : SourcePurpose::kAllocated;
      if (!purpose_.has_value()) purpose_ = purpose;
      if (*purpose_ != purpose) {
        return absl::InvalidArgumentError(
            changed ? "ChangedBlocks report what changed, not what is allocated"
                    : "Blocks report what is allocated, not what changed");
      }
    } else if (in_list_ && depth == 2) {
      if (array) return absl::DataLossError("a block that is not an object");
      index_.reset();
    } else if (in_list_ && depth == 3 && key == "BlockIndex") {
      return absl::DataLossError("BlockIndex is missing, duplicated or not a number");
    }
    return absl::OkStatus();
  }

  // For an array or object in place of a scalar member, which must not count as missing: a missing
  // NextToken, for one, means the last page.
  static absl::Status NoScalar(std::string_view key) {
    if (key == "NextToken") return absl::DataLossError("NextToken is not a string");
    if (key == "BlockSize") return absl::DataLossError("BlockSize is not a size");
    if (key == "VolumeSize") return absl::DataLossError("VolumeSize is not a size in GiB");
    return absl::OkStatus();
  }

  absl::Status OnValue(int depth, std::string_view key, const JsonScalar& value) override {
    if (depth == 1) return PageValue(key, value);
    if (!in_list_) return absl::OkStatus();
    if (depth == 2) return absl::DataLossError("a block that is not an object");
    if (depth == 3 && key == "BlockIndex") {
      if (value.kind != JsonScalar::Kind::kNumber || index_.has_value()) {
        return absl::DataLossError("BlockIndex is missing, duplicated or not a number");
      }
      index_ = value.number;
    }
    return absl::OkStatus();
  }

  absl::Status OnClose(int depth, bool) override {
    if (depth == 1) in_list_ = false;
    if (!in_list_ || depth != 2) return absl::OkStatus();
    if (!index_.has_value()) return absl::DataLossError("a block without BlockIndex");
    return AddBlock(*index_);
  }

  absl::Status PageValue(std::string_view key, const JsonScalar& value) {
    if (key == "BlockSize") {
      const std::optional<uint64_t> size = value.AsNumber();
      if (!size.has_value() || *size == 0 || *size > kMaxCapacity) {
        return absl::DataLossError("BlockSize is not a size");
      }
      if (block_size_.value_or(*size) != *size) {
        return absl::DataLossError("pages of different BlockSize");
      }
      block_size_ = size;
      return AddWaiting();
    }
    if (key == "VolumeSize") {
      const std::optional<uint64_t> size = value.AsNumber();
      if (!size.has_value() || *size > kMaxCapacity / kGiB) {
        return absl::DataLossError("VolumeSize is not a size in GiB");
      }
      if (volume_size_.value_or(*size * kGiB) != *size * kGiB) {
        return absl::DataLossError("pages of different VolumeSize");
      }
      volume_size_ = *size * kGiB;
    } else if (key == "NextToken") {
      if (std::exchange(token_seen_, true)) return absl::DataLossError("NextToken twice");
      if (value.kind == JsonScalar::Kind::kString) {
        more_ = !value.string.empty();
      } else if (value.kind != JsonScalar::Kind::kNull) {
        return absl::DataLossError("NextToken is not a string");
      }
    } else if (key == "Blocks" || key == "ChangedBlocks") {
      return absl::DataLossError("a list of blocks that is not an array");
    }
    return absl::OkStatus();
  }

  absl::Status AddBlock(uint64_t index) {
    if (block_size_.has_value()) return changes_.AddUnits(index, 1, *block_size_);
    if (!waiting_.empty() && waiting_.back().end() == index) {
      ++waiting_.back().length;
      return absl::OkStatus();
    }
    if (waiting_.size() == kMaxWaitingRuns) {
      return absl::ResourceExhaustedError("too many blocks before their BlockSize");
    }
    waiting_.push_back({index, 1});
    return absl::OkStatus();
  }

  absl::Status AddWaiting() {
    for (const Extent& run : waiting_) {
      absl::Status status = changes_.AddUnits(run.offset, run.length, *block_size_);
      if (!status.ok()) return status;
    }
    waiting_.clear();
    return absl::OkStatus();
  }

  ChangeCollector& changes_;
  std::optional<SourcePurpose> purpose_;  // that of the first page if none was given
  uint64_t pages_ = 0;
  bool more_ = false;  // the page has a NextToken
  bool token_seen_ = false;
  bool list_seen_ = false;
  bool in_list_ = false;
  std::optional<uint64_t> index_;
  std::optional<uint64_t> block_size_;
  std::optional<uint64_t> volume_size_;
  std::vector<Extent> waiting_;  // runs of block numbers of still unknown size
};

}  // namespace

absl::StatusOr<ChangeMap> ReadEbsPages(ByteStream& stream, const ImportOptions& options) {
  absl::StatusOr<ChangeCollector> changes = ChangeCollector::Create(options.granularity);
  if (!changes.ok()) return changes.status();
  EbsReader reader(*changes, options);
  if (absl::Status status = ReadJson(stream, reader); !status.ok()) return status;
  if (absl::Status status = reader.Finish(); !status.ok()) return At(stream.label(), "", status);
  ImportOptions known = options;
  if (reader.volume_size().has_value()) {
    if (options.capacity.value_or(*reader.volume_size()) != *reader.volume_size()) {
      return absl::InvalidArgumentError(absl::StrCat(stream.label(), ": the volume has ",
                                                     *reader.volume_size(), " bytes, not ",
                                                     *options.capacity));
    }
    known.capacity = reader.volume_size();
  }
  const absl::StatusOr<uint64_t> capacity = NeededCapacity(stream.label(), known, "this list");
  if (!capacity.ok()) return capacity.status();
  absl::StatusOr<ChangeMap> map = changes->Finish(known, reader.block_size());
  if (!map.ok()) return At(stream.label(), "", map.status());
  return map;
}

}  // namespace cbt
