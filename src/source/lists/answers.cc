// What the cbtctl command prints: ndjson, json and csv. Each ends with a marker that says that it
// is complete; without it the answer is refused.
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/source/lists.h"
#include "cbt/wire/digest.h"
#include "source/lists/change_collector.h"
#include "source/lists/json_records.h"

namespace cbt {
namespace {

// The tuples of an answer, and whether they are all of it.
class Tuples {
 public:
  explicit Tuples(ChangeCollector& changes) : changes_(changes) {}

  absl::Status Add(uint64_t offset, uint64_t length) {
    if (length == 0) return absl::DataLossError("a tuple of 0 bytes");
    if (offset < end_) {
      return absl::DataLossError(
          absl::StrCat("a tuple at ", offset, ", but the previous one ended at ", end_));
    }
    // Checks that the end does not wrap.
    if (absl::Status status = changes_.Add(offset, length); !status.ok()) return status;
    end_ = offset + length;
    if (unit_ != length || offset % length != 0) unit_ = digest_.tuples() == 0 ? length : 1;
    digest_.Add({&offset, 1}, {&length, 1});
    return absl::OkStatus();
  }

  // The values of the end marker. Bytes and digest are optional: csv has neither.
  absl::Status Complete(uint64_t tuples, std::optional<uint64_t> bytes,
                        std::optional<std::string_view> digest) {
    if (tuples != digest_.tuples()) {
      return absl::DataLossError(absl::StrCat("the end marker counts ", tuples,
                                              " tuples, but there are ", digest_.tuples()));
    }
    if (bytes.value_or(digest_.bytes()) != digest_.bytes() ||
        (digest.has_value() && AbslView(*digest) != "xxh3-64:" + digest_.DigestText())) {
      return absl::DataLossError("the tuples are not those of the end marker (bytes, digest)");
    }
    complete_ = true;
    return absl::OkStatus();
  }

  bool complete() const noexcept { return complete_; }

  // The block size if the tuples look like blocks, else 1. The last block of a volume may reach
  // past its end.
  uint64_t unit() const noexcept { return IsPowerOfTwo(unit_) ? unit_ : 1; }

 private:
  ChangeCollector& changes_;
  StreamDigest digest_;
  uint64_t end_ = 0;
  uint64_t unit_ = 0;
  bool complete_ = false;
};

// What the head of an answer says about where it comes from, by key. Parts that differ are of
// different answers.
class Head {
 public:
  static bool Has(std::string_view key) noexcept {
    return key == "base" || key == "snapshot" || key == "source_version";
  }
  absl::Status Take(std::string_view key, std::string value) {
    if (values_.emplace(key, std::move(value)).second) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat("\"", AbslView(key), "\" is there twice"));
  }
  void clear() noexcept { values_.clear(); }
  bool empty() const noexcept { return values_.empty(); }
  friend bool operator==(const Head&, const Head&) = default;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

absl::Status Failed(std::string_view why) {
  return absl::DataLossError(
      absl::StrCat("the answer ended with an error: ", AbslView(why.substr(0, 1000))));
}

absl::Status IsAPart(std::string_view key, uint64_t offset) {
  return absl::InvalidArgumentError(absl::StrCat(
      "holds only a part of the volume (", AbslView(key), " ", offset,
      "): what changed in the rest is unknown; ask for the whole answer and read that"));
}

absl::Status NotComplete() {
  return absl::DataLossError("no end marker: the answer was cut, or its writer was killed");
}

absl::StatusOr<ChangeMap> Finished(const ByteStream& stream, const Tuples& tuples, uint64_t unit,
                                   ChangeCollector& changes, const ImportOptions& options) {
  if (!tuples.complete()) return At(stream.label(), "", NotComplete());
  absl::StatusOr<ChangeMap> map = changes.Finish(options, unit);
  if (!map.ok()) return At(stream.label(), "", map.status());
  return map;
}

// Both JSON forms: objects in a row, where ndjson has one for each tuple and the end marker, and
// json one for each group of tuples, the last with the end marker.
class JsonReader final : public JsonEvents {
 public:
  JsonReader(Tuples& tuples, bool lines) : tuples_(tuples), lines_(lines) {}

