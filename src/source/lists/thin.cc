// thin_delta and thin_dump.
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/source/lists.h"
#include "cbt/units.h"
#include "source/lists/change_collector.h"
#include "source/lists/sector_units.h"
#include "source/lists/xml_records.h"

namespace cbt {
namespace {

absl::Status Unknown(std::string_view name, std::string_view where) {
  return absl::DataLossError(absl::StrCat("element <", AbslView(name.substr(0, 40)), "> in <",
                                          AbslView(where), "> is unknown"));
}

class DeltaReader final : public XmlEvents {
 public:
  explicit DeltaReader(ChangeCollector& changes) : changes_(changes) {}

  bool diff_seen() const noexcept { return diff_seen_; }
  uint64_t unit() const noexcept { return unit_; }

 private:
  absl::Status Open(int depth, std::string_view name, const XmlAttributes& attributes) override {
    switch (depth) {
      case 0:
        if (name != "superblock") return absl::DataLossError("no <superblock>");
        return SectorUnit(attributes, "data_block_size", unit_);
      case 1:
        if (name != "diff") return Unknown(name, "superblock");
        if (diff_seen_) return absl::DataLossError("a second <diff>");
        diff_seen_ = true;
        return absl::OkStatus();
      case 2:
        changed_ = name == "different" || name == "left_only" || name == "right_only";
        if (!changed_ && name != "same") return Unknown(name, "diff");
        range_seen_ = false;
        // Without --verbose this element holds the range, otherwise its child.
        if (!attributes.Find("begin").has_value() && !attributes.Find("length").has_value()) {
          return absl::OkStatus();
        }
        return Range(attributes);
      case 3:
        if (name != "range") return Unknown(name, "diff");
        return Range(attributes);
      default:
        return Unknown(name, "range");
    }
  }

  absl::Status Close(int depth, std::string_view name) override {
    if (depth != 2 || !changed_ || range_seen_) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("<", AbslView(name), "> without begin and length, and without a <range>"));
  }

  absl::Status Range(const XmlAttributes& attributes) {
    range_seen_ = true;
    const absl::StatusOr<uint64_t> begin = attributes.Number("begin");
    if (!begin.ok()) return begin.status();
    const absl::StatusOr<uint64_t> length = attributes.Number("length");
    if (!length.ok()) return length.status();
    return changed_ ? changes_.AddUnits(*begin, *length, unit_) : absl::OkStatus();
  }

  ChangeCollector& changes_;
  bool diff_seen_ = false;
  bool changed_ = false;
  bool range_seen_ = false;  // in the open element
  uint64_t unit_ = 1;
};

class ThinDumpReader final : public XmlEvents {
 public:
  ThinDumpReader(ChangeCollector& changes, const ThinDumpOptions& options)
      : changes_(changes), device_(options.device), granularity_(options.import.granularity) {}

  absl::Status Finish() const {
    if (found_) return absl::OkStatus();
    return absl::NotFoundError(device_.has_value()
                                   ? absl::StrCat("the dump has no device ", *device_)
                                   : std::string("the dump has no device"));
  }

  uint64_t unit() const noexcept { return unit_; }

 private:
  // A shared part of the mappings.
  struct Part {
    ChangeMap map;
    uint64_t blocks = 0;
  };

  // The maximum bytes of all maps of parts.
  static constexpr uint64_t kMaxPartBytes = kGiB;

  absl::Status Open(int depth, std::string_view name, const XmlAttributes& attributes) override {
    if (depth == 0) {
      if (name != "superblock") return absl::DataLossError("no <superblock>");
      return SectorUnit(attributes, "data_block_size", unit_);
    }
    if (depth == 1) {
      if (name == "device") return OpenDevice(attributes);
      if (name == "def") return OpenPart(attributes);
      return Unknown(name, "superblock");
    }
    if (depth > 2) return Unknown(name, "device");
    if (name == "single_mapping") return Mapping(attributes, "origin_block", false);
    if (name == "range_mapping") return Mapping(attributes, "origin_begin", true);
    if (name == "ref") return Reference(attributes);
    return Unknown(name, "device");
  }

  absl::Status OpenDevice(const XmlAttributes& attributes) {
    const absl::StatusOr<uint64_t> id = attributes.Number("dev_id");
    if (!id.ok()) return id.status();
    const absl::StatusOr<uint64_t> mapped = attributes.Number("mapped_blocks");
    if (!mapped.ok()) return mapped.status();
    if (!device_.has_value() && found_) {
      return absl::InvalidArgumentError(absl::StrCat("the dump has several devices, ", first_,
                                                     " and ", *id, " among them: name one"));
    }
    wanted_ = device_.value_or(*id) == *id;
    if (wanted_ && found_) return absl::DataLossError(absl::StrCat("device ", *id, " twice"));
    if (wanted_) {
      found_ = true;
      first_ = *id;
      mapped_ = *mapped;
    }
    blocks_ = 0;
    return absl::OkStatus();
  }

