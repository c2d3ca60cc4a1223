// Memory that runs out, at every allocation: an error or std::bad_alloc at the edge, never a crash,
// a leak (under the address sanitizer) or another answer, and what was there before is as it was.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "cbt/change_map.h"
#include "cbt/change_map_file.h"
#include "cbt/extent_cursor.h"
#include "cbt/transform.h"
#include "cbt/wire.h"
#if CBT_READS_LISTS
#include "source/support/listings.h"
#endif

namespace {

// Counts down while above 0; the allocation that makes it 0 fails, and with `sticky` all after it.
std::atomic<int64_t> countdown = 0;
std::atomic<bool> sticky = false;
std::atomic<bool> failed = false;

void* Allocate(std::size_t size, std::size_t alignment) {
  if (sticky && failed) throw std::bad_alloc();
  if (countdown > 0 && --countdown == 0) {
    failed = true;
    throw std::bad_alloc();
  }
  void* const memory =
      alignment == 0
          ? std::malloc(size == 0 ? 1 : size)
          : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return Allocate(size, 0); }
void* operator new[](std::size_t size) { return Allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return Allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace cbt {
namespace {

constexpr VolumeGeometry kVolume = {uint64_t{1} << 40, 4096};

// A map of containers of every kind.
ChangeMap SomeMap(uint64_t seed) {
  std::mt19937_64 random(seed);
  ChangeMapBuilder builder = *ChangeMapBuilder::Create(kVolume);
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(builder.AddBlocks(random() % 60000, 60001).ok());
    const uint64_t block = 65536 * (1 + random() % 4) + random() % 65000;
    EXPECT_TRUE(builder.AddBlocks(block, block + 1 + random() % 40).ok());
  }
  for (uint64_t i = 0; i < 12000; i += 2)
    EXPECT_TRUE(builder.AddBlocks(400000 + i, 400001 + i).ok());
  return *builder.Build();
}

std::vector<uint8_t> BytesOf(const ChangeMapView& map) {
  return {map.portable().begin(), map.portable().end()};
}

// Runs `work` again and again, with its first, second, third, ... allocation failing, until it
// comes through; returns how many allocations that were. `work` says what it found, or nothing for
// an error that it reported itself; what it found must be the same as undisturbed.
int64_t FailEveryAllocation(const std::function<std::optional<std::vector<uint8_t>>()>& work) {
  countdown = 0;
  const std::optional<std::vector<uint8_t>> expected = work();
  EXPECT_TRUE(expected.has_value());
  int64_t allocations = 0;
  for (const bool stay : {false, true}) {
    for (int64_t n = 1;; ++n) {
      sticky = stay;
      failed = false;
      countdown = n;
      std::optional<std::vector<uint8_t>> found;
      bool thrown = false;
      try {
        found = work();
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
      const bool came_through = !failed;
      countdown = 0;
      sticky = false;
      failed = false;
      if (!thrown && found.has_value()) {
        EXPECT_EQ(*found, *expected) << "allocation " << n << " failed";
        if (found != expected) return n;
      }
      if (came_through) {
        EXPECT_TRUE(found.has_value());
        allocations = n;
        break;
      }
    }
  }
  return allocations;
}

TEST(OutOfMemory, DecodingMessages) {
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> lengths;
  for (uint64_t i = 0; i < 5000; ++i) {
    offsets.push_back(i * 8192);
    lengths.push_back(4096);
  }
  std::vector<uint8_t> bytes(kMaxHeaderBytes + offsets.size() * kMaxTupleBytes);
  const size_t header = EncodeHeader(BlockMetadataType::kVariableLength, 1 << 30, bytes.data());
  const EncodedTuples encoded = EncodeTuples(offsets, lengths, std::span(bytes).subspan(header));
  bytes.resize(header + encoded.bytes);
  EXPECT_GT(FailEveryAllocation([&]() -> std::optional<std::vector<uint8_t>> {
              const auto message = DecodeMetadataMessage(bytes);
              if (!message.ok()) return std::nullopt;
              const auto all = message->tuples.offsets();
              const auto* const raw = reinterpret_cast<const uint8_t*>(all.data());
              return std::vector<uint8_t>(raw, raw + all.size_bytes());
            }),
            1);
}

TEST(OutOfMemory, MapsFromBytes) {
  const ChangeMap map = SomeMap(1);
  const std::vector<uint8_t> portable = BytesOf(map);
  EXPECT_GT(FailEveryAllocation([&]() -> std::optional<std::vector<uint8_t>> {
              const auto read = ChangeMap::FromPortable64(portable, kVolume);
              if (!read.ok()) return std::nullopt;
              return BytesOf(*read);
            }),
            2);
  const std::vector<uint8_t> file = *EncodeChangeMap(map);
  EXPECT_GT(FailEveryAllocation([&]() -> std::optional<std::vector<uint8_t>> {
              const auto read = DecodeChangeMap(file, "map");
              if (!read.ok()) return std::nullopt;
              return BytesOf(*read);
            }),
            2);
  EXPECT_GT(FailEveryAllocation([&]() -> std::optional<std::vector<uint8_t>> {
              auto written = EncodeChangeMap(map);
              if (!written.ok()) return std::nullopt;
              return *std::move(written);
            }),
            1);
}

TEST(OutOfMemory, BuildingAndAlgebra) {
  EXPECT_GT(FailEveryAllocation([]() -> std::optional<std::vector<uint8_t>> {
              auto builder = ChangeMapBuilder::Create(kVolume);
              if (!builder.ok()) return std::nullopt;
              // Out of order, so that several maps are begun and united.
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
    EXPECT_GT(FailEveryAllocation([&]() -> std::optional<std::vector<uint8_t>> {
                const auto map = operation(a, b);
                if (!map.ok()) return std::nullopt;
                return BytesOf(*map);
              }),
              2);
  }
  EXPECT_EQ(BytesOf(a), a_before);
}

// A map that is changed in place keeps what it held when that fails.
TEST(OutOfMemory, AMapThatCouldNotBeChangedIsAsItWas) {
  const ChangeMap a = SomeMap(4);
  const ChangeMap b = SomeMap(5);
  const std::vector<uint8_t> before = BytesOf(a);
  FailEveryAllocation([&]() -> std::optional<std::vector<uint8_t>> {
    ChangeMap changing = a;
    try {
      if (!changing.UniteWith(b).ok()) {
        EXPECT_EQ(BytesOf(changing), before);
        return std::nullopt;
      }
    } catch (const std::bad_alloc&) {
      const int64_t left = countdown.exchange(0);
      const bool stay = sticky.exchange(false);
      EXPECT_EQ(BytesOf(changing), before);
      sticky = stay;
      countdown = left;
      throw;
    }
    return BytesOf(changing);
  });
}

#if CBT_READS_LISTS
// Their parsers are C or ask for memory by themselves; what calls back from them must not throw
// through.
TEST(OutOfMemory, Importers) {
  for (const test::Listing& listing : test::Listings()) {
    const std::string text = listing.write({{1, 2}, {5, 1}, {8, 9}}, 20);
    const ImportOptions options{.capacity = 20 * listing.unit};
    EXPECT_GT(FailEveryAllocation([&]() -> std::optional<std::vector<uint8_t>> {
                const auto stream = MakeMemoryStream(
                    {reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "list");
                const auto map = listing.read(*stream, options);
                if (!map.ok()) return std::nullopt;
                return BytesOf(*map);
              }),
              3)
        << listing.name;
  }
}

// A document that expat reads whole, because of its prologue.
TEST(OutOfMemory, XmlThatExpatReads) {
  const std::string text = "<?xml version=\"1.0\"?>" + test::WriteThinDelta({{1, 2}, {5, 1}}, true);
  FailEveryAllocation([&]() -> std::optional<std::vector<uint8_t>> {
    const auto stream =
        MakeMemoryStream({reinterpret_cast<const uint8_t*>(text.data()), text.size()}, "list");
    const auto map = ReadThinDelta(*stream, {.capacity = 1 << 20});
    if (!map.ok()) return std::nullopt;
    return BytesOf(*map);
  });
}
#endif

TEST(OutOfMemory, CursorsAndTransforms) {
  const ChangeMap map = SomeMap(6);
  EXPECT_GT(FailEveryAllocation([&]() -> std::optional<std::vector<uint8_t>> {
              std::vector<std::unique_ptr<ExtentCursor>> inputs;
              inputs.push_back(MakeChangeMapCursor(map));
              auto coalesced = Coalesce(MakeChangeMapCursor(map), 65536);
              if (!coalesced.ok()) return std::nullopt;
              inputs.push_back(*std::move(coalesced));
              auto united = Union(std::move(inputs));
              if (!united.ok()) return std::nullopt;
              auto blocks = ToBlocks(*std::move(united), 1 << 20);
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

}  // namespace
}  // namespace cbt
