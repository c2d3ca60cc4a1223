// Memory runs out at every allocation: an error or std::bad_alloc at the API, never a crash, a leak
// (under the address sanitizer) or a different answer, and earlier state is unchanged.
#include "cbt/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/bitmap.h"
#include "cbt/change_chain.h"
#include "cbt/change_map.h"
#include "cbt/change_map_file.h"
#include "cbt/change_tracker.h"
#include "cbt/executor.h"
#include "cbt/extent.h"
#include "cbt/secrets.h"
#include "cbt/source/ext_filesystem.h"
#include "cbt/source/image.h"
#include "cbt/transform.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/digest.h"
#include "cbt/wire/message.h"
#include "tests/faults/support/failing_memory.h"
#include "tests/support/child_process.h"
#include "tests/support/figures.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"
#if CBT_READS_LISTS
#include "cbt/units.h"
#include "tests/source/support/listings.h"
#endif

namespace cbt {
namespace memory_test {

using test::FailAllocation;
using test::FailEveryAllocation;
using test::Found;
using test::ValueOf;

constexpr VolumeGeometry kVolume = {kTiB, 4096};

// A map with containers of every kind.
ChangeMap SomeMap(uint64_t seed) {
  std::mt19937_64 random(seed);
  ChangeMapBuilder builder = ValueOf(ChangeMapBuilder::Create(kVolume));
  for (int i = 0; i < 200; ++i) {
    EXPECT_OK(builder.AddBlocks(random() % 60000, 60001));
    const uint64_t block = 65536 * (1 + random() % 4) + random() % 65000;
    EXPECT_OK(builder.AddBlocks(block, block + 1 + random() % 40));
  }
  for (uint64_t i = 0; i < 12000; i += 2) EXPECT_OK(builder.AddBlocks(400000 + i, 400001 + i));
  return ValueOf(builder.Build());
}

std::vector<uint8_t> BytesOf(const ChangeMapView& map) {
  return {map.portable().begin(), map.portable().end()};
}

class OutOfMemory : public testing::Test {
 protected:
  static void TearDownTestSuite() {
    test::PrintFigure("r10_allocations_failed", test::AllocationsFailed());
    test::PrintFigure("r10_wrong", test::WrongAnswers());
  }
};

TEST_F(OutOfMemory, DecodingMessages) {
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> lengths;
  for (uint64_t i = 0; i < 5000; ++i) {
    offsets.push_back(i * 8192);
    lengths.push_back(4096);
  }
  std::vector<uint8_t> bytes(kMaxHeaderBytes + offsets.size() * kMaxTupleBytes);
  const size_t header = EncodeHeader(BlockMetadataType::kVariableLength, kGiB, bytes.data());
  const EncodedTuples encoded = EncodeTuples(offsets, lengths, std::span(bytes).subspan(header));
  bytes.resize(header + encoded.bytes);
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              const auto message = DecodeMetadataMessage(bytes);
              if (!message.ok()) return std::nullopt;
              const auto all = message->tuples.offsets();
              const auto* const raw = reinterpret_cast<const uint8_t*>(all.data());
              return std::vector<uint8_t>(raw, raw + all.size_bytes());
            }),
            1);
}

// The messages of a stream of `count` tuples, one per 1,000 bytes.
std::vector<std::vector<uint8_t>> Messages(uint64_t count) {
  std::vector<std::vector<uint8_t>> messages;
  for (uint64_t first = 0; first < count; first += 1000) {
    std::vector<uint64_t> offsets;
    std::vector<uint64_t> lengths;
    for (uint64_t i = first; i < std::min(count, first + 1000); ++i) {
      offsets.push_back(i * 8192);
      lengths.push_back(4096);
    }
    std::vector<uint8_t>& bytes = messages.emplace_back(kMaxHeaderBytes + 1000 * kMaxTupleBytes);
    const size_t header = EncodeHeader(BlockMetadataType::kVariableLength, kTiB, bytes.data());
    bytes.resize(header + EncodeTuples(offsets, lengths, std::span(bytes).subspan(header)).bytes);
  }
  return messages;
}

