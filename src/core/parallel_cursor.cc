#include "core/parallel_cursor.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace cbt {
namespace {

// The extents that a part should have: enough to be worth handing over, few enough to stay in a
// second-level cache until they are consumed.
constexpr uint64_t kPartExtents = uint64_t{1} << 16;

// Below this many blocks per extent other threads don't help: finding an extent costs less than
// moving it from another core's cache, so the consumer works alone until density drops.
constexpr uint64_t kDense = 20;

// The most batches of a part that may wait. A part with more is suspended, and the consumer
// finishes it when its turn comes.
constexpr size_t kMaxBatches = 128;

// A batch of a part, and the part's coverage after it.
struct Filled {
  ExtentBatch batch;
  uint64_t covered = 0;
};

struct Part {
  enum class State { kIdle, kRunning, kLeft, kDone };

  Part(uint64_t part_begin, uint64_t part_end) : begin(part_begin), end(part_end) {}

  const uint64_t begin;
  const uint64_t end;
  State state = State::kIdle;
  std::deque<Filled> filled;
  uint64_t extents = 0;
  std::unique_ptr<ExtentCursor> cursor;  // used by the thread that runs the part
  absl::Status status;
};

// State shared with the cursor's tasks, which may outlive it in the executor's queue.
class Shared : public std::enable_shared_from_this<Shared> {
 public:
  Shared(ParallelParts parts, uint64_t capacity, uint64_t granularity, Executor& executor,
         size_t threads)
      : parts_(std::move(parts)),
        capacity_(capacity),
        granularity_(granularity),
        executor_(executor),
        workers_(threads - 1),
        window_(2 * threads),
        part_blocks_(parts_.first_blocks) {}

  // Waits for running parts, then drops all parts. New ones begin at `offset`.
  void Restart(uint64_t offset) {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    left_.wait(lock, [this] { return running_ == 0; });
    stopping_ = false;
    queue_.clear();
    planned_ = offset;
  }

  // The part whose turn it is. Also plans the parts after it, as many as the window allows, and
  // schedules workers for them. Requires: not at the end of the volume.
  std::shared_ptr<Part> Front() {
    std::unique_lock lock(mutex_);
    const size_t window = dense_ ? 1 : window_;
    while (queue_.size() < window && planned_ < capacity_) Plan();
    size_t idle = 0;
    for (const auto& part : queue_) idle += part->state == Part::State::kIdle ? 1 : 0;
    // The consumer itself takes one of them.
    size_t call = idle > 1 ? std::min(idle - 1, workers_ - std::min(workers_, called_)) : 0;
    called_ += call;
    std::shared_ptr<Part> front = queue_.front();
    lock.unlock();
    try {
      for (; call > 0; --call) {
        executor_.Schedule([shared = shared_from_this()] { shared->Work(); });
      }
    } catch (...) {
      // Tasks that were not scheduled won't decrement the count.
      lock.lock();
      called_ -= call;
      throw;
    }
    return front;
  }

  // The result of Take().
  enum class Found { kBatch, kOwned, kFailed };

  // Moves the next waiting batch of `part` into `filled`; or makes the caller its owner if no
  // thread runs it; or reports that it failed. While another thread runs it, works on other parts.
  Found Take(Part& part, Filled& filled) {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (!part.filled.empty()) {
        std::swap(filled, part.filled.front());
        Recycle(std::move(part.filled.front().batch));
        part.filled.pop_front();
        return Found::kBatch;
      }
      switch (part.state) {
        case Part::State::kDone:
          // A part that succeeded is not asked again after its last batch.
          return Found::kFailed;
        case Part::State::kIdle:
        case Part::State::kLeft:
          part.state = Part::State::kLeft;
          return Found::kOwned;
        case Part::State::kRunning:
          break;
      }
      if (const std::shared_ptr<Part> other = FindIdle()) {
        Run(other, lock);
      } else {
        waiting_for_ = &part;
        filled_.wait(lock);
        waiting_for_ = nullptr;
      }
    }
  }

  // The front part has been consumed; the consumer itself found `own` of its extents.
  void Finished(Part& part, uint64_t own) {
    const std::lock_guard lock(mutex_);
    part.extents += own;
    Learn(part);
    queue_.pop_front();
  }

  // The cursor of a part, created at the part's beginning on first use. For the part's owner.
  absl::StatusOr<ExtentCursor*> CursorOf(Part& part) const {
    if (part.cursor == nullptr) {
      part.cursor = parts_.make(part.end);
      if (absl::Status status = part.cursor->Seek(part.begin); !status.ok()) return status;
    }
    return part.cursor.get();
  }

 private:
  // Appends a part to the queue. Parts begin and end at word boundaries of the bitmap.
  void Plan() {
    const uint64_t rest = BlockCount(capacity_ - planned_, granularity_);
    // Ends at a multiple of 64 blocks from the beginning of the volume.
    const uint64_t blocks = part_blocks_ - planned_ / granularity_ % 64;
    const uint64_t end = blocks >= rest ? capacity_ : planned_ + blocks * granularity_;
    queue_.push_back(std::make_shared<Part>(planned_, end));
    planned_ = end;
  }

