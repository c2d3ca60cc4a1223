// Cursors over images: delta by comparing bytes, allocation from the file system's holes.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/memory.h"
#include "cbt/source/image.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "core/run_assembler.h"
#include "simd/kernels.h"
#include "source/image/chunk_compare.h"
#include "source/image/read_ahead.h"

namespace cbt {
namespace {

// Minimum volume bytes per chunk: the work of one task.
constexpr uint64_t kChunkBytes = kMiB;

// The maximum number of chunks consumed, and of data ranges looked up, per Next().
constexpr int kChunksPerCall = 16;

// After this long Next() returns what it has, if only to let the consumer look around: a server
// sends the extents that it has found, and notices that its client has gone.
constexpr std::chrono::milliseconds kLongestCall{50};
constexpr int kRangesPerCall = 1024;

// A chunk in flight: filled by a task, awaited by the cursor. Shared, because a cursor may be
// destroyed while its tasks are still queued.
struct Chunk {
  Chunk(uint64_t chunk_begin, uint64_t chunk_end, uint64_t chunk_asked)
      : begin(chunk_begin), end(chunk_end), asked(chunk_asked) {}

  const uint64_t begin;
  const uint64_t end;
  const uint64_t asked;  // the kernel was asked to read up to here
  std::atomic<bool> unwanted{false};

  // Exceptions must end in the task, and the cursor must not wait forever.
  void Run(const ImagePair& pair, size_t block_size, std::atomic<bool>* cold) noexcept {
    absl::Status result = absl::OkStatus();
    std::vector<uint64_t> bits;
    if (!unwanted.load(std::memory_order_relaxed)) {
      try {
        result = CompareChunk(pair, begin, end, block_size, asked, cold, bits);
      } catch (const std::bad_alloc&) {
        // A message would need memory as well.
        result = absl::Status(absl::StatusCode::kResourceExhausted, "");
      } catch (...) {
        result = absl::Status(absl::StatusCode::kInternal, "");
      }
    }
    const std::lock_guard lock(mutex_);
    changed = std::move(bits);
    status = std::move(result);
    done_ = true;
    wake_.notify_one();
  }

  // False if the task has not ended by then.
  bool WaitUntil(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return wake_.wait_until(lock, deadline, [this] { return done_; });
  }

  bool IsDone() {
    const std::lock_guard lock(mutex_);
    return done_;
  }

  // Valid once the task has ended.
  absl::Status status;
  std::vector<uint64_t> changed;

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
};

class ImageDeltaCursor final : public ExtentCursor {
 public:
  ImageDeltaCursor(ImagePair pair, uint64_t block_size, const ImageOptions& options)
      : ExtentCursor({.capacity = pair.target->size(), .granularity = block_size}),
        pair_(std::make_shared<const ImagePair>(std::move(pair))),
        executor_(options.executor),
        in_flight_(executor_ == nullptr ? 1 : std::max<size_t>(options.chunks_in_flight, 1)),
        cold_(options.chunks_ahead > 0 ? std::make_shared<std::atomic<bool>>(false) : nullptr),
        most_planned_(std::max(in_flight_, options.chunks_ahead)),
        // A chunk's blocks fill whole words, so that a run can continue into the next chunk.
        chunk_bytes_(std::max(kChunkBytes, 64 * block_size)),
        runs_(pair_->target->size(), block_size) {}

  ~ImageDeltaCursor() override { Abandon(); }
  ImageDeltaCursor(const ImageDeltaCursor&) = delete;
  ImageDeltaCursor& operator=(const ImageDeltaCursor&) = delete;