TEST_F(OutOfMemory, EncodingCheckingAndProvingAStream) {
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              StreamChecker checker(0);
              StreamDigest digest;
              MetadataMessage message;
              for (const std::vector<uint8_t>& bytes : Messages(4000)) {
                if (!DecodeMetadataMessage(bytes, message).ok()) return std::nullopt;
                if (!checker.Check(message).ok()) return std::nullopt;
                digest.Add(message.tuples.offsets(), message.tuples.lengths());
              }
              const std::string text = digest.DigestText();
              return std::vector<uint8_t>(text.begin(), text.end());
            }),
            10);
}

// After a message that could not be decoded for lack of memory, the next one works.
TEST_F(OutOfMemory, AMessageIsUsedAgain) {
  const std::vector<std::vector<uint8_t>> large = Messages(1000);
  const std::vector<std::vector<uint8_t>> small = Messages(900);
  FailEveryAllocation([&]() -> Found {
    MetadataMessage message;
    const auto lengths = [&message] {
      const std::span<const uint64_t> all = message.tuples.lengths();
      return std::vector<uint8_t>(all.begin(), all.end());
    };
    try {
      if (!DecodeMetadataMessage(large[0], message).ok()) return std::nullopt;
    } catch (const std::bad_alloc&) {
      const test::Undisturbed undisturbed;
      EXPECT_OK(DecodeMetadataMessage(small[0], message));
      EXPECT_EQ(message.tuples.size(), 900U);
      for (size_t i = 0; i < message.tuples.size(); ++i) {
        EXPECT_EQ(message.tuples[i], (Extent{i * 8192, 4096}));
      }
      throw;
    }
    return lengths();
  });
}

TEST_F(OutOfMemory, MapsFromBytes) {
  const ChangeMap map = SomeMap(1);
  const std::vector<uint8_t> portable = BytesOf(map);
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              const auto read = ChangeMap::FromPortable64(portable, kVolume);
              if (!read.ok()) return std::nullopt;
              return BytesOf(*read);
            }),
            2);
  ASSERT_OK_AND_ASSIGN(const std::vector<uint8_t> file, EncodeChangeMap(map));
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              const auto read = DecodeChangeMap(file, "map");
              if (!read.ok()) return std::nullopt;
              return BytesOf(*read);
            }),
            2);
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              auto written = EncodeChangeMap(map);
              if (!written.ok()) return std::nullopt;
              return *std::move(written);
            }),
            1);
}

TEST_F(OutOfMemory, BuildingAndAlgebra) {
  EXPECT_GT(FailEveryAllocation([]() -> Found {
              auto builder = ChangeMapBuilder::Create(kVolume);
              if (!builder.ok()) return std::nullopt;
              // Out of order, so that several maps are begun and merged.
              for (uint64_t i = 0; i < 140000; ++i) {
                const uint64_t block = i * 7919 % 1000000;
                if (!builder->AddBlocks(block, block + 1).ok()) return std::nullopt;
              }
              const auto map = builder->Build();
              if (!map.ok()) return std::nullopt;
              return BytesOf(*map);
            }),
            5);
  const ChangeMap a = SomeMap(2);
  const ChangeMap b = SomeMap(3);
  const std::vector<uint8_t> a_before = BytesOf(a);
  using Operation = absl::StatusOr<ChangeMap> (*)(const ChangeMapView&, const ChangeMapView&);
  for (const Operation operation :
       {static_cast<Operation>(&Union), &Intersection, &Difference, &SymmetricDifference}) {
    EXPECT_GT(FailEveryAllocation([&]() -> Found {
                const auto map = operation(a, b);
                if (!map.ok()) return std::nullopt;
                return BytesOf(*map);
              }),
              2);
  }
  EXPECT_EQ(BytesOf(a), a_before);
}