  std::optional<uint64_t> capacity() const noexcept { return capacity_; }
  bool has_blocks() const noexcept { return type_ == "FIXED_LENGTH"; }
  // The writer of the answer did not know the capacity.
  bool unknown_capacity() const noexcept { return has_header_ && !capacity_.has_value(); }

 private:
  struct Object {
    std::optional<uint64_t> offset, size, capacity, tuples, bytes, starting_offset, ending_offset;
    std::optional<std::string> type, digest, error;
    Head head;
    bool complete = false;
    bool metadata = false;
    bool unknown_capacity = false;
  };

  absl::Status Open(int depth, std::string_view key, bool array) override {
    if (depth == 0) {
      if (array) return absl::DataLossError("not an object");
      if (tuples_.complete()) return absl::DataLossError("something after the end marker");
      object_ = {};
      return absl::OkStatus();
    }
    if (depth == 1 && !lines_ && array && key == "block_metadata" && !object_.metadata) {
      // The geometry comes first, so that it is known whatever follows.
      object_.metadata = true;
      return TakeHeader();
    }
    if (depth == 2 && !array) {
      tuple_ = {};
      return absl::OkStatus();
    }
    return absl::DataLossError(absl::StrCat("unknown member \"", AbslView(key), "\""));
  }

  absl::Status Value(int depth, std::string_view key, const JsonScalar& value) override {
    if (depth == 3) return TupleValue(key, value, tuple_);
    if (depth != 1) return absl::DataLossError("a tuple that is not an object");
    if (key == "volume_capacity_bytes") return TakeCapacity(value);
    if (key == "tuples") return TakeNumber(key, value, object_.tuples);
    if (key == "bytes") return TakeNumber(key, value, object_.bytes);
    if (key == "starting_offset") return TakeNumber(key, value, object_.starting_offset);
    if (key == "ending_offset") return TakeNumber(key, value, object_.ending_offset);
    if (key == "block_metadata_type") return TakeText(key, value, object_.type);
    if (key == "digest") return TakeText(key, value, object_.digest);
    if (key == "error") return TakeText(key, value, object_.error);
    if (Head::Has(key)) {
      std::optional<std::string> text;
      absl::Status status = TakeText(key, value, text);
      return status.ok() ? object_.head.Take(key, *std::move(text)) : status;
    }
    if (key == "complete") {
      if (value.kind != JsonScalar::Kind::kBool || !value.boolean || object_.complete) {
        return absl::DataLossError("\"complete\" is duplicated or not true");
      }
      object_.complete = true;
      return absl::OkStatus();
    }
    return TupleValue(key, value, object_);
  }

  absl::Status Close(int depth, bool) override {
    if (depth == 2) return AddTuple(tuple_);
    if (depth != 0) return absl::OkStatus();
    if (object_.error.has_value()) return Failed(*object_.error);
    if (!object_.head.empty() && !(lines_ && object_.type.has_value())) {
      return absl::DataLossError("base, snapshot or source_version outside of the head");
    }
    if (object_.complete) {
      if (lines_ ? !has_header_ : !object_.metadata) return NoHeader();
      return TakeMarker();
    }
    if (object_.tuples.has_value() || object_.bytes.has_value() || object_.digest.has_value()) {
      return absl::DataLossError("an end marker without \"complete\":true");
    }
    if (!lines_) return object_.metadata ? absl::OkStatus() : NoHeader();
    if (object_.type.has_value()) return TakeHeader();
    return has_header_ ? AddTuple(object_) : NoHeader();
  }

  absl::Status TakeCapacity(const JsonScalar& value) {
    if (value.kind != JsonScalar::Kind::kNull || object_.capacity.has_value()) {
      return TakeNumber("volume_capacity_bytes", value, object_.capacity);
    }
    object_.unknown_capacity = true;
    return absl::OkStatus();
  }

  static absl::Status NoHeader() {
    return absl::DataLossError(
        "no block_metadata_type and volume_capacity_bytes before the tuples");
  }

  static absl::Status TupleValue(std::string_view key, const JsonScalar& value, Object& tuple) {
    if (key == "byte_offset") return TakeNumber(key, value, tuple.offset);
    if (key == "size_bytes") return TakeNumber(key, value, tuple.size);
    return absl::DataLossError(absl::StrCat("unknown member \"", AbslView(key), "\""));
  }

