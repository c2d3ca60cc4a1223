#include "cli/output/extent_writer.h"

#include <string_view>

#include "base/json_string.h"
#include "cli/support/status.h"

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
  text.append("\",\"volume_capacity_bytes\":").append(std::to_string(options.capacity));
  return text;
}

class NdjsonWriter final : public ExtentWriter {
 public:
  NdjsonWriter(Output& output, const WriterOptions& options) : output_(output), options_(options) {}

  void Begin() override { output_.Append(StreamHeader(options_) + "}\n"); }

  void Write(const ExtentBatch& batch) override {
    for (size_t i = 0; i < batch.size(); ++i) {
      char* out = PutTuple(output_.Reserve(kMaxTuple), batch[i]);
      *out++ = '\n';
      output_.Commit(out);
    }
  }

  void End() override {}

  void Fail(const absl::Status& reason) override {
    output_.Append("{\"error\":" + JsonString(MessageOf(reason)) + "}\n");
  }

 private:
  Output& output_;
  const WriterOptions options_;
};

// One object, or one per `tuples_per_object` tuples, as a service would send them.
class JsonWriter final : public ExtentWriter {
 public:
  JsonWriter(Output& output, const WriterOptions& options) : output_(output), options_(options) {}

  void Begin() override {}

  void Write(const ExtentBatch& batch) override {
    for (size_t i = 0; i < batch.size(); ++i) {
      if (!open_) Open();
      char* out = output_.Reserve(kMaxTuple);
      if (tuples_ != 0) *out++ = ',';
      output_.Commit(PutTuple(out, batch[i]));
      if (++tuples_ == options_.tuples_per_object) Shut();
    }
  }

  void End() override {
    // A stream without tuples is still one message.
    if (!open_ && !any_) Open();
    if (open_) Shut();
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
    any_ = true;
    tuples_ = 0;
  }

  void Shut() {
    output_.Append("]}\n");
    open_ = false;
  }

  Output& output_;
  const WriterOptions options_;
  bool open_ = false;
  bool any_ = false;
  uint64_t tuples_ = 0;
};

class CsvWriter final : public ExtentWriter {
 public:
  explicit CsvWriter(Output& output) : output_(output) {}

  void Begin() override { output_.Append("byte_offset,size_bytes\n"); }

  void Write(const ExtentBatch& batch) override {
    for (size_t i = 0; i < batch.size(); ++i) {
      char* out = PutNumber(output_.Reserve(kMaxTuple), batch[i].offset);
      *out++ = ',';
      out = PutNumber(out, batch[i].length);
      *out++ = '\n';
      output_.Commit(out);
    }
  }

  void End() override {}

  void Fail(const absl::Status& reason) override {
    const std::string message = OneLine(MessageOf(reason));
    if (message.find_first_of(",\"") == std::string::npos) {
      output_.Append("error," + message + "\n");
      return;
    }
    std::string quoted;
    for (const char c : message) quoted.append(c == '"' ? 2 : 1, c);
    output_.Append("error,\"" + quoted + "\"\n");
  }

 private:
  Output& output_;
};

}  // namespace

std::unique_ptr<ExtentWriter> MakeExtentWriter(Output& output, const WriterOptions& options) {
  switch (options.format) {
    case Format::kJson:
      return std::make_unique<JsonWriter>(output, options);
    case Format::kCsv:
      return std::make_unique<CsvWriter>(output);
    case Format::kTable:
      return MakeTableWriter(output, options);
    case Format::kNdjson:
      break;
  }
  return std::make_unique<NdjsonWriter>(output, options);
}

}  // namespace cbt::cli
