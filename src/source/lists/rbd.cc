// RBD diff streams, and exports of several diffs.
#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/source/lists.h"
#include "cbt/units.h"
#include "map/container.h"
#include "source/lists/change_collector.h"
#include "source/lists/record_input.h"

namespace cbt {
namespace {

constexpr std::string_view kDiffV1 = "rbd diff v1\n";
constexpr std::string_view kDiffV2 = "rbd diff v2\n";
constexpr std::string_view kImageV2 = "rbd image v2\n";
constexpr std::string_view kImageDiffsV2 = "rbd image diffs v2\n";
constexpr uint64_t kMaxNameBytes = 4096;
// The limit for all snapshot names of an export, which are kept until its end.
constexpr uint64_t kMaxAllNameBytes = 16 * kMiB;

// The metadata before the ranges of a diff.
struct DiffFacts {
  std::optional<std::string> from;
  std::optional<std::string> to;
  std::optional<uint64_t> size;
};

class DiffReader {
 public:
  DiffReader(RecordInput& input, const RbdDiffOptions& options, ChangeCollector& changes)
      : input_(input), options_(options), changes_(changes) {}

  absl::Status Read() {
    const uint8_t* const banner = input_.Take(kDiffV1.size());
    if (banner == nullptr) return input_.Failure();
    const std::string_view text(reinterpret_cast<const char*>(banner), kDiffV1.size());
    if (text == kDiffV1 || text == kDiffV2) return ReadOnly(text == kDiffV1);
    // The longer banner starts like the others.
    if (text != kImageV2.substr(0, text.size()) || !Expect(kImageV2.substr(text.size()))) {
      return Bad("not a diff stream: unknown banner");
    }
    return ReadExport();
  }

  // Valid after Read().
  uint64_t capacity() const noexcept { return capacity_; }
  uint64_t furthest() const noexcept { return furthest_; }
  const ChangeMapIdentity& identity() const noexcept { return identity_; }

 private:
  absl::Status Bad(std::string_view why) const {
    return absl::DataLossError(
        absl::StrCat(input_.label(), ": byte ", input_.position(), ": ", AbslView(why)));
  }

  bool Expect(std::string_view text) {
    const uint8_t* const bytes = input_.Take(text.size());
    return bytes != nullptr && std::memcmp(bytes, text.data(), text.size()) == 0;
  }

  absl::Status AtEnd() {
    if (input_.AtEnd()) return absl::OkStatus();
    const uint8_t* const more = input_.Take(1);
    return more == nullptr ? input_.Failure() : Bad("bytes follow the end");
  }

  // A stream with a single diff.
  absl::Status ReadOnly(bool v1) {
    const absl::StatusOr<DiffFacts> facts = ReadRecords(v1, true);
    if (!facts.ok()) return facts.status();
    if (absl::Status status = AtEnd(); !status.ok()) return status;
    // Two snapshots with one name can't be distinguished, and a snapshot has no diff to itself.
    if (facts->from.has_value() && facts->from == facts->to) {
      return Bad(absl::StrCat("the diff begins and ends with snapshot \"",
                              absl::Utf8SafeCEscape(*facts->from), "\": compare two of them"));
    }
    const SourcePurpose purpose =
        facts->from.has_value() ? SourcePurpose::kDelta : SourcePurpose::kAllocated;
    if (absl::Status status =
            CheckPurpose(input_.label(), options_.import, purpose,
                         facts->from.has_value() ? "a diff from snapshot " + *facts->from
                                                 : "a diff from no snapshot");
        !status.ok()) {
      return status;
    }
    identity_.base = facts->from.value_or("");
    identity_.target = facts->to.value_or("");
    for (const auto& [wanted, there] : {std::pair(&options_.base, &identity_.base),
                                        std::pair(&options_.target, &identity_.target)}) {
      if (!wanted->empty() && *wanted != *there) {
        return absl::NotFoundError(absl::StrCat(input_.label(), ": the diff is from \"",
                                                identity_.base, "\" to \"", identity_.target,
                                                "\", not about \"", *wanted, "\""));
      }
    }
    capacity_ = furthest_ = *facts->size;
    return absl::OkStatus();
  }

