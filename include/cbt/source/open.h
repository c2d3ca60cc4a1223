// Any source of change metadata in one call: what a storage system gives, by its address, becomes a
// cursor. Part of cbt::source.
//
//   auto source = cbt::OpenSource("thin_delta.xml", {.capacity = 64 << 30});
//   auto source = cbt::OpenSource("nbd+unix:///?socket=/run/q.sock",
//                                 {.spec = *cbt::ParseSourceSpec("nbd:bitmap=monday")});
//   auto source = cbt::OpenDelta("monday.qcow2", "tuesday.qcow2", {});
#ifndef CBT_SOURCE_OPEN_H_
#define CBT_SOURCE_OPEN_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "cbt/executor.h"
#include "cbt/source/import.h"

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
};

struct SourceFormatInfo {
  const char* name;     // as options spell it
  const char* what;     // what it is, in a few words
  const char* options;  // what a spec may say, "" for nothing
  SourceFormat format;
  bool allocated;  // can tell what is allocated
  bool delta;      // can tell, alone, what changed
  bool detected;   // is known by its content or its address
};

// Every format, in the order of the enumeration.
std::span<const SourceFormatInfo> SourceFormats() noexcept;
const SourceFormatInfo& InfoOf(SourceFormat format) noexcept;

// What a file is that begins with `first_bytes` (the more the better, 64 KiB are plenty); kImage
// for what is none of the others. Dense bitmaps, roaring bytes and file systems look like anything,
// or like images, and are never found.
// Errors: INVALID_ARGUMENT for a list that could be of several formats (an empty one).
absl::StatusOr<SourceFormat> DetectSourceFormat(std::span<const uint8_t> first_bytes);

// A format and what has to be known about it: `bitmap:granularity=64K,order=msb`. Options without a
// value, as `base64`, have an empty one. What opens a source refuses options that its format, named
// or found out, does not take, as ParseSourceSpec() does.
struct SourceSpec {
  // Empty: the content decides, and a guest that writes to the volume chooses that. Name the format
  // wherever it is known.
  std::optional<SourceFormat> format = {};
  std::vector<std::pair<std::string, std::string>> options = {};
};

// Reads `FORMAT` or `FORMAT:KEY=VALUE,...`; the options of each format stand in its
// SourceFormatInfo.
// Errors: INVALID_ARGUMENT that names the format or option that is not known, an option that comes
//         twice, or one without its value (only that of nbd's export may be empty).
absl::StatusOr<SourceSpec> ParseSourceSpec(std::string_view text);

struct SourceOptions {
  SourceSpec spec = {};

  // What to tell: needed where an input can tell both.
  std::optional<SourcePurpose> purpose = {};

  // Sizes of the target and of a larger base in bytes; see ImportOptions.
  std::optional<uint64_t> capacity = {};
  std::optional<uint64_t> base_capacity = {};

  // Extents are rounded outward to multiples of this many bytes. For images a power of two from
  // 512 to 64 MiB.
  uint64_t block_size = 4096;

  // For images; see ImageOptions. Must outlive the cursor.
  Executor* executor = nullptr;
  bool skip_zeros = false;

  // OpenDelta() of two images that are clones of each other (reflinks): compares where their data
  // lies instead of the data, see cbt/source/file_extents.h.
  bool by_extents = false;

  // Opens files in place of open(2), for those who confine where they may lie: a path as the source
  // or, for a backing file, the image gave it; returns a descriptor that is open for reading.
  std::function<absl::StatusOr<int>(const std::string& path)> open = {};

  // How long reading a list may take when it is opened, and then all calls of a source's cursor
  // together; DEADLINE_EXCEEDED after that. The time between the calls does not count. No limit
  // where there is none.
  std::optional<std::chrono::milliseconds> time_limit = {};

  // Stands for the address in messages.
  std::string label = {};
};

struct OpenedSource {
  std::unique_ptr<ExtentCursor> cursor;
  SourceFormat format = SourceFormat::kImage;
  // The names of volume and snapshots, where the input tells them.
  ChangeMapIdentity identity = {};
};

// Opens the source at `address`: a path, "-" for the standard input, or nbd://, nbds://,
// nbd+unix://, nbds+unix://.
// Errors: those of the format's own function; INVALID_ARGUMENT when it can't tell what was asked,
//         and, where no format was named, for a file that is empty or begins as a list does and is
//         none, and for what is a list only by its content and could be a raw volume (a block
//         device, a file of whole sectors without an extension of its format): see
//         docs/guides/reading-sources.md.
absl::StatusOr<OpenedSource> OpenSource(const std::string& address, const SourceOptions& options);

// What changed from `base` to `target`, each the address of a state of the volume: two raw images
// by their bytes (or extents), two qcow2 images by where their data lies. `spec` counts for both;
// its options base-snapshot and snapshot (qcow2) name states of the same or different files.
// Errors: as above; FAILED_PRECONDITION for any other pair: what two states have allocated does not
//         show what changed, since free blocks may hold bytes that differ.
absl::StatusOr<OpenedSource> OpenDelta(const std::string& base, const std::string& target,
                                       const SourceOptions& options);

// Names and versions of the optional libraries that this build reads sources with.
std::vector<std::string> SourceLibraries();

}  // namespace cbt

#endif  // CBT_SOURCE_OPEN_H_
