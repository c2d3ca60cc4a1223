// Providers and cursors that a test scripts.
#ifndef CBT_TESTS_RPC_SUPPORT_PROVIDERS_H_
#define CBT_TESTS_RPC_SUPPORT_PROVIDERS_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/provider.h"
#include "tests/support/cursors.h"

namespace cbt::test {

// Answers every request through one function.
class FunctionProvider final : public SnapshotProvider {
 public:
  struct Call {
    std::optional<std::string> base;
    std::string target;
    const StreamContext& context;
  };
  using Function = std::function<absl::StatusOr<MetadataSource>(const Call&)>;

  explicit FunctionProvider(Function function) : function_(std::move(function)) {}

  absl::StatusOr<MetadataSource> OpenAllocated(std::string_view snapshot_id,
                                               const StreamContext& context) override {
    ++calls;
    return function_(
        {.base = std::nullopt, .target = std::string(snapshot_id), .context = context});
  }

  absl::StatusOr<MetadataSource> OpenDelta(std::string_view base_snapshot_id,
                                           std::string_view target_snapshot_id,
                                           const StreamContext& context) override {
    ++calls;
    return function_({.base = std::string(base_snapshot_id),
                      .target = std::string(target_snapshot_id),
                      .context = context});
  }

  std::atomic<int> calls = 0;

 private:
  const Function function_;
};

// What a scripted cursor records; outlives the cursor.
struct CursorTrace {
  std::atomic<int> alive = 0;
  std::atomic<int> next_calls = 0;
};

// A cursor whose Next() is a test's function.
class ScriptedCursor final : public ExtentCursor {
 public:
  // Appends to the batch and returns the new coverage; `position` is the current one.
  using NextFunction = std::function<absl::StatusOr<uint64_t>(uint64_t position, ExtentBatch&)>;

  ScriptedCursor(uint64_t capacity, uint64_t granularity, std::shared_ptr<CursorTrace> trace,
                 NextFunction next)
      : ExtentCursor({.capacity = capacity, .granularity = granularity}),
        trace_(std::move(trace)),
        next_(std::move(next)) {
    ++trace_->alive;
  }
  ~ScriptedCursor() override { --trace_->alive; }

 private:
  absl::Status DoSeek(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    ++trace_->next_calls;
    return next_(covered(), batch);
  }

  const std::shared_ptr<CursorTrace> trace_;
  const NextFunction next_;
};

inline MetadataSource Extents(std::unique_ptr<ExtentCursor> cursor) {
  return {.cursor = std::move(cursor), .type = BlockMetadataType::kVariableLength};
}

inline MetadataSource Blocks(std::unique_ptr<ExtentCursor> cursor, uint64_t block_size) {
  return {.cursor = std::move(cursor),
          .type = BlockMetadataType::kFixedLength,
          .block_size = block_size};
}

// Every second block of the volume, computed on the fly: any number of tuples.
inline std::unique_ptr<ExtentCursor> AlternatingCursor(
    uint64_t capacity, uint64_t block, std::shared_ptr<CursorTrace> trace = nullptr) {
  if (trace == nullptr) trace = std::make_shared<CursorTrace>();
  return std::make_unique<ScriptedCursor>(
      capacity, block, trace,
      [=](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
        uint64_t next = (position + 2 * block - 1) / (2 * block) * (2 * block);
        while (!batch.full() && next < capacity) {
          batch.push_back({next, std::min(block, capacity - next)});
          next += 2 * block;
        }
        return next < capacity ? batch.back().end() : capacity;
      });
}

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_PROVIDERS_H_