  static absl::Status TakeText(std::string_view key, const JsonScalar& value,
                               std::optional<std::string>& out) {
    if (value.kind != JsonScalar::Kind::kString || out.has_value()) {
      return absl::DataLossError(
          absl::StrCat("\"", AbslView(key), "\" is duplicated or not a string"));
    }
    out = value.string;
    return absl::OkStatus();
  }

  // Every object of json repeats the header; ndjson has it once.
  absl::Status TakeHeader() {
    if (!object_.type.has_value() || object_.capacity.has_value() == object_.unknown_capacity) {
      return NoHeader();
    }
    if (lines_ && has_header_) return absl::DataLossError("a second header");
    if (*object_.type != "FIXED_LENGTH" && *object_.type != "VARIABLE_LENGTH") {
      return absl::DataLossError("unknown block_metadata_type");
    }
    if (has_header_ && (capacity_ != object_.capacity || type_ != object_.type)) {
      return absl::DataLossError("the objects differ in capacity or block_metadata_type");
    }
    if (has_header_ && object_.head != head_) {
      return absl::DataLossError(
          "the objects are of different answers: they differ in base, snapshot or source_version");
    }
    has_header_ = true;
    capacity_ = object_.capacity;
    type_ = object_.type;
    head_ = std::exchange(object_.head, {});
    return absl::OkStatus();
  }

  absl::Status AddTuple(const Object& tuple) {
    if (!tuple.offset.has_value() || !tuple.size.has_value()) {
      return absl::DataLossError("a tuple without byte_offset or size_bytes");
    }
    if (!capacity_.has_value()) return absl::DataLossError("a tuple of a volume without a size");
    return tuples_.Add(*tuple.offset, *tuple.size);
  }

  absl::Status TakeMarker() {
    if (object_.offset.has_value() || object_.size.has_value()) {
      return absl::DataLossError("a tuple in the end marker");
    }
    if (!object_.tuples.has_value() || !object_.bytes.has_value() || !object_.digest.has_value()) {
      return absl::DataLossError("an end marker without tuples, bytes or digest");
    }
    if (object_.starting_offset.has_value()) {
      return IsAPart("starting_offset", *object_.starting_offset);
    }
    if (object_.ending_offset.has_value()) return IsAPart("ending_offset", *object_.ending_offset);
    return tuples_.Complete(*object_.tuples, object_.bytes, *object_.digest);
  }