// After an exception, a builder returns the complete map or an error.
TEST_F(OutOfMemory, ABuilderThatThrewBuildsAllOrNothing) {
  int64_t refused = 0;
  const auto built = [&refused](ChangeMapBuilder& builder) -> Found {
    bool thrown = false;
    std::optional<test::Undisturbed> undisturbed;
    const auto once = [&](const auto& call) {
      try {
        return call();
      } catch (const std::bad_alloc&) {
        thrown = true;
        undisturbed.emplace();
        return call();
      }
    };
    // Runs across containers, in an order that makes several maps to merge.
    for (uint64_t i = 0; i < 140000; ++i) {
      const uint64_t block = i * 7919 % 1000000 + (i < 70000 ? 1000000 : 0);
      const absl::Status status =
          once([&] { return builder.AddBlocks(block, block + 1 + (i % 1000 == 0 ? 70000 : 0)); });
      EXPECT_TRUE(status.ok() || thrown) << status;
      refused += status.ok() ? 0 : 1;
      if (!status.ok()) break;
    }
    const absl::StatusOr<ChangeMap> map = once([&] { return builder.Build(); });
    EXPECT_TRUE(map.ok() || thrown) << map.status();
    if (map.ok()) return BytesOf(*map);
    refused += 1;
    const test::Undisturbed calm;
    EXPECT_FALSE(builder.Build().ok());
    return std::nullopt;
  };
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              std::optional<ChangeMapBuilder> builder;
              {
                const test::Undisturbed undisturbed;
                builder.emplace(ValueOf(ChangeMapBuilder::Create({kVolume.capacity, 4096})));
              }
              return built(*builder);
            }),
            30);
  EXPECT_GT(refused, 30);
}

// An in-place change that fails leaves the map unchanged.
TEST_F(OutOfMemory, AMapThatCouldNotBeChangedIsAsItWas) {
  const ChangeMap a = SomeMap(4);
  const ChangeMap b = SomeMap(5);
  const std::vector<uint8_t> before = BytesOf(a);
  FailEveryAllocation([&]() -> Found {
    ChangeMap changing = a;
    try {
      if (!changing.UniteWith(b).ok()) {
        EXPECT_EQ(BytesOf(changing), before);
        return std::nullopt;
      }
    } catch (const std::bad_alloc&) {
      const test::Undisturbed undisturbed;
      EXPECT_EQ(BytesOf(changing), before);
      throw;
    }
    return BytesOf(changing);
  });
}

