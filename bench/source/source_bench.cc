// source/<format>/<entries>/<impl>: the output of a storage system, to a change map or to extents.
//
//   cbt       the importer, or the cursor read to its end
//   reversed  a dense bitmap of big-endian 32-bit words
//   parser    only RapidJSON or expat, ignoring what they find
//   limit     counts the bytes, eight at a time
//
// Bytes are those of the input: the text of lists, the records and data of diffs, the bits of
// bitmaps, the tables of qcow2 images.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/source/dense_bitmap.h"
#include "cbt/source/qcow2.h"
#include "cbt/units.h"
#include "source/lists/json_records.h"
#include "source/lists/xml_records.h"
#include "tests/source/support/listings.h"

namespace cbt::bench {
namespace {

using reference::Ranges;

// Text and binary lists of this many ranges.
constexpr uint64_t kEntries = 500'000;

std::span<const uint8_t> BytesOf(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

[[noreturn]] void Die(const absl::Status& status) {
  std::fprintf(stderr, "source_bench: %s\n", status.ToString().c_str());
  std::exit(1);
}

// An input and the work on it.
struct Input {
  std::string bytes;
  uint64_t capacity = 0;
  std::shared_ptr<const Image> image;  // for inputs that are read from a file
};

// Created for the first row that needs it, and freed for the next input.
const Input& InputOf(const std::string& name, const std::function<Input()>& make) {
  static std::string present;
  static Input input;
  if (present != name) {
    input = Input();
    input = make();
    present = name;
  }
  return input;
}

using Job = std::function<void(const Input&)>;

void AddRow(const std::string& name, const std::string& impl, const std::function<Input()>& make,
            const Job& job) {
  const auto run = [=](benchmark::State& state) {
    const Input& input = InputOf(name, make);
    for (auto _ : state) job(input);
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(input.bytes.size()));
  };
  benchmark::RegisterBenchmark(("source/" + name + "/" + impl).c_str(), run)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

void CountBytes(const Input& input) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 8 <= input.bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, input.bytes.data() + i, sizeof(word));
    sum += word;
  }
  benchmark::DoNotOptimize(sum);
}

class NoJson final : public JsonEvents {
  absl::Status Open(int, std::string_view, bool) override { return absl::OkStatus(); }
  absl::Status Close(int, bool) override { return absl::OkStatus(); }
  absl::Status Value(int, std::string_view, const JsonScalar&) override { return absl::OkStatus(); }
};

class NoXml final : public XmlEvents {
  absl::Status Open(int, std::string_view, const XmlAttributes&) override {
    return absl::OkStatus();
  }
  absl::Status Close(int, std::string_view) override { return absl::OkStatus(); }
};

// Ranges of one to four units with gaps of one to seven.
Ranges Scattered(uint64_t entries) {
  std::mt19937_64 random(1);
  Ranges ranges;
  uint64_t at = 0;
  for (uint64_t i = 0; i < entries; ++i) {
    at += 1 + random() % 7;
    const uint64_t length = 1 + random() % 4;
    ranges.emplace_back(at, length);
    at += length;
  }
  return ranges;
}

void Parse(const Input& input) {
  const auto stream = MakeBorrowedMemoryStream(BytesOf(input.bytes), "list");
  NoJson json_events;
  NoXml xml_events;
  const absl::Status status =
      input.bytes.front() == '<' ? ReadXml(*stream, xml_events) : ReadJson(*stream, json_events);
  if (!status.ok()) Die(status);
}

// The job of an importer.
template <typename Read>
Job Importer(Read read) {
  return [read](const Input& input) {
    const auto stream = MakeBorrowedMemoryStream(BytesOf(input.bytes), "list");
    const absl::StatusOr<ChangeMap> map = read(*stream, {.capacity = input.capacity});
    if (!map.ok()) Die(map.status());
    benchmark::DoNotOptimize((*map)->cardinality());
  };
}

void AddListings() {
  for (const test::Listing& listing : test::Listings()) {
    // A status for every seven bytes would be meaningless; see below.
    if (listing.name == "Vmware" || listing.name == "RbdDiff") continue;
    // An era dump has an element for each block, also for those between the ranges.
    const uint64_t entries = listing.name == "EraDump" ? kEntries / 10 : kEntries;
    const auto make = [listing, entries] {
      Ranges ranges = Scattered(entries);
      const uint64_t units = ranges.back().first + ranges.back().second;
      if (listing.unit > 1) return Input{listing.write(ranges, units), units * listing.unit, {}};
      for (auto& [offset, length] : ranges) {
        offset *= 4096;
        length *= 4096;
      }
      return Input{listing.write(ranges, units * 4096), units * 4096, {}};
    };
    const std::string name = absl::StrCat(listing.name, "/", entries);
    AddRow(name, "cbt", make, Importer(listing.read));
    // csv is split by the importer itself.
    if (listing.name != "Csv") AddRow(name, "parser", make, Parse);
    AddRow(name, "limit", make, CountBytes);
  }
}

void AddVmware() {
  const auto make = [] {
    std::string areas;
    uint64_t end = 0;
    for (const auto& [begin, length] : Scattered(kEntries)) {
      absl::StrAppend(&areas, areas.empty() ? "" : ",", "{\"start\":", begin * 65536,
                      ",\"length\":", length * 65536, "}");
      end = (begin + length) * 65536;
    }
    return Input{
        absl::StrCat("{\"startOffset\":0,\"length\":", end, ",\"changedArea\":[", areas, "]}"),
        end,
        {}};
  };
  const std::string name = absl::StrCat("Vmware/", kEntries);
  AddRow(name, "cbt", make, Importer(ReadVmwareAreas));
  AddRow(name, "parser", make, Parse);
  AddRow(name, "limit", make, CountBytes);
}