  std::shared_ptr<Part> FindIdle() {
    for (const auto& part : queue_) {
      if (part->state == Part::State::kIdle) return part;
    }
    return nullptr;
  }

  // A task: runs idle parts until there are none.
  void Work() {
    std::unique_lock lock(mutex_);
    while (!stopping_ && !dense_) {
      const std::shared_ptr<Part> part = FindIdle();
      if (part == nullptr) break;
      Run(part, lock);
    }
    --called_;
  }

  // Runs an idle part until it is done or has kMaxBatches batches. The lock is held on entry and
  // exit, but not during the work.
  void Run(const std::shared_ptr<Part>& part, std::unique_lock<std::mutex>& lock) noexcept {
    part->state = Part::State::kRunning;
    ++running_;
    bool done = false;
    try {
      part->status = Fill(*part, lock, done);
    } catch (const std::bad_alloc&) {
      part->status = out_of_memory_;
    } catch (...) {
      part->status = threw_;
    }
    // After any exception, no thread may wait for this one forever.
    if (!lock.owns_lock()) lock.lock();
    part->state = done || !part->status.ok() ? Part::State::kDone : Part::State::kLeft;
    if (waiting_for_ == part.get()) filled_.notify_all();
    if (--running_ == 0) left_.notify_all();
  }

  // The work of Run(). Returns the part's status; sets `done` if the part is complete. May throw,
  // with or without the lock held; the part is then in an undefined state.
  absl::Status Fill(Part& part, std::unique_lock<std::mutex>& lock, bool& done) {
    size_t batches = 0;
    while (!stopping_ && !done && batches < kMaxBatches) {
      Filled filled{Fresh(), 0};
      lock.unlock();
      absl::StatusOr<ExtentCursor*> cursor = CursorOf(part);
      absl::StatusOr<Step> step = cursor.ok() ? (*cursor)->Next(filled.batch) : cursor.status();
      lock.lock();
      if (!step.ok()) return step.status();
      done = *step == Step::kComplete;
      filled.covered = done ? part.end : part.cursor->covered();
      part.extents += filled.batch.size();
      if (!filled.batch.empty() || done) {
        part.filled.push_back(std::move(filled));
        ++batches;
        if (waiting_for_ == &part) filled_.notify_all();
      } else {
        Recycle(std::move(filled.batch));
      }
    }
    return absl::OkStatus();
  }

  // Sizes later parts by the density of a finished one.
  void Learn(const Part& part) {
    const uint64_t blocks = BlockCount(part.end - part.begin, granularity_);
    const uint64_t extents = std::max<uint64_t>(part.extents, 1);
    uint64_t fitting = parts_.max_blocks;
    if (blocks < std::numeric_limits<uint64_t>::max() / kPartExtents) {
      fitting = blocks * kPartExtents / extents;
    }
    dense_ = extents > blocks / kDense;
    // At most doubles the size: a dense part may follow a sparse one.
    part_blocks_ =
        std::clamp(std::min(fitting, 2 * part_blocks_), parts_.min_blocks, parts_.max_blocks) / 64 *
        64;
  }

  // Batches are reused: fresh memory would cost a page fault per page.
  ExtentBatch Fresh() {
    if (spare_.empty()) return ExtentBatch();
    ExtentBatch batch = std::move(spare_.back());
    spare_.pop_back();
    return batch;
  }
  void Recycle(ExtentBatch batch) {
    if (spare_.size() < kMaxBatches) spare_.push_back(std::move(batch));
  }

  const ParallelParts parts_;
  const uint64_t capacity_;
  const uint64_t granularity_;
  Executor& executor_;
  const size_t workers_;
  const size_t window_;
  // Created while memory is available.
  const absl::Status out_of_memory_ =
      absl::ResourceExhaustedError("parallel cursor: no memory to read ahead");
  const absl::Status threw_ =
      absl::InternalError("parallel cursor: reading ahead threw an exception");

  std::mutex mutex_;
  std::condition_variable filled_;  // the part that the consumer waits for has progressed
  std::condition_variable left_;    // no thread runs a part
  std::deque<std::shared_ptr<Part>> queue_;
  std::vector<ExtentBatch> spare_;
  const Part* waiting_for_ = nullptr;
  uint64_t planned_ = 0;
  uint64_t part_blocks_;
  bool dense_ = false;
  size_t called_ = 0;   // scheduled tasks that have not ended
  size_t running_ = 0;  // threads inside Run()
  bool stopping_ = false;
};

class ParallelCursor final : public ExtentCursor {
 public:
  ParallelCursor(ParallelParts parts, uint64_t capacity, uint64_t granularity, Executor& executor,
                 size_t threads)
      : ExtentCursor({.capacity = capacity, .granularity = granularity}),
        shared_(
            std::make_shared<Shared>(std::move(parts), capacity, granularity, executor, threads)) {}