// After a failed change, a chain is the old or the new one, and works.
TEST_F(OutOfMemory, Chains) {
  const std::string directory = absl::StrCat(testing::TempDir(), "cbt-memory-", ::getpid());
  const auto map = [](uint64_t day) {
    ChangeMapBuilder builder = ValueOf(ChangeMapBuilder::Create({kGiB, 4096}));
    EXPECT_OK(builder.AddBlocks(day, day + 1));
    ChangeMap built = ValueOf(builder.Build());
    built.set_identity({"vol", absl::StrCat("s", day - 1), absl::StrCat("s", day)});
    return built;
  };
  const std::vector<ChangeMap> days = {map(1), map(2), map(3), map(4)};
  const auto changed = [](const ChangeChain& chain, const std::string& to) -> Found {
    const auto cursor = chain.Delta("s0", to);
    if (!cursor.ok()) return std::nullopt;
    std::vector<uint8_t> found;
    const absl::Status status = ForEachBatch(**cursor, [&](const ExtentBatch& batch) {
      for (size_t i = 0; i < batch.size(); ++i) {
        for (uint64_t at = batch[i].offset; at < batch[i].end(); at += 4096) {
          found.push_back(static_cast<uint8_t>(at / 4096));
        }
      }
      return absl::OkStatus();
    });
    if (!status.ok()) return std::nullopt;
    return found;
  };
  const ChainOptions options = {.sync = false};
  const auto work = [&]() -> Found {
    {
      const test::Undisturbed undisturbed;
      std::filesystem::remove_all(directory);
    }
    auto made = ChangeChain::Create(directory, "vol", 4096, {"s0", kGiB}, options);
    if (!made.ok()) return std::nullopt;
    for (const ChangeMap& day : days) {
      if (!(*made)->Append(day).ok()) return std::nullopt;
    }
    if (!(*made)->Remove("s2").ok()) return std::nullopt;
    return changed(**made, "s4");
  };
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              try {
                Found found = work();
                if (found.has_value()) return found;
              } catch (const std::bad_alloc&) {
                const test::Undisturbed undisturbed;
                const auto left = ChangeChain::Open(directory, ChangeChain::Access::kRead);
                if (left.ok()) {
                  EXPECT_OK((*left)->Verify());
                  const std::string newest = (*left)->snapshots().back().id;
                  std::vector<uint8_t> expected;
                  for (uint8_t day = 1; day <= newest[1] - '0'; ++day) expected.push_back(day);
                  EXPECT_EQ(changed(**left, newest), expected);
                } else {
                  EXPECT_EQ(left.status().code(), absl::StatusCode::kNotFound);
                }
                throw;
              }
              return std::nullopt;
            }),
            50);
  std::filesystem::remove_all(directory);
}

// Moves are noexcept, and peers choose the length of tokens.
TEST_F(OutOfMemory, SecretsMoveWithoutMemory) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, kMiB}) {
    const std::string text(size, 's');
    for (const size_t before : {size_t{0}, size_t{7}, size_t{300}}) {
      Secret from(text);
      Secret to(std::string(before, 'b'));
      const FailAllocation none(1, true);
      to = std::move(from);
      const Secret last(std::move(to));
      EXPECT_EQ(last.Reveal(), text);
      EXPECT_TRUE(from.empty() && to.empty());  // NOLINT(bugprone-use-after-move): they say so
      EXPECT_FALSE(none.has_failed());
    }
  }
}

TEST_F(OutOfMemory, Trackers) {
  EXPECT_GT(FailEveryAllocation([]() -> Found {
              auto tracker = ChangeTracker::Create(
                  {.geometry = {uint64_t{1} << 26, 4096}, .volume = "vol", .base = "a"});
              if (!tracker.ok()) return std::nullopt;
              for (uint64_t block = 0; block < 100; block += 3) {
                if (!(*tracker)->Mark({block * 4096, 4096}).ok()) return std::nullopt;
              }
              if (!(*tracker)->OpenEpoch("b").ok()) return std::nullopt;
              const auto map = (*tracker)->CloseEpoch();
              if (!map.ok()) return std::nullopt;
              return BytesOf(*map);
            }),
            5);
}