// Diffs with only records, the worst case, and one with 16 KiB of data each.
void AddRbdDiffs() {
  for (const bool data : {false, true}) {
    const uint64_t entries = data ? kEntries / 100 : kEntries;
    const auto make = [data, entries] {
      const Ranges ranges = Scattered(entries);
      const uint64_t capacity = (ranges.back().first + ranges.back().second + 4) * 4096;
      std::string text = "rbd diff v1\ns";
      test::PutLe<uint64_t>(text, capacity);
      for (const auto& [begin, length] : ranges) {
        text.push_back(data ? 'w' : 'z');
        test::PutLe<uint64_t>(text, begin * 4096);
        test::PutLe<uint64_t>(text, data ? 16384 : length * 4096);
        if (data) text.append(16384, 'x');
      }
      text.push_back('e');
      return Input{std::move(text), capacity, {}};
    };
    const std::string name = absl::StrCat(data ? "RbdDiffData/" : "RbdDiff/", entries);
    AddRow(name, "cbt", make, Importer([](ByteStream& stream, const ImportOptions& options) {
             return ReadRbdDiff(stream, {.import = options});
           }));
    AddRow(name, "limit", make, CountBytes);
  }
}

std::shared_ptr<const Image> InMemory(const std::string& head, uint64_t size) {
  const int descriptor = ::memfd_create("bench", MFD_CLOEXEC);
  if (descriptor < 0 || ::ftruncate(descriptor, static_cast<off_t>(size)) != 0) std::abort();
  if (::write(descriptor, head.data(), head.size()) != static_cast<ssize_t>(head.size())) {
    std::abort();
  }
  auto image = Image::FromDescriptor(descriptor, "bench");
  if (!image.ok()) Die(image.status());
  return *std::move(image);
}

void Drain(absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor) {
  if (!cursor.ok()) Die(cursor.status());
  uint64_t extents = 0;
  const absl::Status status = ForEachBatch(**cursor, [&extents](const ExtentBatch& batch) {
    extents += batch.size();
    return absl::OkStatus();
  });
  if (!status.ok()) Die(status);
  benchmark::DoNotOptimize(extents);
}

void AddBitmaps() {
  constexpr uint64_t kBytes = 32 * kMiB;
  const auto make = [] {
    std::mt19937_64 random(1);
    std::string bits(kBytes, '\0');
    for (uint64_t i = 0; i < kBytes * 8 / 1000; ++i) {
      const uint64_t bit = random() % (kBytes * 8);
      bits[bit / 8] = static_cast<char>(bits[bit / 8] | 1 << bit % 8);
    }
    auto image = InMemory(bits, kBytes);
    return Input{std::move(bits), kBytes * 8 * 65536, std::move(image)};
  };
  const std::string name = absl::StrCat("Bitmap1e-3/", kBytes);
  for (const bool reversed : {false, true}) {
    DenseBitmapLayout layout = {.granularity = 65536};
    if (reversed) layout.format.reversed_word_bytes = 4;
    AddRow(name, reversed ? "reversed" : "cbt", make, [layout](const Input& input) {
      Drain(MakeDenseBitmapCursor(input.image, layout, input.capacity));
    });
  }
  AddRow(name, "limit", make, CountBytes);
}

// A qcow2 image of 64 KiB clusters with a table entry for each: all clusters in order, or every
// second one on average. Its bytes are those of the tables.
Input Qcow2(bool scattered) {
  constexpr uint64_t kCluster = 65536;
  constexpr uint64_t kTables = 512;
  constexpr uint64_t kClusters = kTables * kCluster / 8;
  std::string head = "QFI\xfb";
  const auto put = [&head](auto number) {
    for (size_t i = sizeof(number); i-- > 0;) head.push_back(static_cast<char>(number >> 8 * i));
  };
  put(uint32_t{3});
  put(uint64_t{0});  // no backing file
  put(uint32_t{0});
  put(uint32_t{16});
  put(kClusters * kCluster);
  put(uint32_t{0});
  put(static_cast<uint32_t>(kTables));
  put(kCluster);  // the first-level table
  put(2 * kCluster);
  put(uint32_t{1});
  put(uint32_t{0});
  for (int i = 0; i < 4; ++i) put(uint64_t{0});
  put(uint32_t{4});
  put(uint32_t{104});
  head.resize(kCluster);
  constexpr uint64_t kUnshared = uint64_t{1} << 63;
  for (uint64_t i = 0; i < kTables; ++i) put((3 + i) * kCluster | kUnshared);
  head.resize(3 * kCluster);
  std::mt19937_64 random(1);
  for (uint64_t i = 0; i < kClusters; ++i) {
    const bool there = !scattered || random() % 2 == 0;
    put(there ? (3 + kTables + i) * kCluster | kUnshared : uint64_t{0});
  }
  auto image = InMemory(head, (3 + kTables + kClusters) * kCluster);
  return {head.substr(3 * kCluster), kClusters * kCluster, std::move(image)};
}

void AddQcow2() {
  for (const bool scattered : {false, true}) {
    const auto make = [scattered] { return Qcow2(scattered); };
    const std::string name = scattered ? "Qcow2Half/4194304" : "Qcow2Full/4194304";
    AddRow(name, "cbt", make, [](const Input& input) {
      auto image = Qcow2Image::FromImage(input.image, ".");
      if (!image.ok()) Die(image.status());
      Drain(MakeQcow2AllocationCursor({*image, std::nullopt}));
    });
    AddRow(name, "limit", make, CountBytes);
  }
}

const bool kRegistered = [] {
  AddListings();
  AddVmware();
  AddRbdDiffs();
  AddBitmaps();
  AddQcow2();
  return true;
}();

}  // namespace
}  // namespace cbt::bench