  ~ParallelCursor() override { shared_->Restart(0); }
  ParallelCursor(const ParallelCursor&) = delete;
  ParallelCursor& operator=(const ParallelCursor&) = delete;

 private:
  absl::Status DoSeek(uint64_t offset) override {
    shared_->Restart(offset);
    part_ = nullptr;
    owned_ = false;
    rest_.batch.clear();
    taken_ = 0;
    first_ = last_ = {};
    passed_ = offset;
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (taken_ == rest_.batch.size()) {
      // A part that this cursor runs itself writes directly into `batch`: a second buffer would
      // evict the first from the first-level cache.
      if (owned_ && last_.length == 0) return RunOn(batch);
      if (absl::Status status = Refill(); !status.ok()) return status;
    }
    if (first_.length != 0) batch.push_back(std::exchange(first_, {}));
    if (batch.empty() && taken_ == 0 && batch.capacity() == rest_.batch.capacity()) {
      std::swap(batch, rest_.batch);
    } else {
      for (; taken_ < rest_.batch.size() && !batch.full(); ++taken_) {
        batch.push_back(rest_.batch[taken_]);
      }
    }
    if (taken_ < rest_.batch.size()) return rest_.batch[taken_].offset;
    return last_.length != 0 ? last_.offset : passed_;
  }

  // Continues the part that this cursor runs, directly into `batch`.
  absl::StatusOr<uint64_t> RunOn(ExtentBatch& batch) {
    const uint64_t part_end = part_->end;
    if (absl::Status status = RunOwn(batch); !status.ok()) return status;
    KeepLast(batch, part_end);
    return last_.length != 0 ? last_.offset : passed_;
  }

  // Moves the next batch of the current part into rest_, and joins an extent that a part's end cut.
  absl::Status Refill() {
    rest_.batch.clear();
    taken_ = 0;
    if (part_ == nullptr) part_ = shared_->Front();
    const uint64_t part_end = part_->end;
    if (absl::Status status = TakeBatch(); !status.ok()) return status;
    if (!rest_.batch.empty() && rest_.batch.front().offset == last_.end() && last_.length != 0) {
      rest_.batch.mutable_offsets()[0] = last_.offset;
      rest_.batch.mutable_lengths()[0] += last_.length;
      last_ = {};
    } else if (passed_ > last_.end()) {
      first_ = std::exchange(last_, {});
    }
    KeepLast(rest_.batch, part_end);
    return absl::OkStatus();
  }

  // Holds back an extent that ends with its part: it may continue in the next one.
  void KeepLast(ExtentBatch& batch, uint64_t part_end) noexcept {
    if (part_end == capacity() || batch.empty() || batch.back().end() != part_end) return;
    last_ = batch.back();
    batch.set_size(batch.size() - 1);
  }

  // Moves the part's next batch to rest_ and sets passed_ to its coverage.
  absl::Status TakeBatch() {
    if (!owned_) {
      switch (shared_->Take(*part_, rest_)) {
        case Shared::Found::kBatch:
          passed_ = rest_.covered;
          if (passed_ == part_->end) Finish(0);
          return absl::OkStatus();
        case Shared::Found::kFailed:
          return part_->status;
        case Shared::Found::kOwned:
          owned_ = true;
          own_extents_ = 0;
          break;
      }
    }
    return RunOwn(rest_.batch);
  }

  // Reads the next batch of the part that this cursor runs.
  absl::Status RunOwn(ExtentBatch& batch) {
    absl::StatusOr<ExtentCursor*> cursor = shared_->CursorOf(*part_);
    if (!cursor.ok()) return cursor.status();
    absl::StatusOr<Step> step = (*cursor)->Next(batch);
    if (!step.ok()) return step.status();
    own_extents_ += batch.size();
    passed_ = *step == Step::kComplete ? part_->end : (*cursor)->covered();
    if (passed_ == part_->end) Finish(own_extents_);
    return absl::OkStatus();
  }

  void Finish(uint64_t own_extents) {
    shared_->Finished(*part_, own_extents);
    owned_ = false;
    part_ = nullptr;
  }

  const std::shared_ptr<Shared> shared_;
  std::shared_ptr<Part> part_;  // the current part; null between parts
  bool owned_ = false;          // this cursor runs part_ itself
  uint64_t own_extents_ = 0;    // found by this cursor
  Filled rest_;                 // its extents from taken_ on are still to be returned
  size_t taken_ = 0;
  Extent first_;         // precedes rest_, if not empty
  Extent last_;          // ends with its part; held back until the next part begins
  uint64_t passed_ = 0;  // rest_, first_ and last_ hold everything below this offset
};

}  // namespace

std::unique_ptr<ExtentCursor> MakeParallelCursor(ParallelParts parts, uint64_t capacity,
                                                 uint64_t granularity, Executor& executor,
                                                 size_t threads) {
  return std::make_unique<ParallelCursor>(std::move(parts), capacity, granularity, executor,
                                          threads);
}

}  // namespace cbt