#if CBT_READS_LISTS
// The parsers are C or allocate by themselves; an exception must not pass through them.
TEST_F(OutOfMemory, Importers) {
  for (const test::Listing& listing : test::Listings()) {
    const std::string text = listing.write({{1, 2}, {5, 1}, {8, 9}}, 20);
    const ImportOptions options{.capacity = 20 * listing.unit};
    EXPECT_GT(FailEveryAllocation([&]() -> Found {
                const auto stream = MakeBorrowedMemoryStream(
                    {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "list");
                const auto map = listing.read(*stream, options);
                if (!map.ok()) return std::nullopt;
                return BytesOf(*map);
              }),
              3)
        << listing.name;
  }
}

// Its prologue makes expat read the whole document.
TEST_F(OutOfMemory, XmlThatExpatReads) {
  const std::string text = "<?xml version=\"1.0\"?>" + test::WriteThinDelta({{1, 2}, {5, 1}}, true);
  FailEveryAllocation([&]() -> Found {
    const auto stream = MakeBorrowedMemoryStream(
        {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "list");
    const auto map = ReadThinDelta(*stream, {.capacity = kMiB});
    if (!map.ok()) return std::nullopt;
    return BytesOf(*map);
  });
}
#endif

TEST_F(OutOfMemory, CursorsAndTransforms) {
  const ChangeMap map = SomeMap(6);
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              std::vector<std::unique_ptr<ExtentCursor>> inputs;
              inputs.push_back(MakeChangeMapCursor(map));
              auto coalesced = Coalesce(MakeChangeMapCursor(map), 65536);
              if (!coalesced.ok()) return std::nullopt;
              inputs.push_back(*std::move(coalesced));
              auto united = Union(std::move(inputs));
              if (!united.ok()) return std::nullopt;
              auto blocks = ToBlocks(*std::move(united), kMiB);
              if (!blocks.ok()) return std::nullopt;
              std::vector<uint8_t> found;
              found.reserve(size_t{1} << 20);
              const absl::Status status = ForEachBatch(**blocks, [&](const ExtentBatch& batch) {
                for (size_t i = 0; i < batch.size(); ++i) {
                  found.push_back(static_cast<uint8_t>(batch[i].offset >> 20));
                }
                return absl::OkStatus();
              });
              if (!status.ok()) return std::nullopt;
              return found;
            }),
            5);
}

// What a cursor returns. After Next() has thrown, the cursor must fail until Seek(), and then
// return everything.
Found DrainedInSpiteOfThrows(ExtentCursor& cursor) {
  std::optional<test::Undisturbed> undisturbed(std::in_place);
  bool thrown = false;
  ExtentBatch batch;
  std::vector<uint8_t> found;
  found.reserve(size_t{1} << 20);
  for (absl::StatusOr<Step> step = Step::kMore; *step == Step::kMore;) {
    try {
      if (!thrown) undisturbed.reset();
      step = cursor.Next(batch);
      if (!undisturbed.has_value()) undisturbed.emplace();
    } catch (const std::bad_alloc&) {
      undisturbed.emplace();
      thrown = true;
      EXPECT_FALSE(cursor.Next(batch).ok()) << "goes on at " << cursor.covered();
      found.clear();
      if (!cursor.Seek(0).ok()) return std::nullopt;
      continue;
    }
    if (!step.ok()) return std::nullopt;
    for (size_t i = 0; i < batch.size(); ++i) {
      const Extent extent = batch[i];
      const auto* const bytes = reinterpret_cast<const uint8_t*>(&extent);
      found.insert(found.end(), bytes, bytes + sizeof(extent));
    }
  }
  return found;
}

// A list of alternating quiet and dense stretches, so that a transform's buffers grow more than
// once.
std::unique_ptr<ExtentCursor> SomeExtents(size_t count, uint64_t pitch, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Extent> extents;
  uint64_t at = random() % pitch;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t room = i / 700 % 2 == 0 ? 4 * pitch : pitch / 4;
    const uint64_t length = 1 + random() % room;
    extents.push_back({at, length});
    at += length + random() % room;
  }
  return ValueOf(MakeExtentCursor(extents, {.capacity = uint64_t{1} << 26, .granularity = 1}));
}

