// Memory runs out while snapshots in a directory are opened and compared.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/directory.h"
#include "cbt/change_chain.h"
#include "cbt/change_map.h"
#include "cbt/change_map_file.h"
#include "cbt/executor.h"
#include "cbt/memory.h"
#include "cbt/provider.h"
#include "cbt/secrets.h"
#include "cbt/source/directory_provider.h"
#include "cbt/source/image.h"
#include "cbt/units.h"
#include "map/tracker/region_log.h"
#include "source/directory/beneath.h"
#include "tests/faults/support/failing_memory.h"
#include "tests/support/figures.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace memory_source_test {

using test::FailEveryAllocation;
using test::Found;
using test::ValueOf;

// What a cursor reports; nullopt if it fails.
Found Drained(ExtentCursor& cursor) {
  std::vector<uint8_t> found;
  {
    const test::Undisturbed undisturbed;
    found.reserve(size_t{1} << 20);
  }
  const absl::Status status = ForEachBatch(cursor, [&found](const ExtentBatch& batch) {
    for (size_t i = 0; i < batch.size(); ++i) {
      const Extent extent = batch[i];
      const auto* const bytes = reinterpret_cast<const uint8_t*>(&extent);
      found.insert(found.end(), bytes, bytes + sizeof(extent));
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return std::nullopt;
  return found;
}

// No one catches a task's exception, and the cursor waits for every chunk it has dispatched.
TEST(SourcesOutOfMemory, ImagesThatAnExecutorReads) {
  const test::TempDir dir;
  constexpr size_t kChunk = kMiB;
  std::string data(5 * kChunk + 1000, 'a');
  dir.Write("base", data);
  for (size_t at = 700; at < data.size(); at += 300'000) data[at] = 'b';
  dir.Write("target", data);
  ASSERT_OK_AND_ASSIGN(const auto base, Image::Open(dir / "base"));
  ASSERT_OK_AND_ASSIGN(const auto target, Image::Open(dir / "target"));
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              std::optional<ThreadPool> pool;
              std::unique_ptr<ExtentCursor> cursor;
              {
                const test::Undisturbed undisturbed;
                pool.emplace(2);
                ImageOptions options;
                options.executor = &*pool;
                options.chunks_in_flight = 3;
                cursor = ValueOf(MakeImageDeltaCursor(base, target, options));
              }
              return Drained(*cursor);
            }),
            20);
}

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// What `open` finds. It must leave nothing open after it returned or threw.
template <typename Open>
Found WithoutLeavingDescriptors(const Open& open) {
  size_t before = 0;
  {
    const test::Undisturbed undisturbed;
    before = OpenDescriptors();
  }
  const auto check = [before] {
    const test::Undisturbed undisturbed;
    EXPECT_EQ(OpenDescriptors(), before);
  };
  try {
    Found found = open();
    check();
    return found;
  } catch (const std::bad_alloc&) {
    check();
    throw;
  }
}

// A lock leaked that way is held until the process ends.
TEST(OutOfMemoryInFiles, WhatIsLockedIsGivenBack) {
  const test::TempDir directory;
  const std::string path = directory / "a-folder-whose-name-takes-memory-of-its-own";
  const auto work = [&]() -> Found {
    {
      const test::Undisturbed undisturbed;
      std::filesystem::remove_all(path);
    }
    return WithoutLeavingDescriptors([&]() -> Found {
      {
        auto chain = ChangeChain::Create(path, "vol", 4096, {"s0", kMiB}, {.sync = false});
        if (!chain.ok()) return std::nullopt;
      }
      auto again = ChangeChain::Open(path, ChangeChain::Access::kChange, {.sync = false});
      if (!again.ok()) return std::nullopt;
      return std::vector<uint8_t>{1};
    });
  };
  EXPECT_GT(FailEveryAllocation(work), 10);
  RegionLogHeader header;
  header.geometry = {kMiB, 4096};
  header.region_bytes = 1 << 16;
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              {
                const test::Undisturbed undisturbed;
                std::filesystem::remove_all(path);
                std::filesystem::create_directory(path);
              }
              return WithoutLeavingDescriptors([&]() -> Found {
                const absl::StatusOr<Directory> directory = Directory::Open(path);
                if (!directory.ok()) return std::nullopt;
                const auto log = RegionLog::Create(*directory, "log", header);
                if (!log.ok()) return std::nullopt;
                return std::vector<uint8_t>{1};
              });
            }),
            3);
}

