#include "absl/strings/str_cat.h"
#include "cbt/source/lists.h"
#include "source/lists/change_collector.h"
#include "source/lists/json_records.h"

namespace cbt {
namespace {

// qemu maps whole sectors: a file that ends inside one is mapped to the end of the sector.
constexpr uint64_t kSectorBytes = 512;

class QemuMapReader final : public JsonEvents {
 public:
  QemuMapReader(ChangeCollector& changes, SourcePurpose purpose)
      : changes_(changes), purpose_(purpose) {}

  uint64_t end() const noexcept { return end_; }

  // What is in no image has `depth` 0 where the topmost image has no backing file, and past the end
  // of a shorter one. Without an entry from below it is unknown which: a range that was discarded
  // since the snapshot that the caller has in mind would be missing.
  bool MayLackBackingFile() const noexcept { return absent_on_top_ && !below_; }

 private:
  absl::Status Open(int depth, std::string_view, bool array) override {
    if (depth == 0) {
      if (!array) return absl::DataLossError("not an array");
      if (seen_) return absl::DataLossError("a second map");
      seen_ = true;
    } else if (depth == 1) {
      if (array) return absl::DataLossError("an entry that is not an object");
      entry_ = {};
    }
    return absl::OkStatus();
  }

  absl::Status Value(int depth, std::string_view key, const JsonScalar& value) override {
    if (depth == 0) return absl::DataLossError("not an array");
    if (depth == 1) return absl::DataLossError("an entry that is not an object");
    if (depth > 2) return absl::OkStatus();
    if (key == "start") return TakeNumber(key, value, entry_.start);
    if (key == "length") return TakeNumber(key, value, entry_.length);
    if (key == "depth") return TakeNumber(key, value, entry_.depth);
    if (key == "present") return Flag(value, key, entry_.present);
    if (key == "zero") return Flag(value, key, entry_.zero);
    if (key == "data") return Flag(value, key, entry_.data);
    return absl::OkStatus();
  }

  absl::Status Close(int depth, bool) override {
    if (depth != 1) return absl::OkStatus();
    if (!entry_.start.has_value() || !entry_.length.has_value() || !entry_.zero.has_value() ||
        !entry_.data.has_value()) {
      return absl::DataLossError("an entry without start, length, zero or data");
    }
    if (*entry_.start != end_) {
      return absl::DataLossError(
          absl::StrCat("an entry at ", *entry_.start, ", but the previous one ended at ", end_));
    }
    if (*entry_.length > kMaxCapacity - end_) {
      return absl::OutOfRangeError(
          absl::StrCat("an entry of ", *entry_.length, " bytes at ", end_));
    }
    end_ += *entry_.length;
    bool report = *entry_.data || !*entry_.zero;
    if (purpose_ == SourcePurpose::kDelta) {
      if (!entry_.depth.has_value()) return absl::DataLossError("an entry without depth");
      // An overlay never reports this of itself, though what lies below may (a hole on NBD or
      // iSCSI). An NBD client that was given a bitmap reports dirty blocks like this, and clean
      // ones as data of the topmost image: taken literally, the answer would be the opposite.
      if (*entry_.depth == 0 && !*entry_.data && !*entry_.zero) {
        return absl::InvalidArgumentError(
            absl::StrCat("an entry at ", *entry_.start,
                         " is neither data nor zeros: if it is a map over x-dirty-bitmap, read the "
                         "bitmap itself (nbd:bitmap=NAME)"));
      }
      below_ |= *entry_.depth != 0;
      absent_on_top_ |= *entry_.depth == 0 && !entry_.present.value_or(true);
      // Tools without "present" print only what is present.
      report = *entry_.depth == 0 && entry_.present.value_or(true);
    }
    return report ? changes_.Add(*entry_.start, *entry_.length) : absl::OkStatus();
  }

  static absl::Status Flag(const JsonScalar& value, std::string_view key,
                           std::optional<bool>& out) {
    if (value.kind != JsonScalar::Kind::kBool || out.has_value()) {
      return absl::DataLossError(
          absl::StrCat("\"", std::string(key), "\" is duplicated or not a boolean"));
    }
    out = value.boolean;
    return absl::OkStatus();
  }

  struct Entry {
    std::optional<uint64_t> start;
    std::optional<uint64_t> length;
    std::optional<uint64_t> depth;
    std::optional<bool> present;
    std::optional<bool> zero;
    std::optional<bool> data;
  };

  ChangeCollector& changes_;
  const SourcePurpose purpose_;
  bool seen_ = false;
  bool below_ = false;          // an entry comes from below the topmost image
  bool absent_on_top_ = false;  // an entry of `depth` 0 is in no image
  Entry entry_;
  uint64_t end_ = 0;
};

}  // namespace

absl::StatusOr<ChangeMap> ReadQemuMap(ByteStream& stream, const ImportOptions& options) {
  if (!options.purpose.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(stream.label(),
                     ": a map of qemu-img reports what is allocated, or what an overlay changed: "
                     "say which (--as)"));
  }
  absl::StatusOr<ChangeCollector> changes = ChangeCollector::Create(options.granularity);
  if (!changes.ok()) return changes.status();
  QemuMapReader reader(*changes, *options.purpose);
  if (absl::Status status = ReadJson(stream, reader); !status.ok()) return status;
  if (reader.MayLackBackingFile()) {
    return absl::InvalidArgumentError(
        absl::StrCat(stream.label(),
                     ": nothing comes from a backing file: the map of an image without one is what "
                     "is allocated, not what changed"));
  }
  const uint64_t capacity = options.capacity.value_or(reader.end());
  if (capacity > reader.end() || AlignUp(capacity, kSectorBytes) < reader.end()) {
    return absl::DataLossError(absl::StrCat(stream.label(), ": the map ends at ", reader.end(),
                                            ", the volume at ", capacity));
  }
  absl::StatusOr<ChangeMap> map = changes->Finish(capacity, capacity, kSectorBytes);
  if (!map.ok()) return At(stream.label(), "", map.status());
  return map;
}

}  // namespace cbt
