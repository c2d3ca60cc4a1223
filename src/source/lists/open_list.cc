// Opens the lists that storage systems and their tools print.
#include <cstdint>

#include "cbt/source/byte_stream.h"
#include "cbt/source/lists.h"
#include "source/open/openers.h"

namespace cbt {
namespace {

template <typename Read, typename Options>
absl::StatusOr<OpenedSource> OpenList(SourceRequest& request, Read read, const Options& options) {
  absl::StatusOr<ByteStream*> stream = request.Stream();
  if (!stream.ok()) return stream.status();
  return OfMap(read(**stream, options));
}

absl::StatusOr<OpenedSource> OpenEra(SourceRequest& request) {
  EraOptions options = {.import = ImportOf(request)};
  const bool dump = request.format() == SourceFormat::kEraDump;
  const char* const key = dump ? "since-era" : "block-size";
  if (request.Option(key).has_value()) {
    uint64_t number = 0;
    absl::Status status = request.Number(key, kMaxCapacity, number);
    if (!status.ok()) return status;
    (dump ? options.since_era : options.block_size) = number;
  }
  absl::Status status = request.Choice("empty", "unknown", "unwritten", options.empty_is_unwritten);
  if (!status.ok()) return status;
  return OpenList(request, dump ? ReadEraDump : ReadEraInvalidate, options);
}

absl::StatusOr<OpenedSource> OpenThinDump(SourceRequest& request) {
  ThinDumpOptions options = {.import = ImportOf(request)};
  if (request.Option("device").has_value()) {
    uint64_t device = 0;
    absl::Status status = request.Number("device", ~uint64_t{0}, device);
    if (!status.ok()) return status;
    options.device = device;
  }
  return OpenList(request, ReadThinDump, options);
}

}  // namespace

absl::StatusOr<OpenedSource> OpenListSource(SourceRequest& request) {
  switch (request.format()) {
    case SourceFormat::kQemuMap:
      return OpenList(request, ReadQemuMap, ImportOf(request));
    case SourceFormat::kRbdDiff:
      return OpenList(request, ReadRbdDiff,
                      RbdDiffOptions{.import = ImportOf(request),
                                     .base = request.Option("base").value_or(""),
                                     .target = request.Option("target").value_or("")});
    case SourceFormat::kRbdJson:
      return OpenList(request, ReadRbdDiffJson, ImportOf(request));
    case SourceFormat::kThinDelta:
      return OpenList(request, ReadThinDelta, ImportOf(request));
    case SourceFormat::kThinDump:
      return OpenThinDump(request);
    case SourceFormat::kEraInvalidate:
    case SourceFormat::kEraDump:
      return OpenEra(request);
    case SourceFormat::kEbs:
      return OpenList(request, ReadEbsPages, ImportOf(request));
    case SourceFormat::kVmware:
      return OpenList(request, ReadVmwareAreas, ImportOf(request));
    case SourceFormat::kNdjson:
      return OpenList(request, ReadNdjsonAnswer, ImportOf(request));
    case SourceFormat::kJson:
      return OpenList(request, ReadJsonAnswer, ImportOf(request));
    case SourceFormat::kCsv:
      return OpenList(request, ReadCsvAnswer, ImportOf(request));
    default:
      return absl::InternalError("not a list");
  }
}

}  // namespace cbt