 private:
  absl::Status DoSeek(uint64_t offset) override {
    Abandon();
    runs_.Reset();
    origin_ = planned_ = consumed_ = offset;
    scanned_words_ = 0;
    window_ = in_flight_;
    ahead_.reset();
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    const auto deadline = std::chrono::steady_clock::now() + kLongestCall;
    int chunks = 0;
    while (!batch.full()) {
      if (runs_.waiting()) {
        runs_.Take(batch);
        continue;
      }
      if (absl::Status status = Plan(); !status.ok()) return status;
      if (chunks_.empty()) {
        CloseAt(consumed_, batch);
        consumed_ = capacity();
        break;
      }
      Chunk& chunk = *chunks_.front();
      if (chunk.begin > consumed_) {
        // Holes on both sides: equal.
        CloseAt(consumed_, batch);
        consumed_ = chunk.begin;
        continue;
      }
      if (scanned_words_ == 0) {
        if (++chunks > kChunksPerCall) break;
        if (chunks > 1 && std::chrono::steady_clock::now() >= deadline) break;
        // What was found must not wait for a slow chunk.
        if (!batch.empty() && !chunk.IsDone()) break;
        if (executor_ == nullptr) chunk.Run(*pair_, BlockBytes(), cold_.get());
        if (!chunk.WaitUntil(deadline)) break;
        if (!chunk.status.ok()) return chunk.status;
      }
      Scan(chunk, batch);
    }
    if (pieces_allowed() && scanned_words_ == 0) {
      runs_.ClosePiece(BlockCount(consumed_, granularity()), batch);
    }
    const uint64_t covered = runs_.Pending().value_or(consumed_);
    if (covered == capacity()) {
      // Checked last, however the end was reached: the answer is valid only if neither image
      // changed.
      if (absl::Status status = pair_->CheckUnchanged(); !status.ok()) return status;
    }
    return covered;
  }

  // Ends an open run at `offset`.
  void CloseAt(uint64_t offset, ExtentBatch& batch) noexcept {
    runs_.Close(BlockCount(offset, granularity()), batch);
  }

  // Takes runs from the front chunk, and drops it once it is fully scanned.
  void Scan(Chunk& chunk, ExtentBatch& batch) {
    const auto* words = reinterpret_cast<const uint8_t*>(chunk.changed.data() + scanned_words_);
    const uint64_t block = chunk.begin / granularity() + scanned_words_ * 64;
    scanned_words_ += runs_.Scan(simd::ExtractRuns().single, words, words,
                                 chunk.changed.size() - scanned_words_, block, batch);
    if (scanned_words_ == chunk.changed.size()) {
      consumed_ = chunk.end;
      scanned_words_ = 0;
      chunks_.pop_front();
      if (executor_ != nullptr) --started_;
      window_ = std::min(window_ + 1, most_planned_);
    } else {
      consumed_ = chunk.begin + scanned_words_ * 64 * granularity();
    }
  }

  // Plans chunks up to the end of the window and has the kernel fetch them, leaving out those in
  // which neither image has data; starts the first ones.
  absl::Status Plan() {
    while (chunks_.size() < window_ && planned_ < capacity()) {
      absl::StatusOr<uint64_t> data = pair_->NextData(planned_);
      if (!data.ok()) return data.status();
      if (*data >= capacity()) {
        planned_ = capacity();
        break;
      }
      const uint64_t begin = origin_ + AlignDown(*data - origin_, chunk_bytes_);
      const uint64_t end = capacity() - begin < chunk_bytes_ ? capacity() : begin + chunk_bytes_;
      uint64_t asked = begin;
      // The first chunk before anything is known: an answer should begin soon.
      if (cold_ != nullptr && (planned_ == origin_ || cold_->load(std::memory_order_relaxed))) {
        // Of long chunks only the beginning: their tasks ask for the rest, so that it is bounded.
        asked = std::min(end, begin + kChunkBytes);
        if (!ahead_.has_value()) ahead_.emplace(*pair_);
        ahead_->Ask(begin, asked);
      }
      chunks_.push_back(std::make_shared<Chunk>(begin, end, asked));
      planned_ = end;
    }
    while (executor_ != nullptr && started_ < std::min(chunks_.size(), in_flight_)) {
      executor_->Schedule([chunk = chunks_[started_], pair = pair_, block_size = BlockBytes(),
                           cold = cold_] { chunk->Run(*pair, block_size, cold.get()); });
      ++started_;
    }
    return absl::OkStatus();
  }

  size_t BlockBytes() const noexcept { return static_cast<size_t>(granularity()); }

  // Cancels chunks that are still queued.
  void Abandon() noexcept {
    for (const auto& chunk : chunks_) chunk->unwanted.store(true, std::memory_order_relaxed);
    chunks_.clear();
    started_ = 0;
  }

