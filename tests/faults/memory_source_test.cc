// Memory that runs out while images are compared.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cbt/executor.h"
#include "cbt/extent_cursor.h"
#include "cbt/image.h"
#include "faults/support/failing_memory.h"
#include "support/temp_dir.h"

namespace cbt {
namespace {

using test::FailEveryAllocation;
using test::Found;

// What a cursor tells; nothing when it says that it failed.
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

// Nobody catches what a task throws, and the cursor waits for every chunk that it has given away.
TEST(SourcesOutOfMemory, ImagesThatAnExecutorReads) {
  const test::TempDir dir;
  constexpr size_t kChunk = size_t{1} << 20;
  std::string data(5 * kChunk + 1000, 'a');
  dir.Write("base", data);
  for (size_t at = 700; at < data.size(); at += 300'000) data[at] = 'b';
  dir.Write("target", data);
  const auto base = *Image::Open(dir / "base");
  const auto target = *Image::Open(dir / "target");
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              std::optional<ThreadPool> pool;
              std::unique_ptr<ExtentCursor> cursor;
              {
                const test::Undisturbed undisturbed;
                pool.emplace(2);
                ImageOptions options;
                options.executor = &*pool;
                options.chunks_in_flight = 3;
                cursor = *MakeImageDeltaCursor(base, target, options);
              }
              return Drained(*cursor);
            }),
            20);
}

}  // namespace
}  // namespace cbt
