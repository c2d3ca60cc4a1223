// era_invalidate and era_dump.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/source/lists.h"
#include "source/lists/change_collector.h"
#include "source/lists/sector_units.h"
#include "source/lists/xml_records.h"

namespace cbt {
namespace {

absl::Status Unknown(std::string_view name) {
  return absl::DataLossError(
      absl::StrCat("element <", AbslView(name.substr(0, 40)), "> is unknown here"));
}

class InvalidateReader final : public XmlEvents {
 public:
  InvalidateReader(ChangeCollector& changes, uint64_t unit) : changes_(changes), unit_(unit) {}

  bool empty() const noexcept { return empty_; }

 private:
  absl::Status Open(int depth, std::string_view name, const XmlAttributes& attributes) override {
    if (depth == 0) return name == "blocks" ? absl::OkStatus() : Unknown(name);
    if (depth > 1) return Unknown(name);
    empty_ = false;
    if (name == "block") {
      const absl::StatusOr<uint64_t> block = attributes.Number("block");
      if (!block.ok()) return block.status();
      return changes_.AddUnits(*block, 1, unit_);
    }
    if (name != "range") return Unknown(name);
    const absl::StatusOr<uint64_t> begin = attributes.Number("begin");
    if (!begin.ok()) return begin.status();
    // Exclusive, unlike in the other output of the tools.
    const absl::StatusOr<uint64_t> end = attributes.Number("end");
    if (!end.ok()) return end.status();
    if (*end < *begin) return absl::DataLossError("a range that ends before it begins");
    return changes_.AddUnits(*begin, *end - *begin, unit_);
  }

  absl::Status Close(int, std::string_view) override { return absl::OkStatus(); }

  ChangeCollector& changes_;
  const uint64_t unit_;
  bool empty_ = true;
};

// `era_dump --repair` leaves out what it can't read, and its dump looks like any other. Intact
// writesets are consecutive and list every bit.
absl::Status Damaged(std::string_view what) {
  return absl::DataLossError(absl::StrCat(AbslView(what),
                                          ": what was written there is not known, as in a dump "
                                          "with --repair: dump without it, and back "
                                          "up the whole device where the metadata is damaged"));
}

class EraDumpReader final : public XmlEvents {
 public:
  EraDumpReader(ChangeCollector& changes, uint64_t since) : changes_(changes), since_(since) {}

  absl::Status Finish() const {
    // Every block has an era; a dump that lacks some has been cut.
    if (eras_ != blocks_) {
      return absl::DataLossError(
          absl::StrCat("the era array has ", eras_, " blocks, it should have ", blocks_));
    }
    if (last_writeset_.has_value() && *last_writeset_ == current_era_) return absl::OkStatus();
    // Writes to a device in use are in its superblock's own writeset. Tools that print only
    // archived writesets omit it; suspending the device archives it.
    const absl::string_view remedy =
        "dump a copy of the metadata that was made while the device was suspended, without "
        "--logical, or use era_invalidate --metadata-snapshot";
    if (last_writeset_.has_value()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "lacks what was written in era ", current_era_, ", the current one: ", remedy));
    }
    // --logical assigns a block of several writesets to the first era. Later ones are lost.
    return absl::FailedPreconditionError(absl::StrCat(
        "has no writesets (era_dump --logical): a block may have been written in a later era than "
        "the one that it shows: ",
        remedy));
  }

  uint64_t unit() const noexcept { return unit_; }
  uint64_t blocks() const noexcept { return blocks_; }

 private:
  absl::Status Open(int depth, std::string_view name, const XmlAttributes& attributes) override {
    switch (depth) {
      case 0:
        return name == "superblock" ? Superblock(attributes)
                                    : absl::DataLossError("no <superblock>");
      case 1:
        in_writeset_ = name == "writeset";
        if (in_writeset_) return Writeset(attributes);
        return name == "era_array" ? absl::OkStatus() : Unknown(name);
      case 2:
        if (in_writeset_) return name == "bit" ? Bit(attributes) : Unknown(name);
        return name == "era" ? Era(attributes) : Unknown(name);
      default:
        return Unknown(name);
    }
  }

