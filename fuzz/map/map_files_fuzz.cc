// Files on disk, damaged or hostile: change-map files, manifests of chains, region logs. Each is an
// error, or contents that encode to the same bytes.
//
// All of them have checksums, which no mutation passes by chance. The fuzzer computes them, unless
// the first byte asks for the input as it is.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/directory.h"
#include "base/manifest_bytes.h"
#include "cbt/change_map_file.h"
#include "fuzz/support/check.h"
#include "fuzz/support/input.h"
#include "map/chain/chain_manifest.h"
#include "map/map_cursor.h"
#include "map/map_file.h"
#include "map/tracker/region_log.h"
#include "map/tracker/tracker_manifest.h"

namespace {

using Bytes = std::vector<uint8_t>;

void Store(Bytes& bytes, size_t at, uint64_t number) {
  if (at + 8 <= bytes.size()) std::memcpy(bytes.data() + at, &number, 8);
}

// Fills in the digests and checksums at the places given by the header's size, and the payload's
// size.
void SealMap(Bytes& bytes) {
  if (bytes.size() < 88) return;
  uint32_t header = 0;
  std::memcpy(&header, bytes.data() + 12, sizeof header);
  if (header > bytes.size() || header < 88) return;
  const std::span<const uint8_t> payload = std::span(bytes).subspan(header);
  Store(bytes, 56, payload.size());
  const size_t pieces = (payload.size() + 65535) / 65536;
  if (header < 88 + 8 * pieces) return;
  for (size_t i = 0; i < pieces; ++i) {
    const auto piece =
        payload.subspan(i * 65536, std::min<size_t>(65536, payload.size() - i * 65536));
    Store(bytes, header - 8 * (pieces - i) - 8, cbt::Checksum(piece));
  }
  Store(bytes, header - 8, cbt::Checksum({bytes.data(), header - size_t{8}}));
}

// Flips single bits across the file, from `where` on: each must be rejected.
template <typename Decode>
void CheckFlips(Bytes bytes, uint64_t where, Decode decode) {
  const size_t bits = bytes.size() * 8;
  const size_t flips = bytes.size() < 4096 ? 32 : 4;
  for (size_t i = 0; i < flips; ++i) {
    const size_t bit = (where + i * (bits / flips)) % bits;
    const uint8_t right = bytes[bit / 8];
    bytes[bit / 8] = static_cast<uint8_t>(right ^ 1u << bit % 8);
    CBT_FUZZ_CHECK(!decode(bytes).ok());
    bytes[bit / 8] = right;
  }
}

void MapFile(Bytes bytes, bool seal, uint64_t where) {
  if (seal) SealMap(bytes);
  const auto map = cbt::DecodeChangeMap(bytes, "file");
  const auto lazy = cbt::OpenLazily(bytes, nullptr, "file");
  if (map.ok()) {
    CBT_FUZZ_CHECK(lazy.ok());
    CBT_FUZZ_CHECK(lazy->header.geometry == (*map)->geometry());
    CBT_FUZZ_CHECK(lazy->header.identity == map->identity());
    CBT_FUZZ_CHECK(lazy->header.cardinality == (*map)->cardinality());
    const auto again = cbt::DecodeChangeMap(*cbt::EncodeChangeMap(*map), "again");
    CBT_FUZZ_CHECK(again.ok() && again->view() == map->view());
    CBT_FUZZ_CHECK(again->identity() == map->identity());
    CheckFlips(bytes, where, [](const Bytes& b) { return cbt::DecodeChangeMap(b, "flipped"); });
  } else {
    CBT_FUZZ_CHECK(map.status().code() != absl::StatusCode::kInternal);
  }
  if (!lazy.ok()) return;
  // A map of a few bytes can describe a volume that takes forever to read.
  const auto cursor = cbt::MakeContainerCursor({lazy->index}, lazy->header.geometry);
  cbt::ExtentBatch batch;
  bool failed = false;
  for (int i = 0; i < 100 && !failed; ++i) {
    const auto step = cursor->Next(batch);
    failed = !step.ok();
    CBT_FUZZ_CHECK(step.ok() || !map.ok());
    if (!step.ok() || *step == cbt::Step::kComplete) break;
  }
}

// For chains and trackers.
template <typename Decode>
void Manifest(Bytes bytes, bool seal, uint64_t where, Decode decode) {
  if (seal && bytes.size() >= 8) {
    Store(bytes, bytes.size() - 8, cbt::Checksum({bytes.data(), bytes.size() - 8}));
  }
  const auto manifest = decode(bytes);
  if (!manifest.ok()) {
    CBT_FUZZ_CHECK(manifest.status().code() == absl::StatusCode::kDataLoss ||
                   manifest.status().code() == absl::StatusCode::kInvalidArgument ||
                   manifest.status().code() == absl::StatusCode::kUnimplemented);
    return;
  }
  // Of a later minor version and an earlier major one, which are read, but not written.
  const Bytes again = cbt::EncodeManifest(*manifest);
  constexpr size_t kMajor = 8;
  constexpr size_t kMinor = 10;
  if (std::equal(again.begin(), again.begin() + kMinor, bytes.begin())) {
    CBT_FUZZ_CHECK(again.size() == bytes.size());
    CBT_FUZZ_CHECK(
        std::equal(again.begin() + kMinor + 2, again.end() - 8, bytes.begin() + kMinor + 2));
  } else {
    CBT_FUZZ_CHECK(bytes[kMajor] < again[kMajor]);
    const auto written = decode(again);
    CBT_FUZZ_CHECK(written.ok() && cbt::EncodeManifest(*written) == again);
  }
  CheckFlips(bytes, where, decode);
}

absl::StatusOr<cbt::ChainManifest> DecodeChain(const Bytes& bytes) {
  return cbt::DecodeManifest(bytes, "CHAIN");
}

absl::StatusOr<cbt::TrackerManifest> DecodeTracker(const Bytes& bytes) {
  return cbt::DecodeTrackerManifest(bytes, "TRACKER");
}

constexpr size_t kLogHeader = 12288;

// A header for a few regions with some bytes changed; each record is valid or not.
void Log(cbt::fuzz::Input input, bool seal) {
  cbt::RegionLogHeader header;
  header.region_bytes = 1 + input.Take(1);
  header.geometry = {header.region_bytes * (1 + input.Take(1) % 64) - input.Take(1) % 2, 1};
  header.epoch = input.Take(1);
  header.number = input.Take(1);
  Bytes bytes(kLogHeader);
  const uint8_t magic[] = {0x89, 'C', 'B', 'L', '\r', '\n', 0x1a, '\n', 2};
  std::copy(std::begin(magic), std::end(magic), bytes.begin());
  Store(bytes, 16, header.geometry.capacity);
  Store(bytes, 24, header.geometry.granularity);
  Store(bytes, 32, header.region_bytes);
  Store(bytes, 40, header.epoch);
  Store(bytes, 48, header.number);
  bytes[64] = 3;
  std::memcpy(bytes.data() + 66, "vol", 3);
  bytes[69] = 6;
  std::memcpy(bytes.data() + 71, "monday", 6);
  const Bytes original = bytes;
  const uint64_t edits = input.Take(1) % 4;
  for (uint64_t i = 0; i < edits; ++i) {
    bytes[input.Take(1) % 96] = static_cast<uint8_t>(input.Take(1));
  }
  const uint64_t checksum = cbt::Checksum({bytes.data(), kLogHeader - 8});
  Store(bytes, kLogHeader - 8, seal ? checksum : input.Take(8));
  uint64_t seed = 0;
  std::memcpy(&seed, bytes.data() + kLogHeader - 8, 8);

  const uint64_t places = header.regions();
  bytes.resize(kLogHeader + 16 * places);
  std::vector<uint64_t> regions;
  bool sound = true;
  bool ended = false;
  for (uint64_t place = 0; place < places; ++place) {
    const uint64_t shape = input.empty() ? 1 : input.Take(1);
    uint64_t number = input.Take(1) % (places + 3);
    if ((shape & 7) == 1) number = 0;
    Bytes text(24);
    Store(text, 0, seed);
    Store(text, 8, place + ((shape & 7) == 2 ? 1 : 0));
    Store(text, 16, number);
    uint64_t check = cbt::Checksum(text) | 1;
    if ((shape & 7) == 3) check ^= uint64_t{1} << (shape >> 3);
    // A lost sector reads as zeros.
    if ((shape & 7) == 4) number = check = 0;
    Store(bytes, kLogHeader + 16 * place, number);
    Store(bytes, kLogHeader + 16 * place + 8, check);
    const bool right = number <= places && ((shape & 7) < 2 || (shape & 7) > 4);
    if (!right || (ended && number != 0)) {
      sound = false;
    } else if (number == 0) {
      ended = true;
    } else if (sound) {
      regions.push_back(number - 1);
    }
  }
  const uint64_t tail = input.Take(1) % 8;
  if (tail == 1) bytes.resize(bytes.size() + 1 + input.Take(1));
  if (tail == 2) bytes.resize(bytes.size() - std::min<uint64_t>(bytes.size(), 1 + input.Take(2)));
  const bool resized = tail == 1 || tail == 2;

  const int descriptor = memfd_create("log", MFD_CLOEXEC);
  CBT_FUZZ_CHECK(descriptor >= 0);
  CBT_FUZZ_CHECK(write(descriptor, bytes.data(), bytes.size()) ==
                 static_cast<ssize_t>(bytes.size()));
  static const cbt::Directory directory = *cbt::Directory::Open("/proc/self/fd");
  const auto read = cbt::RegionLog::Read(directory, std::to_string(descriptor));
  close(descriptor);
  const bool same_header = bytes.size() >= kLogHeader - 8 &&
                           std::equal(original.begin(), original.end() - 8, bytes.begin());
  if (bytes.size() >= kLogHeader && same_header) {
    CBT_FUZZ_CHECK(read.ok() == (seed == checksum));
  }
  if (!read.ok()) {
    CBT_FUZZ_CHECK(read.status().code() == absl::StatusCode::kDataLoss ||
                   read.status().code() == absl::StatusCode::kUnimplemented);
    return;
  }
  CBT_FUZZ_CHECK(bytes.size() >= kLogHeader && seed == checksum);
  if (!same_header) return;
  CBT_FUZZ_CHECK(read->header.geometry == header.geometry);
  CBT_FUZZ_CHECK(read->header.region_bytes == header.region_bytes);
  CBT_FUZZ_CHECK(read->header.epoch == header.epoch);
  CBT_FUZZ_CHECK(read->header.number == header.number);
  CBT_FUZZ_CHECK(read->header.volume == "vol" && read->header.base == "monday");
  CBT_FUZZ_CHECK(read->sound == (sound && !resized));
  if (read->sound) CBT_FUZZ_CHECK(read->regions == regions);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const bool seal = (data[0] & 3) != 0;
  const uint64_t where = data[1] | uint64_t{data[2]} << 8;
  const Bytes rest(data + 3, data + size);
  switch (data[0] >> 2 & 3) {
    case 0:
      MapFile(rest, seal, where);
      break;
    case 1:
      Manifest(rest, seal, where, DecodeTracker);
      break;
    case 2:
      Manifest(rest, seal, where, DecodeChain);
      break;
    default:
      Log({data + 1, size - 1}, seal);
      break;
  }
  return 0;
}