TEST_F(OutOfMemory, TransformsThatThrewFailUntilTheyAreSought) {
  const auto a = [] { return SomeExtents(6000, 500, 1); };
  const auto b = [] { return SomeExtents(300, 10000, 2); };
  using Make = std::function<absl::StatusOr<std::unique_ptr<ExtentCursor>>()>;
  const std::pair<const char*, Make> transforms[] = {
      {"union",
       [&] {
         std::vector<std::unique_ptr<ExtentCursor>> inputs;
         inputs.push_back(a());
         inputs.push_back(b());
         inputs.push_back(SomeExtents(2000, 1500, 3));
         return Union(std::move(inputs));
       }},
      {"union of two",
       [&] {
         std::vector<std::unique_ptr<ExtentCursor>> inputs;
         inputs.push_back(a());
         inputs.push_back(b());
         return Union(std::move(inputs));
       }},
      {"intersection", [&] { return Intersect(a(), b()); }},
      {"difference", [&] { return Subtract(a(), b()); }},
      {"coalesce", [&] { return Coalesce(b(), 100); }},
      {"coalesce over union",
       [&] {
         std::vector<std::unique_ptr<ExtentCursor>> inputs;
         inputs.push_back(a());
         inputs.push_back(b());
         return Coalesce(ValueOf(Union(std::move(inputs))), 100);
       }},
      {"align", [&] { return AlignOutward(a(), 300); }},
      {"blocks", [&] { return ToBlocks(a(), 4096); }},
  };
  for (const auto& [name, make] : transforms) {
    const std::string_view transform = name;
    // These two allocate once: they work in the batches of their input and of their caller.
    const int least = transform == "coalesce" || transform == "blocks" ? 1 : 3;
    EXPECT_GE(FailEveryAllocation([&make = make]() -> Found {
                std::unique_ptr<ExtentCursor> cursor;
                {
                  const test::Undisturbed undisturbed;
                  cursor = ValueOf(make());
                }
                return DrainedInSpiteOfThrows(*cursor);
              }),
              least)
        << name;
  }
}

// A C library calls the reads. An exception through it would leak its state.
TEST_F(OutOfMemory, ReadsBelowALibrary) {
  if (test::FindProgram("mke2fs").empty()) GTEST_SKIP() << "no mke2fs";
  const test::TempDir dir;
  const std::string path = dir / "image";
  ASSERT_EQ(test::Run({"mke2fs", "-q", "-F", "-b", "1024", path, "8M"}), 0);
  ASSERT_OK_AND_ASSIGN(const auto image, Image::Open(path));
  const absl::StatusOr<std::unique_ptr<ExtentCursor>> sound = MakeExtAllocationCursor(image);
  if (absl::IsUnimplemented(sound.status())) GTEST_SKIP() << "built without libext2fs";
  ASSERT_OK(sound);
  // The superblock is there but the rest is missing: reporting that takes memory.
  std::filesystem::resize_file(path, 2048);
  int failures = 0;
  for (int64_t n = 1;; ++n) {
    const FailAllocation failing(n);
    try {
      const absl::StatusCode code = MakeExtAllocationCursor(image).status().code();
      if (!failing.has_failed()) {
        EXPECT_EQ(code, absl::StatusCode::kAborted);
        break;
      }
      EXPECT_EQ(code, absl::StatusCode::kResourceExhausted) << n;
      ++failures;
    } catch (const std::bad_alloc&) {
      // The importer's own allocation, before or after the library's.
      EXPECT_TRUE(failing.has_failed());
    }
  }
  EXPECT_GT(failures, 0);
}

// On several threads: memory fails in any of them, and none may die.
TEST_F(OutOfMemory, ParallelCursors) {
  constexpr uint64_t kBlocks = uint64_t{3} << 22;
  std::vector<uint8_t> bits(kBlocks / 8);
  test::SeededRandom random(1);
  for (size_t i = 0; i < bits.size(); i += 1 + random() % 2000) bits[i] = 6;
  ASSERT_OK_AND_ASSIGN(const BitmapView view, BitmapView::Create(bits, 0, kBlocks));
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              std::optional<ThreadPool> pool;
              std::unique_ptr<ExtentCursor> cursor;
              {
                const test::Undisturbed undisturbed;
                pool.emplace(2);
                BitmapOptions options;
                options.executor = &*pool;
                options.parallel = 3;
                cursor = ValueOf(MakeBorrowedBitmapCursor(
                    view, {.capacity = kBlocks * 4096, .granularity = 4096}, options));
              }
              return DrainedInSpiteOfThrows(*cursor);
            }),
            10);
}

}  // namespace memory_test
}  // namespace cbt