  // All diffs of an export, oldest first; the last one leads to the image itself.
  absl::Status ReadExport() {
    for (bool header = true; header;) {
      const uint8_t* const tag = input_.Take(1);
      if (tag == nullptr) return input_.Failure();
      if (*tag == 'E') {
        header = false;
      } else {
        const uint8_t* const length = input_.Take(8);
        if (length == nullptr || !input_.Skip(LoadU64(length))) return input_.Failure();
      }
    }
    if (!Expect(kImageDiffsV2)) return Bad("the banner of the diffs is missing");
    const uint8_t* const count_bytes = input_.Take(8);
    if (count_bytes == nullptr) return input_.Failure();
    const uint64_t count = LoadU64(count_bytes);
    const bool delta = options_.import.purpose.has_value()
                           ? *options_.import.purpose == SourcePurpose::kDelta
                           : !options_.base.empty();
    if (delta && options_.base.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(input_.label(), ": holds the diffs between all snapshots: name the base"));
    }
    if (!delta && !options_.base.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          input_.label(), ": a base applies to what changed, not to what is allocated"));
    }
    bool base_seen = !delta;
    bool target_seen = false;
    std::string previous;
    uint64_t previous_size = 0;
    for (uint64_t i = 0; i < count; ++i) {
      if (!Expect(kDiffV2)) return input_.AtEnd() ? input_.Failure() : Bad("a diff is missing");
      const absl::StatusOr<DiffFacts> facts = ReadRecords(false, base_seen && !target_seen);
      if (!facts.ok()) return facts.status();
      if (facts->from.value_or("") != previous || (i > 0 && previous.empty())) {
        return Bad("a diff does not begin where the one before it ends");
      }
      const std::string to = facts->to.value_or("");
      if (absl::Status status = NoteSnapshot(to); !status.ok()) return status;
      if (base_seen && !target_seen) {
        // Space that was cut off and added again reads as zeros, but no record says so.
        if (*facts->size < previous_size) {
          absl::Status status = changes_.Add(*facts->size, previous_size - *facts->size);
          if (!status.ok()) return Bad(std::string(status.message()));
        }
        furthest_ = std::max({furthest_, *facts->size, previous_size});
        if (to == options_.target) {
          target_seen = true;
          capacity_ = *facts->size;
        }
      } else if (!base_seen && to == options_.base && !to.empty()) {
        base_seen = true;
        if (to == options_.target) {  // a snapshot has no changes to itself
          target_seen = true;
          capacity_ = *facts->size;
        }
      } else if (!base_seen && to == options_.target) {
        return NoSuchPair();
      }
      previous = to;
      previous_size = *facts->size;
    }
    if (!base_seen || !target_seen) return NoSuchPair();
    identity_.base = delta ? options_.base : "";
    identity_.target = options_.target;
    return AtEnd();
  }

  // A name of two snapshots can't be a base: it is unknown which is meant, and changes since the
  // earlier one could be missed.
  absl::Status NoteSnapshot(const std::string& name) {
    if (name.empty()) return absl::OkStatus();
    if (!snapshots_.insert(name).second) {
      return Bad(absl::StrCat("two snapshots are called \"", absl::Utf8SafeCEscape(name), "\""));
    }
    name_bytes_ += name.size();
    if (name_bytes_ <= kMaxAllNameBytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(
        input_.label(), ": the snapshots' names take more than ", kMaxAllNameBytes, " bytes"));
  }

  absl::Status NoSuchPair() const {
    return absl::NotFoundError(absl::StrCat(
        input_.label(), ": holds no diffs from snapshot \"", options_.base, "\" to ",
        options_.target.empty() ? "the image" : absl::StrCat("\"", options_.target, "\"")));
  }

  // The records up to the end of a diff, after its banner.
  absl::StatusOr<DiffFacts> ReadRecords(bool v1, bool collect) {
    DiffFacts facts;
    for (;;) {
      // Fast path for runs of ranges without data, which discards cause.
      constexpr size_t kZeroRecord = 17;
      while (v1 && collect && input_.waiting_bytes() >= kZeroRecord && *input_.waiting() == 'z') {
        const uint8_t* const record = input_.Take(kZeroRecord);
        absl::Status status = changes_.Add(LoadU64(record + 1), LoadU64(record + 9));
        if (!status.ok()) return Bad(std::string(status.message()));
      }
      const uint8_t* const tag_byte = input_.Take(1);
      if (tag_byte == nullptr) return input_.Failure();
      const char tag = static_cast<char>(*tag_byte);
      if (tag == 'e') break;
      uint64_t length = 0;
      if (!v1) {
        const uint8_t* const bytes = input_.Take(8);
        if (bytes == nullptr) return input_.Failure();
        length = LoadU64(bytes);
      }
      absl::Status status;
      if (tag == 'w' || tag == 'z') {
        status = ReadRange(tag == 'w', v1 ? std::nullopt : std::optional(length), collect);
      } else if (tag == 's') {
        status = ReadSize(facts);
      } else if (tag == 'f' || tag == 't') {
        status = ReadName(tag == 'f' ? facts.from : facts.to);
      } else if (tag == 'p' && !v1) {
        // Whether the snapshot is protected: one byte, whatever its length field says (versions of
        // Ceph up to 16 wrote another length).
        if (!input_.Skip(1)) status = input_.Failure();
      } else if (v1) {
        status = Bad("a record of unknown kind");
      } else if (!input_.Skip(length)) {
        status = input_.Failure();
      }
      if (!status.ok()) return status;
    }
    if (!facts.size.has_value()) return Bad("a diff without the image's size");
    return facts;
  }

  absl::Status ReadRange(bool data, std::optional<uint64_t> record_length, bool collect) {
    const uint8_t* const bytes = input_.Take(16);
    if (bytes == nullptr) return input_.Failure();
    const uint64_t offset = LoadU64(bytes);
    const uint64_t length = LoadU64(bytes + 8);
    if (collect) {
      if (absl::Status status = changes_.Add(offset, length); !status.ok()) {
        return Bad(std::string(status.message()));
      }
    }
    if (record_length.has_value() &&
        (*record_length < 16 || *record_length - 16 != (data ? length : 0))) {
      return Bad("a record whose length differs from its range's");
    }
    if (data && !input_.Skip(length)) return input_.Failure();
    return absl::OkStatus();
  }

  absl::Status ReadSize(DiffFacts& facts) {
    const uint8_t* const bytes = input_.Take(8);
    if (bytes == nullptr) return input_.Failure();
    const uint64_t size = LoadU64(bytes);
    if (facts.size.has_value()) return Bad("a second size");
    if (size > kMaxCapacity) return Bad("an image of more than 2^63 - 1 bytes");
    facts.size = size;
    return absl::OkStatus();
  }

  absl::Status ReadName(std::optional<std::string>& name) {
    const uint8_t* bytes = input_.Take(4);
    if (bytes == nullptr) return input_.Failure();
    const uint32_t length = LoadU32(bytes);
    if (name.has_value()) return Bad("a second name of the same snapshot");
    if (length == 0 || length > kMaxNameBytes) return Bad("a snapshot name length out of range");
    bytes = input_.Take(length);
    if (bytes == nullptr) return input_.Failure();
    name.emplace(reinterpret_cast<const char*>(bytes), length);
    return absl::OkStatus();
  }

  RecordInput& input_;
  const RbdDiffOptions& options_;
  ChangeCollector& changes_;
  uint64_t capacity_ = 0;
  uint64_t furthest_ = 0;
  ChangeMapIdentity identity_;
  std::set<std::string> snapshots_;  // of an export, read so far
  uint64_t name_bytes_ = 0;          // of all of them
};

}  // namespace

absl::StatusOr<ChangeMap> ReadRbdDiff(ByteStream& stream, const RbdDiffOptions& options) {
  absl::StatusOr<ChangeCollector> changes = ChangeCollector::Create(options.import.granularity);
  if (!changes.ok()) return changes.status();
  RecordInput input(stream);
  DiffReader reader(input, options, *changes);
  if (absl::Status status = reader.Read(); !status.ok()) return status;
  if (options.import.capacity.value_or(reader.capacity()) != reader.capacity()) {
    return absl::InvalidArgumentError(absl::StrCat(stream.label(), ": the image has ",
                                                   reader.capacity(), " bytes, not ",
                                                   *options.import.capacity));
  }
  const uint64_t limit = std::max(reader.furthest(), options.import.base_capacity.value_or(0));
  absl::StatusOr<ChangeMap> map = changes->Finish(reader.capacity(), limit, 1);
  if (!map.ok()) return At(stream.label(), "", map.status());
  map->set_identity(reader.identity());
  return map;
}

}  // namespace cbt