// An interrupted change may have reached the disk, so an owner that is unsure must not reuse file
// numbers: it looks again.
TEST(OutOfMemoryInFiles, MDAChainGoesOnAfterAnInterruptedChange) {
  const test::TempDir place;
  const std::string directory = place / "chain";
  const auto map = [](const std::string& base, const std::string& target, uint64_t block) {
    ChangeMapBuilder builder = ValueOf(ChangeMapBuilder::Create({kGiB, 4096}));
    EXPECT_OK(builder.AddBlocks(block, block + 1));
    ChangeMap built = ValueOf(builder.Build());
    built.set_identity({"vol", base, target});
    return built;
  };
  const ChangeMap first = map("s0", "s1", 1);
  const ChangeMap second = map("s1", "s2", 2);
  bool failed = true;
  for (int64_t n = 1; failed; ++n) {
    std::filesystem::remove_all(directory);
    ASSERT_OK_AND_ASSIGN(auto made, ChangeChain::Create(directory, "vol", 4096, {"s0", kGiB}, {}));
    {
      const test::FailAllocation fails(n);
      try {
        static_cast<void>(made->Append(first).ok());
      } catch (const std::bad_alloc&) {
      }
      failed = fails.has_failed();
    }
    const bool knows = made->Contains("s1");
    absl::Status next = made->Append(knows ? second : first);
    // It was on the disk, which the chain did not know.
    if (!knows && absl::IsAlreadyExists(next)) next = made->Append(second);
    EXPECT_OK(next) << n << ": " << next;
    for (const ChainSnapshot& snapshot : made->snapshots()) {
      EXPECT_TRUE(made->Contains(snapshot.id)) << n;
    }
    const auto left = ChangeChain::Open(directory, ChangeChain::Access::kRead);
    ASSERT_OK(left) << n << ": " << left.status();
    EXPECT_OK((*left)->Verify()) << n << ": " << (*left)->Verify();
    EXPECT_EQ((*left)->snapshots().size(), made->snapshots().size()) << n;
  }
}

// The directory also has files about other snapshots, which are read first.
class DirectoryOutOfMemory : public testing::Test {
 protected:
  // These must be the program's last tests.
  static void TearDownTestSuite() {
    test::PrintFigure("r10_allocations_failed_source", test::AllocationsFailed());
    test::PrintFigure("r10_wrong_source", test::WrongAnswers());
  }

  DirectoryOutOfMemory() {
    dir_.Write("root/v/monday-by-a-long-name.image", std::string(10'000, 'a'));
    dir_.Write("root/v/tuesday-by-a-long-name.image", std::string(10'000, 'b'));
    dir_.Write("root/v/.a-list-of-a-long-name", "rbd diff v1\ns");
    dir_.Write("root/v/a-source-of-a-long-name.source",
               "base another\ntarget one\naddress .a-list-of-a-long-name\n");
    ChangeMap map = ValueOf(ValueOf(ChangeMapBuilder::Create({10'000, 4096})).Build());
    map.set_identity({"", "first-of-others", "second-of-others"});
    const std::string directory = dir_ / "root/v/";
    EXPECT_OK(WriteChangeMap(map, directory + "a-map-of-a-long-name.cbm"));
    const auto chain = ValueOf(ChangeChain::Create(directory + "a-chain-of-a-long-name.chain", "",
                                                   4096, {"first-of-others", 10'000}));
    EXPECT_OK(chain->Append(map));
  }

  const test::TempDir dir_;
  const Secrets secrets_;
  const StreamContext context_{{}, secrets_};
};

TEST_F(DirectoryOutOfMemory, LeavesNoDescriptors) {
  const std::string base = "v/monday-by-a-long-name";
  const std::string target = "v/tuesday-by-a-long-name";
  const std::string root = dir_ / "root";
  for (const bool delta : {true, false}) {
    EXPECT_GT(FailEveryAllocation([&]() -> Found {
                return WithoutLeavingDescriptors([&]() -> Found {
                  const auto provider = MakeDirectoryProvider(root);
                  if (!provider.ok()) return std::nullopt;
                  const auto source = delta ? (*provider)->OpenDelta(base, target, context_)
                                            : (*provider)->OpenAllocated(target, context_);
                  if (!source.ok()) return std::nullopt;
                  return Drained(*source->cursor);
                });
              }),
              50)
        << delta;
  }
}

// Without openat2 in the kernel, paths are walked step by step.
TEST_F(DirectoryOutOfMemory, StepsLeaveNoDescriptors) {
  const std::string path = "v/.a-list-of-a-long-name";
  const int root = ::open((dir_ / "root").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(root, 0);
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              return WithoutLeavingDescriptors([&]() -> Found {
                const int file = OpenBeneathStepwise(root, path, O_RDONLY | O_CLOEXEC);
                if (file < 0) return std::nullopt;
                ::close(file);
                return std::vector<uint8_t>();
              });
            }),
            1);
  ::close(root);
}

}  // namespace memory_source_test
}  // namespace cbt