  Tuples& tuples_;
  const bool lines_;
  Object object_;
  Object tuple_;
  bool has_header_ = false;
  std::optional<uint64_t> capacity_;
  std::optional<std::string> type_;
  Head head_;
};

// Takes the capacity that the answer says, if it does; it must not be another than the given one.
absl::Status AgreeOnCapacity(const ByteStream& stream, std::optional<uint64_t> said,
                             ImportOptions& known) {
  if (!said.has_value()) return absl::OkStatus();
  if (known.capacity.value_or(*said) != *said) {
    return absl::InvalidArgumentError(
        absl::StrCat(stream.label(), ": the volume has ", *said, " bytes, not ", *known.capacity));
  }
  known.capacity = said;
  return absl::OkStatus();
}

absl::StatusOr<ChangeMap> ReadObjects(ByteStream& stream, const ImportOptions& options,
                                      bool lines) {
  absl::StatusOr<ChangeCollector> changes = ChangeCollector::Create(options.granularity);
  if (!changes.ok()) return changes.status();
  Tuples tuples(*changes);
  JsonReader reader(tuples, lines);
  if (absl::Status status = ReadJson(stream, reader); !status.ok()) return status;
  ImportOptions known = options;
  if (reader.unknown_capacity()) {
    const absl::StatusOr<uint64_t> capacity = NeededCapacity(stream.label(), options, "the answer");
    if (!capacity.ok()) return capacity.status();
  }
  if (absl::Status status = AgreeOnCapacity(stream, reader.capacity(), known); !status.ok()) {
    return status;
  }
  return Finished(stream, tuples, reader.has_blocks() ? tuples.unit() : 1, *changes, known);
}

// A number in decimal digits, and nothing else.
std::optional<uint64_t> NumberIn(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// What stands before the tuples of csv. Answers of older versions have no head.
struct CsvHead {
  std::optional<uint64_t> capacity;
  Head head;
  bool closed = false;  // a tuple or the end marker came
};

absl::Status TakeRow(std::string_view line, bool first, CsvHead& head, Tuples& tuples) {
  if (first) {
    return line == "byte_offset,size_bytes"
               ? absl::OkStatus()
               : absl::DataLossError("the first line is not byte_offset,size_bytes");
  }
  if (tuples.complete()) return absl::DataLossError("something after the end marker");
  const size_t comma = std::min(line.find(','), line.size());
  const std::string_view key = line.substr(0, comma);
  const std::string_view rest = line.substr(std::min(comma + 1, line.size()));
  if (key == "error") return Failed(rest);
  if (key == "capacity" || Head::Has(key)) {
    if (head.closed) return absl::DataLossError("a row of the head after the tuples");
    if (Head::Has(key)) return head.head.Take(key, std::string(rest));
    if (head.capacity.has_value()) return absl::DataLossError("\"capacity\" is there twice");
    head.capacity = NumberIn(rest);
    return head.capacity.has_value() ? absl::OkStatus()
                                     : absl::DataLossError("capacity is not a number");
  }
  head.closed = true;
  const std::optional<uint64_t> value = NumberIn(rest);
  if (!value.has_value()) return absl::DataLossError("not a row of two numbers");
  if (key == "complete") return tuples.Complete(*value, {}, {});
  if (key == "starting_offset" || key == "ending_offset") return IsAPart(key, *value);
  const std::optional<uint64_t> offset = NumberIn(key);
  if (!offset.has_value()) return absl::DataLossError("not a row of two numbers");
  return tuples.Add(*offset, *value);
}

absl::Status ReadRows(ByteStream& stream, CsvHead& head, Tuples& tuples) {
  constexpr size_t kMaxLine = 8192;
  std::vector<uint8_t> buffer(size_t{64} << 10);
  std::string line;  // the beginning of one that continues in the next buffer
  uint64_t number = 0;
  for (;;) {
    const absl::StatusOr<size_t> count = stream.Read(buffer);
    if (!count.ok()) return count.status();
    if (*count == 0) break;
    std::string_view text(reinterpret_cast<const char*>(buffer.data()), *count);
    while (!text.empty()) {
      const size_t end = text.find('\n');
      line.append(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      absl::Status status;
      if (line.size() > kMaxLine) {
        status = absl::DataLossError("longer than a row can be");
      } else if (end == std::string_view::npos) {
        break;
      } else {
        status = TakeRow(line, number == 0, head, tuples);
      }
      if (!status.ok()) return At(stream.label(), absl::StrCat("line ", number + 1), status);
      ++number;
      line.clear();
    }
  }
  // Without its newline, a row may have lost digits.
  if (line.empty()) return absl::OkStatus();
  return At(stream.label(), absl::StrCat("line ", number + 1), absl::DataLossError("ends early"));
}

}  // namespace

absl::StatusOr<ChangeMap> ReadNdjsonAnswer(ByteStream& stream, const ImportOptions& options) {
  return ReadObjects(stream, options, true);
}

absl::StatusOr<ChangeMap> ReadJsonAnswer(ByteStream& stream, const ImportOptions& options) {
  return ReadObjects(stream, options, false);
}

absl::StatusOr<ChangeMap> ReadCsvAnswer(ByteStream& stream, const ImportOptions& options) {
  absl::StatusOr<ChangeCollector> changes = ChangeCollector::Create(options.granularity);
  if (!changes.ok()) return changes.status();
  Tuples tuples(*changes);
  CsvHead head;
  if (absl::Status status = ReadRows(stream, head, tuples); !status.ok()) return status;
  ImportOptions known = options;
  if (absl::Status status = AgreeOnCapacity(stream, head.capacity, known); !status.ok()) {
    return status;
  }
  const absl::StatusOr<uint64_t> capacity = NeededCapacity(stream.label(), known, "csv");
  if (!capacity.ok()) return capacity.status();
  return Finished(stream, tuples, tuples.unit(), *changes, known);
}

}  // namespace cbt
