// The formats in which a stream of extents is printed.
#ifndef CBT_PROGRAMS_CBT_OUTPUT_EXTENT_WRITER_H_
#define CBT_PROGRAMS_CBT_OUTPUT_EXTENT_WRITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cbt/batch.h"
#include "cbt/extent.h"
#include "cbt/wire/message.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/terminal.h"

namespace cbt::cli {

enum class Format { kNdjson, kJson, kCsv, kTable };

// What an answer is about, for its head; empty where it is unknown.
struct AnswerSource {
  std::string base;
  std::string snapshot;
  std::string version;  // of the data, if a later part can be compared with it
};

// Everything a writer needs to know besides the extents.
struct WriterOptions {
  Format format = Format::kNdjson;
  BlockMetadataType type = BlockMetadataType::kVariableLength;
  std::optional<uint64_t> capacity = {};  // bytes; unset: unknown
  AnswerSource source{};
  uint64_t starting_offset = 0;            // bytes
  uint64_t ending_offset = ~uint64_t{0};   // bytes; what was requested ends here or at the capacity
  uint32_t tuples_per_object = 0;          // json: 0: one object for all
  std::string_view adjective = "changed";  // table: describes the reported bytes
  Glyphs glyphs = Glyphs::kAscii;          // table: of the picture
};

// Prints one stream: Begin(), any number of Write(), then End() or Fail(). Output::status() reports
// whether writing failed. Every format but the table ends a complete answer with a marker, so that
// the reader of a pipe sees whether the program was killed (docs/reference/answers.md).
class ExtentWriter {
 public:
  virtual ~ExtentWriter() = default;
  ExtentWriter(const ExtentWriter&) = delete;
  ExtentWriter& operator=(const ExtentWriter&) = delete;

  virtual void Begin() = 0;
  virtual void Write(const ExtentBatch& batch) = 0;
  // The stream is complete.
  virtual void End() = 0;
  // The stream broke: ends the output so that it can't be mistaken for a complete answer.
  virtual void Fail(const absl::Status& reason) = 0;

 protected:
  ExtentWriter() = default;
};

// `output` must outlive the writer.
std::unique_ptr<ExtentWriter> MakeExtentWriter(Output& output, const WriterOptions& options);
// The writer for Format::kTable.
std::unique_ptr<ExtentWriter> MakeTableWriter(Output& output, const WriterOptions& options);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_OUTPUT_EXTENT_WRITER_H_