  absl::Status Close(int depth, std::string_view) override {
    if (depth != 1 || !in_writeset_) return absl::OkStatus();
    in_writeset_ = false;
    // Newer tools print as many bits as the device has blocks, older ones as many as the writeset
    // has.
    if (bits_ == nr_bits_ || bits_ == blocks_) return absl::OkStatus();
    return Damaged(absl::StrCat("the writeset of era ", *last_writeset_, " has ", bits_,
                                " bits, it should have ", nr_bits_));
  }

  absl::Status Superblock(const XmlAttributes& attributes) {
    absl::Status status = SectorUnit(attributes, "block_size", unit_);
    if (status.ok()) status = Number(attributes, "nr_blocks", blocks_);
    if (status.ok()) status = Number(attributes, "current_era", current_era_);
    if (!status.ok()) return status;
    if (blocks_ > kMaxCapacity / unit_) return absl::DataLossError("a device that is too large");
    if (since_ > current_era_) {
      return absl::InvalidArgumentError(
          absl::StrCat("era ", since_, " is in the future, the device is in era ", current_era_));
    }
    return absl::OkStatus();
  }

  absl::Status Writeset(const XmlAttributes& attributes) {
    uint64_t era = 0;
    if (absl::Status status = Number(attributes, "era", era); !status.ok()) return status;
    if (absl::Status status = Number(attributes, "nr_bits", nr_bits_); !status.ok()) return status;
    if (era > current_era_) {
      return absl::DataLossError(
          absl::StrCat("a writeset of era ", era, ", and the device is in era ", current_era_));
    }
    if (last_writeset_.has_value() && era <= *last_writeset_) {
      return absl::DataLossError(
          absl::StrCat("the writeset of era ", era, " comes after that of era ", *last_writeset_));
    }
    if (last_writeset_.has_value() && era - *last_writeset_ > 1) {
      return Damaged(absl::StrCat("the writeset of era ", *last_writeset_ + 1,
                                  " is missing, that of era ", era, " follows"));
    }
    // The kernel does not extend older writesets when a device grows.
    if (era >= since_ && nr_bits_ < blocks_) {
      return absl::FailedPreconditionError(
          absl::StrCat("the writeset of era ", era, " has ", nr_bits_, " bits for ", blocks_,
                       " blocks: take a later era, from after the device grew, or back up the "
                       "whole device"));
    }
    last_writeset_ = era;
    bits_ = 0;
    return absl::OkStatus();
  }

  absl::Status Bit(const XmlAttributes& attributes) {
    uint64_t block = 0;
    if (absl::Status status = Number(attributes, "block", block); !status.ok()) return status;
    if (block != bits_) {
      return Damaged(absl::StrCat("the writeset of era ", *last_writeset_, " lacks bit ", bits_,
                                  ", or has it out of order"));
    }
    ++bits_;
    const std::optional<std::string_view> value = attributes.Find("value");
    if (value != "true" && value != "false") {
      return absl::DataLossError("a bit that is neither true nor false");
    }
    return value == "true" && *last_writeset_ >= since_ ? Changed(block) : absl::OkStatus();
  }

  absl::Status Era(const XmlAttributes& attributes) {
    uint64_t block = 0;
    uint64_t era = 0;
    if (absl::Status status = Number(attributes, "block", block); !status.ok()) return status;
    if (absl::Status status = Number(attributes, "era", era); !status.ok()) return status;
    if (block != eras_) return absl::DataLossError("blocks of the era array are not in order");
    ++eras_;
    return era >= since_ ? Changed(block) : absl::OkStatus();
  }