  absl::Status OpenPart(const XmlAttributes& attributes) {
    const std::optional<std::string_view> name = attributes.Find("name");
    if (!name.has_value()) return absl::DataLossError("a <def> without a name");
    part_name_ = std::string(*name);
    if (parts_.contains(part_name_)) {
      return absl::DataLossError(absl::StrCat("a second <def> of this name"));
    }
    absl::StatusOr<ChangeCollector> part = ChangeCollector::Create(granularity_);
    if (!part.ok()) return part.status();
    part_.emplace(*std::move(part));
    blocks_ = 0;
    return absl::OkStatus();
  }

  absl::Status Mapping(const XmlAttributes& attributes, std::string_view begin_name, bool range) {
    if (!part_.has_value() && !wanted_) return absl::OkStatus();
    const absl::StatusOr<uint64_t> begin = attributes.Number(begin_name);
    if (!begin.ok()) return begin.status();
    uint64_t count = 1;
    if (range) {
      const absl::StatusOr<uint64_t> length = attributes.Number("length");
      if (!length.ok()) return length.status();
      count = *length;
    }
    ChangeCollector& into = part_.has_value() ? *part_ : changes_;
    if (absl::Status status = into.AddUnits(*begin, count, unit_); !status.ok()) return status;
    blocks_ += count;
    return absl::OkStatus();
  }

  absl::Status Reference(const XmlAttributes& attributes) {
    if (!part_.has_value() && !wanted_) return absl::OkStatus();
    const std::optional<std::string_view> name = attributes.Find("name");
    const auto part = parts_.find(std::string(name.value_or("")));
    if (!name.has_value() || part == parts_.end()) {
      return absl::DataLossError("a <ref> to a missing <def>");
    }
    blocks_ += part->second.blocks;
    return (part_.has_value() ? *part_ : changes_).Add(part->second.map);
  }

  absl::Status Close(int depth, std::string_view) override {
    if (depth != 1) return absl::OkStatus();
    if (part_.has_value()) {
      absl::StatusOr<ChangeMap> map = part_->Finish(kMaxCapacity, kMaxCapacity, 1);
      part_.reset();
      if (!map.ok()) return map.status();
      part_bytes_ += (*map)->portable().size() + part_name_.size() + sizeof(Part);
      if (part_bytes_ > kMaxPartBytes) {
        return absl::ResourceExhaustedError("the dump's shared parts are too large");
      }
      parts_.emplace(std::move(part_name_), Part{*std::move(map), blocks_});
      return absl::OkStatus();
    }
    if (wanted_ && blocks_ != mapped_) {
      return absl::DataLossError(absl::StrCat("device ", first_, " has ", blocks_,
                                              " mapped blocks, it should have ", mapped_));
    }
    wanted_ = false;
    return absl::OkStatus();
  }

  ChangeCollector& changes_;
  const std::optional<uint64_t> device_;
  const uint64_t granularity_;
  uint64_t unit_ = 1;
  bool found_ = false;
  bool wanted_ = false;  // the open device is wanted
  uint64_t first_ = 0;
  uint64_t mapped_ = 0;
  uint64_t blocks_ = 0;  // in the open device or part
  std::optional<ChangeCollector> part_;
  std::string part_name_;
  std::unordered_map<std::string, Part> parts_;
  uint64_t part_bytes_ = 0;
};

}  // namespace

absl::StatusOr<ChangeMap> ReadThinDelta(ByteStream& stream, const ImportOptions& options) {
  absl::Status status =
      CheckPurpose(stream.label(), options, SourcePurpose::kDelta, "a thin_delta");
  if (!status.ok()) return status;
  const absl::StatusOr<uint64_t> capacity = NeededCapacity(stream.label(), options, "thin_delta");
  if (!capacity.ok()) return capacity.status();
  absl::StatusOr<ChangeCollector> changes = ChangeCollector::Create(options.granularity);
  if (!changes.ok()) return changes.status();
  DeltaReader reader(*changes);
  status = ReadXml(stream, reader);
  if (!status.ok()) return status;
  if (!reader.diff_seen()) return absl::DataLossError(absl::StrCat(stream.label(), ": no <diff>"));
  absl::StatusOr<ChangeMap> map = changes->Finish(options, reader.unit());
  if (!map.ok()) return At(stream.label(), "", map.status());
  return map;
}

absl::StatusOr<ChangeMap> ReadThinDump(ByteStream& stream, const ThinDumpOptions& options) {
  absl::Status status =
      CheckPurpose(stream.label(), options.import, SourcePurpose::kAllocated, "a thin_dump");
  if (!status.ok()) return status;
  const absl::StatusOr<uint64_t> capacity =
      NeededCapacity(stream.label(), options.import, "thin_dump");
  if (!capacity.ok()) return capacity.status();
  absl::StatusOr<ChangeCollector> changes = ChangeCollector::Create(options.import.granularity);
  if (!changes.ok()) return changes.status();
  ThinDumpReader reader(*changes, options);
  status = ReadXml(stream, reader);
  if (status.ok()) status = At(stream.label(), "", reader.Finish());
  if (!status.ok()) return status;
  absl::StatusOr<ChangeMap> map = changes->Finish(options.import, reader.unit());
  if (!map.ok()) return At(stream.label(), "", map.status());
  return map;
}

}  // namespace cbt
