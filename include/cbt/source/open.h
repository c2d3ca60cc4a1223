// Opens any source of change metadata by its address and returns a cursor over it. Part of
// cbt::source.
//
// snippet: tests/consumer/snippets/source.cc#open
//   auto list = cbt::OpenSource("thin_delta.xml", {.capacity = 64 * cbt::kGiB});
//   auto spec = cbt::ParseSourceSpec("nbd:bitmap=monday");
//   if (!spec.ok()) return spec.status();
//   auto bitmap = cbt::OpenSource("nbd+unix:///?socket=/run/q.sock", {.spec = *spec});
//   auto delta = cbt::OpenDelta("monday.qcow2", "tuesday.qcow2", {});
#ifndef CBT_SOURCE_OPEN_H_
#define CBT_SOURCE_OPEN_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "cbt/executor.h"
#include "cbt/source/lists.h"
#include "cbt/units.h"

namespace cbt {

enum class SourceFormat : uint8_t {
  kImage,
  kChangeMap,
  kRoaring64,
  kRoaring32,
  kBitmap,
  kQcow2,
  kQemuMap,
  kNbd,
  kRbdDiff,
  kRbdJson,
  kThinDelta,
  kThinDump,
  kEraInvalidate,
  kEraDump,
  kBtrfsSend,
  kEbs,
  kVmware,
  kExt,
  kNdjson,
  kJson,
  kCsv,
  kPartclone,
};

struct SourceFormatInfo {
  const char* name;     // as spelled in a spec
  const char* what;     // a short description
  const char* options;  // the options that a spec may set, "" if none
  SourceFormat format;
  bool allocated;  // can report what is allocated
  bool delta;      // can report, by itself, what changed
  bool detected;   // is recognized by its content or address
};

// Every format, in the order of the enumeration.
std::span<const SourceFormatInfo> SourceFormats() noexcept;
const SourceFormatInfo& InfoOf(SourceFormat format) noexcept;

// The format of a file that begins with `first_bytes` (64 KiB are plenty; fewer may not be enough);
// kImage if no other format matches. Dense bitmaps, roaring bytes and file systems have no reliable
// signature and are never detected.
// Errors: INVALID_ARGUMENT for a list that fits several formats, such as an empty one.
absl::StatusOr<SourceFormat> DetectSourceFormat(std::span<const uint8_t> first_bytes);

// A format and its options: `bitmap:granularity=64K,order=msb`. An option without a value, such as
// `base64`, has an empty one. Opening a source refuses options that its format, named or detected,
// does not take, as ParseSourceSpec() does.
struct SourceSpec {
  // If empty, the content decides, and a guest that writes to the volume controls the content. Name
  // the format wherever it is known.
  std::optional<SourceFormat> format = {};
  std::vector<std::pair<std::string, std::string>> options = {};
};

// Parses `FORMAT` or `FORMAT:KEY=VALUE,...`; SourceFormatInfo lists the options of each format.
// Errors: INVALID_ARGUMENT naming an unknown format or option, an option given twice, or one
//         without its value (only that of nbd's export may be empty).
absl::StatusOr<SourceSpec> ParseSourceSpec(std::string_view text);

struct SourceOptions {
  SourceSpec spec = {};

  // Required if the input can report both.
  std::optional<SourcePurpose> purpose = {};

  // Sizes of the target and of a larger base in bytes; see ImportOptions.
  std::optional<uint64_t> capacity = {};
  std::optional<uint64_t> base_capacity = {};

  // Extents are rounded outward to multiples of this many bytes. For images, a power of two from
  // 512 to 64 MiB. 0: not at all; the blocks are the source's own, and 4096 bytes for images and
  // lists, which have none. It is not the block size of roaring bytes and dense bitmaps, which
  // their own options give (block-size=N, granularity=N).
  uint64_t block_size = 4096;

  // For images; see ImageOptions. Must outlive the cursor.
  Executor* executor = nullptr;
  bool skip_zeros = false;

  // OpenDelta() of two images that are clones of each other (reflinks): compares where their data
  // lies instead of the data itself; see cbt/source/file_extents.h.
  bool by_extents = false;

  // Replaces open(2), for callers that restrict where files may lie. Takes the path of the source,
  // or of a backing file as the image names it; returns a descriptor open for reading.
  std::function<absl::StatusOr<int>(const std::string& path)> open = {};

  // Limits the time to read a list when it is opened, and then the total time of all calls of the
  // source's cursor; DEADLINE_EXCEEDED after that. Time between the calls does not count. No limit
  // if empty.
  std::optional<std::chrono::milliseconds> time_limit = {};

  // Ends what waits or reads with CANCELLED, in a fraction of a second: lists and bitmaps that are
  // read when they are opened, pipes, NBD servers, the descriptors of ext. A call of the system
  // that hangs in the kernel is not interrupted, nor is the resolution of a host's name.
  std::stop_token stop = {};

  // Replaces the address in messages.
  std::string label = {};
};

struct OpenedSource {
  std::unique_ptr<ExtentCursor> cursor;
  SourceFormat format = SourceFormat::kImage;
  // The names of volume and snapshots, if the input holds them.
  ChangeMapIdentity identity = {};
};

// Opens the source at `address`: a path, "-" for standard input, or nbd://, nbds://, nbd+unix://,
// nbds+unix://.
// Errors: those of the format's own function; INVALID_ARGUMENT if the source can't answer what was
//         asked and, if no format was named, for a file that is empty, for one that begins like a
//         list but is not one, and for one that only its content marks as a list and that could be
//         a raw volume (a block device, a file of whole sectors without an extension of its
//         format): see docs/reference/sources.md.
absl::StatusOr<OpenedSource> OpenSource(const std::string& address, const SourceOptions& options);

// What changed from `base` to `target`, each the address of a state of the volume: two raw images
// by their bytes (or extents), two qcow2 images by where their data lies. `spec` applies to both;
// its options base-snapshot and snapshot (qcow2) name states of the same or of different files.
// Errors: as above; FAILED_PRECONDITION for any other pair: what two states have allocated does not
//         show what changed, since free blocks may hold bytes that differ.
absl::StatusOr<OpenedSource> OpenDelta(const std::string& base, const std::string& target,
                                       const SourceOptions& options);

// Names and versions of the optional libraries that this build uses to read sources. One that is
// loaded when a source needs it has the name of its file.
std::vector<std::string> SourceLibraries();

}  // namespace cbt

#endif  // CBT_SOURCE_OPEN_H_