  absl::Status Changed(uint64_t block) {
    if (block >= blocks_) return absl::OutOfRangeError("a block past the device's last one");
    return changes_.AddUnits(block, 1, unit_);
  }

  static absl::Status Number(const XmlAttributes& attributes, std::string_view name,
                             uint64_t& out) {
    const absl::StatusOr<uint64_t> number = attributes.Number(name);
    if (!number.ok()) return number.status();
    out = *number;
    return absl::OkStatus();
  }

  ChangeCollector& changes_;
  const uint64_t since_;
  uint64_t unit_ = 1;
  uint64_t blocks_ = 0;
  uint64_t eras_ = 0;
  uint64_t current_era_ = 0;
  std::optional<uint64_t> last_writeset_;  // its era
  bool in_writeset_ = false;
  uint64_t nr_bits_ = 0;  // as the writeset states
  uint64_t bits_ = 0;     // of the writeset, read so far
};

}  // namespace

absl::StatusOr<ChangeMap> ReadEraInvalidate(ByteStream& stream, const EraOptions& options) {
  absl::Status status = CheckPurpose(stream.label(), options.import, SourcePurpose::kDelta,
                                     "the output of era_invalidate");
  if (!status.ok()) return status;
  const absl::StatusOr<uint64_t> capacity =
      NeededCapacity(stream.label(), options.import, "era_invalidate");
  if (!capacity.ok()) return capacity.status();
  if (!options.block_size.has_value() || *options.block_size == 0 ||
      *options.block_size > kMaxGranularity) {
    return absl::InvalidArgumentError(
        absl::StrCat(stream.label(),
                     ": era_invalidate does not print the size of its blocks: give it (--from "
                     "era-invalidate:block-size=N)"));
  }
  absl::StatusOr<ChangeCollector> changes = ChangeCollector::Create(options.import.granularity);
  if (!changes.ok()) return changes.status();
  InvalidateReader reader(*changes, *options.block_size);
  status = ReadXml(stream, reader);
  if (!status.ok()) return status;
  if (reader.empty() && !options.empty_is_unwritten) {
    return absl::FailedPreconditionError(
        absl::StrCat(stream.label(),
                     ": lists no block, as era_invalidate 1.0 to 1.3.2 also does where it does not "
                     "know the answer: with another version, say so (--from "
                     "era-invalidate:empty=unwritten)"));
  }
  absl::StatusOr<ChangeMap> map = changes->Finish(options.import, *options.block_size);
  if (!map.ok()) return At(stream.label(), "", map.status());
  return map;
}

absl::StatusOr<ChangeMap> ReadEraDump(ByteStream& stream, const EraOptions& options) {
  absl::Status status =
      CheckPurpose(stream.label(), options.import, SourcePurpose::kDelta, "an era_dump");
  if (!status.ok()) return status;
  if (!options.since_era.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(stream.label(), ": since which era? (--from era-dump:since-era=N)"));
  }
  absl::StatusOr<ChangeCollector> changes = ChangeCollector::Create(options.import.granularity);
  if (!changes.ok()) return changes.status();
  EraDumpReader reader(*changes, *options.since_era);
  status = ReadXml(stream, reader);
  if (status.ok()) status = At(stream.label(), "", reader.Finish());
  if (!status.ok()) return status;
  const uint64_t end = reader.blocks() * reader.unit();
  const uint64_t capacity = options.import.capacity.value_or(end);
  if (capacity > end || BlockCount(capacity, reader.unit()) != reader.blocks()) {
    return absl::InvalidArgumentError(absl::StrCat(stream.label(), ": the device has ",
                                                   reader.blocks(), " blocks of ", reader.unit(),
                                                   " bytes, the volume ", capacity, " bytes"));
  }
  absl::StatusOr<ChangeMap> map =
      changes->Finish(capacity, options.import.base_capacity.value_or(capacity), reader.unit());
  if (!map.ok()) return At(stream.label(), "", map.status());
  return map;
}

}  // namespace cbt
