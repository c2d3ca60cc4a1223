#include "programs/cbt/output/extent_writer.h"

#include <string_view>

#include "base/text.h"
#include "cbt/wire/digest.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

constexpr std::string_view kTupleStart = "{\"byte_offset\":";
constexpr std::string_view kTupleMiddle = ",\"size_bytes\":";
constexpr size_t kMaxTuple = 96;  // an upper bound in all formats

char* PutTuple(char* out, Extent extent) noexcept {
  out = PutText(out, kTupleStart);
  out = PutNumber(out, extent.offset);
  out = PutText(out, kTupleMiddle);
  out = PutNumber(out, extent.length);
  *out++ = '}';
  return out;
}

std::string StreamHeader(const WriterOptions& options) {
  std::string text = "{\"block_metadata_type\":\"";
  text.append(BlockMetadataTypeName(options.type));
  text.append("\",\"volume_capacity_bytes\":");
  text.append(options.capacity.has_value() ? std::to_string(*options.capacity) : "null");
  const auto add = [&text](const char* name, const std::string& value) {
    if (!value.empty()) text.append(",\"").append(name).append("\":").append(JsonString(value));
  };
  add("base", options.source.base);
  add("snapshot", options.source.snapshot);
  add("source_version", options.source.version);
  return text;
}

// The members of the end marker besides `complete`.
std::string MarkerMembers(const StreamDigest& digest, const WriterOptions& options) {
  std::string text = "\"tuples\":" + std::to_string(digest.tuples()) +
                     ",\"bytes\":" + std::to_string(digest.bytes()) +
                     ",\"digest\":\"xxh3-64:" + digest.DigestText() + "\"";
  // A part of an answer must not be taken for the whole.
  if (options.starting_offset != 0) {
    text += ",\"starting_offset\":" + std::to_string(options.starting_offset);
  }
  if (options.ending_offset < options.capacity.value_or(0)) {
    text += ",\"ending_offset\":" + std::to_string(options.ending_offset);
  }
  return text;
}

class NdjsonWriter final : public ExtentWriter {
 public:
  NdjsonWriter(Output& output, const WriterOptions& options) : output_(output), options_(options) {}

  void Begin() override { output_.Append(StreamHeader(options_) + "}\n"); }

  void Write(const ExtentBatch& batch) override {
    digest_.Add(batch.offsets(), batch.lengths());
    for (size_t i = 0; i < batch.size(); ++i) {
      char* out = PutTuple(output_.Reserve(kMaxTuple), batch[i]);
      *out++ = '\n';
      output_.Commit(out);
    }
  }

  void End() override {
    output_.Append("{\"complete\":true," + MarkerMembers(digest_, options_) + "}\n");
  }

  void Fail(const absl::Status& reason) override {
    output_.Append("{\"error\":" + JsonString(MessageOf(reason)) + "}\n");
  }

 private:
  Output& output_;
  const WriterOptions options_;
  StreamDigest digest_;
};

// One object, or one per `tuples_per_object` tuples, as a service would send them. The last one has
// the end marker, whose numbers are those of the whole answer. So an object is closed only when it
// is known whether another follows.
class JsonWriter final : public ExtentWriter {
 public:
  JsonWriter(Output& output, const WriterOptions& options) : output_(output), options_(options) {}

  void Begin() override {}

  void Write(const ExtentBatch& batch) override {
    digest_.Add(batch.offsets(), batch.lengths());
    for (size_t i = 0; i < batch.size(); ++i) {
      if (open_ && options_.tuples_per_object != 0 && tuples_ == options_.tuples_per_object) {
        output_.Append("]}\n");
        open_ = false;
      }
      if (!open_) Open();
      char* out = output_.Reserve(kMaxTuple);
      if (tuples_ != 0) *out++ = ',';
      output_.Commit(PutTuple(out, batch[i]));
      ++tuples_;
    }
  }

  void End() override {
    // A stream without tuples is still one message.
    if (!open_) Open();
    output_.Append("]," + MarkerMembers(digest_, options_) + ",\"complete\":true}\n");
  }

  void Fail(const absl::Status&) override {
    // Leave the array open: no parser accepts it as an answer.
    if (!open_) Open();
    output_.Append("\n");
  }

 private:
  void Open() {
    output_.Append(StreamHeader(options_) + ",\"block_metadata\":[");
    open_ = true;
    tuples_ = 0;
  }

  Output& output_;
  const WriterOptions options_;
  StreamDigest digest_;
  bool open_ = false;
  uint64_t tuples_ = 0;
};

class CsvWriter final : public ExtentWriter {
 public:
  CsvWriter(Output& output, const WriterOptions& options) : output_(output), options_(options) {}

  void Begin() override {
    output_.Append("byte_offset,size_bytes\n");
    if (options_.capacity.has_value()) {
      output_.Append("capacity," + std::to_string(*options_.capacity) + "\n");
    }
    AddRow("base", options_.source.base);
    AddRow("snapshot", options_.source.snapshot);
    AddRow("source_version", options_.source.version);
  }

  void Write(const ExtentBatch& batch) override {
    tuples_ += batch.size();
    for (size_t i = 0; i < batch.size(); ++i) {
      char* out = PutNumber(output_.Reserve(kMaxTuple), batch[i].offset);
      *out++ = ',';
      out = PutNumber(out, batch[i].length);
      *out++ = '\n';
      output_.Commit(out);
    }
  }

  void End() override {
    if (options_.starting_offset != 0) {
      output_.Append("starting_offset," + std::to_string(options_.starting_offset) + "\n");
    }
    if (options_.ending_offset < options_.capacity.value_or(0)) {
      output_.Append("ending_offset," + std::to_string(options_.ending_offset) + "\n");
    }
    output_.Append("complete," + std::to_string(tuples_) + "\n");
  }

  void Fail(const absl::Status& reason) override { AddRow("error", MessageOf(reason)); }

 private:
  // Nothing without a text.
  void AddRow(const std::string& key, const std::string& text) {
    if (text.empty()) return;
    const std::string line = OneLine(text);
    if (line.find_first_of(",\"") == std::string::npos) {
      output_.Append(key + "," + line + "\n");
      return;
    }
    std::string quoted;
    for (const char c : line) quoted.append(c == '"' ? 2 : 1, c);
    output_.Append(key + ",\"" + quoted + "\"\n");
  }

  Output& output_;
  const WriterOptions options_;
  uint64_t tuples_ = 0;
};

}  // namespace

std::unique_ptr<ExtentWriter> MakeExtentWriter(Output& output, const WriterOptions& options) {
  switch (options.format) {
    case Format::kJson:
      return std::make_unique<JsonWriter>(output, options);
    case Format::kCsv:
      return std::make_unique<CsvWriter>(output, options);
    case Format::kTable:
      return MakeTableWriter(output, options);
    case Format::kNdjson:
      break;
  }
  return std::make_unique<NdjsonWriter>(output, options);
}

}  // namespace cbt::cli