  const std::shared_ptr<const ImagePair> pair_;
  Executor* const executor_;
  const size_t in_flight_;
  // Whether a read has waited for the storage; null if nothing is asked for. Shared with the tasks.
  const std::shared_ptr<std::atomic<bool>> cold_;
  const size_t most_planned_;
  const uint64_t chunk_bytes_;
  RunAssembler runs_;
  std::deque<std::shared_ptr<Chunk>> chunks_;
  size_t started_ = 0;  // of chunks_, from the front; without an executor Next() runs them
  // The most chunks to plan. Grows as they are consumed: who seeks and reads little asks for
  // little.
  size_t window_ = in_flight_;
  std::optional<ReadAhead> ahead_;
  uint64_t origin_ = 0;       // chunks begin at multiples of their size from here
  uint64_t planned_ = 0;      // below this offset chunks have been started, or found empty
  uint64_t consumed_ = 0;     // below this offset runs have been taken
  size_t scanned_words_ = 0;  // of the front chunk
};

// The data ranges of an image as its file system reports them.
class DataRangeCursor final : public ExtentCursor {
 public:
  explicit DataRangeCursor(std::shared_ptr<const Image> image)
      : ExtentCursor({.capacity = image->size(), .granularity = 1}), image_(std::move(image)) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    position_ = offset;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    for (int i = 0; i < kRangesPerCall && !batch.full() && position_ < capacity(); ++i) {
      absl::StatusOr<Image::Range> range = image_->FindData(position_);
      if (!range.ok()) return range.status();
      if (range->begin < range->end) batch.push_back({range->begin, range->end - range->begin});
      position_ = range->end;
    }
    if (position_ == capacity()) {
      if (absl::Status status = image_->CheckUnchanged(); !status.ok()) return status;
    }
    return position_;
  }

  const std::shared_ptr<const Image> image_;
  uint64_t position_ = 0;
};

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeCursor(ImagePair pair,
                                                         const ImageOptions& options) {
  // Blocks larger than a buffer are compared in parts; a part that differs makes the block differ.
  const uint64_t part = std::min<uint64_t>(options.block_size, kPieceBytes);
  auto cursor = std::make_unique<ImageDeltaCursor>(std::move(pair), part, options);
  if (part == options.block_size) return cursor;
  return AlignOutward(std::move(cursor), options.block_size);
}

}  // namespace

absl::Status CheckImageBlockSize(uint64_t block_size) {
  if (!IsPowerOfTwo(block_size) || block_size < kMinImageBlockSize ||
      block_size > kMaxImageBlockSize) {
    return absl::InvalidArgumentError(absl::StrCat("block size ", block_size,
                                                   " is not a power of two from ",
                                                   kMinImageBlockSize, " to ", kMaxImageBlockSize));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeImageDeltaCursor(
    std::shared_ptr<const Image> base, std::shared_ptr<const Image> target,
    const ImageOptions& options) {
  if (base == nullptr || target == nullptr) return absl::InvalidArgumentError("delta: no image");
  if (absl::Status status = CheckImageBlockSize(options.block_size); !status.ok()) return status;
  if (base->SameFileAs(*target))
    return MakeExtentCursor({}, {.capacity = target->size(), .granularity = options.block_size});
  return MakeCursor({std::move(base), std::move(target), options.skip_holes}, options);
}

absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeImageAllocationCursor(
    std::shared_ptr<const Image> image, const ImageOptions& options) {
  if (image == nullptr) return absl::InvalidArgumentError("allocation: no image");
  if (absl::Status status = CheckImageBlockSize(options.block_size); !status.ok()) return status;
  if (options.skip_zeros) {
    return MakeCursor({nullptr, std::move(image), options.skip_holes}, options);
  }
  if (!options.skip_holes) {
    std::vector<Extent> all;
    if (image->size() > 0) all.push_back({0, image->size()});
    return MakeExtentCursor(all, {.capacity = image->size(), .granularity = options.block_size});
  }
  return AlignOutward(std::make_unique<DataRangeCursor>(std::move(image)), options.block_size);
}

}  // namespace cbt
