#include "cbt/source/copy_ranges.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"

namespace cbt {
namespace {

constexpr size_t kMinPieceBytes = 4 * kKiB;
constexpr size_t kMaxPieceBytes = 64 * kMiB;
constexpr size_t kMaxPieces = 1024;
// The unit in which zeros are looked for: a block of most file systems.
constexpr size_t kZeroUnit = 4 * kKiB;
// A piece without data: cheap where the output punches holes, and still soon cancelled where it
// writes zeros.
constexpr uint64_t kZeroPieceBytes = 256 * kMiB;

absl::Status CheckCopy(const ExtentCursor& cursor, const CopyInput& input,
                       const CopyOptions& options) {
  if (options.pieces_in_flight < 1 || options.pieces_in_flight > kMaxPieces) {
    return absl::InvalidArgumentError(absl::StrCat("pieces_in_flight must be 1 to ", kMaxPieces));
  }
  if (!IsPowerOfTwo(options.piece_bytes) || options.piece_bytes < kMinPieceBytes ||
      options.piece_bytes > kMaxPieceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("piece_bytes must be a power of two from ",
                                                   kMinPieceBytes, " to ", kMaxPieceBytes));
  }
  const uint64_t size = input.size();
  if (size < cursor.capacity() || (size > cursor.capacity() && !options.allow_longer_input)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data to copy has ", size, " bytes, but the ranges are of a volume of ",
                     cursor.capacity(), ": they belong to another snapshot"));
  }
  return absl::OkStatus();
}

// Whether copy_file_range can't do it, so that reading and writing must.
bool KernelCannotCopy(int error) {
  return error == EXDEV || error == EINVAL || error == EOPNOTSUPP || error == ENOSYS ||
         error == EPERM || error == EBADF || error == ETXTBSY;
}

bool IsZero(std::span<const uint8_t> bytes) {
  return bytes.empty() ||
         (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// One copy. The calling thread cuts the ranges into pieces; it and tasks of the executor copy them.
// Shared with the tasks, which may run after the call has returned and then find no piece.
class RangeCopy {
 public:
  RangeCopy(const CopyInput& input, CopyOutput& output, const CopyOptions& options)
      : input_(input),
        output_(output),
        options_(options),
        kernel_copies_(!options.find_zeros && input.descriptor() >= 0 && output.descriptor() >= 0) {
  }

  // The body of a task, and of the calling thread where it has to wait: copies the next piece that
  // waits. Returns whether there was one.
  bool CopyOne() noexcept {
    Piece piece;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) return false;
      piece = waiting_.front();
      waiting_.pop_front();
    }
    Outcome outcome;
    try {
      outcome = CopyPiece(piece);
    } catch (const std::exception&) {
      outcome.status = absl::ResourceExhaustedError("");  // no memory, not even for a text
    }
    const std::lock_guard lock(mutex_);
    unfinished_.erase(unfinished_.find(piece.extent.offset));
    done_.data_bytes += outcome.data_bytes;
    done_.zero_bytes += outcome.zero_bytes;
    if (!outcome.status.ok() && (failure_.ok() || piece.extent.offset < failed_at_)) {
      failure_ = std::move(outcome.status);
      failed_at_ = piece.extent.offset;
    }
    changed_.notify_all();
    return true;
  }

  // Queues a piece, once there is room for it. Errors: that of an earlier piece.
  absl::Status Add(Extent extent, bool zero, const std::shared_ptr<RangeCopy>& self) {
    if (zero && options_.output_is_zero) {
      const std::lock_guard lock(mutex_);
      done_.zero_bytes += extent.length;
      return failure_;
    }
    const bool alone = options_.executor == nullptr;
    {
      std::unique_lock lock(mutex_);
      while (failure_.ok() && unfinished_.size() >= options_.pieces_in_flight) {
        HelpOrWait(lock);
      }
      if (!failure_.ok()) return failure_;
      unfinished_.insert(extent.offset);
      try {
        waiting_.push_back({.extent = extent, .zero = zero});
      } catch (...) {
        unfinished_.erase(extent.offset);
        throw;
      }
    }
    if (alone) {
      CopyOne();
      const std::lock_guard lock(mutex_);
      return failure_;
    }
    try {
      options_.executor->Schedule([self] { self->CopyOne(); });
    } catch (const std::exception&) {
      // The calling thread copies it when it next waits.
      CopyOne();
    }
    return absl::OkStatus();
  }

  // Copies what still waits, unless something failed, and waits for what others are copying.
  absl::Status Finish() {
    std::unique_lock lock(mutex_);
    while (!unfinished_.empty()) {
      if (!failure_.ok()) Abandon();
      if (!unfinished_.empty()) HelpOrWait(lock);
    }
    return failure_;
  }

  // Ends the copy: what waits is dropped, what is being copied is waited for.
  void Stop() {
    std::unique_lock lock(mutex_);
    Abandon();
    while (!unfinished_.empty()) changed_.wait(lock);
  }

  // `covered`: what has been queued.
  void Count(uint64_t ranges, uint64_t range_bytes) {
    done_.ranges += ranges;
    done_.range_bytes += range_bytes;
  }
  CopyProgress Progress(uint64_t covered) {
    const std::lock_guard lock(mutex_);
    uint64_t safe = unfinished_.empty() ? covered : std::min(covered, *unfinished_.begin());
    safe = std::min(safe, failed_at_);
    done_.covered = std::max(done_.covered, safe);
    return done_;
  }

 private:
  struct Piece {
    Extent extent;
    bool zero = false;
  };
  struct Outcome {
    absl::Status status;
    uint64_t data_bytes = 0;
    uint64_t zero_bytes = 0;
  };

  // Requires: the lock.
  void HelpOrWait(std::unique_lock<std::mutex>& lock) {
    if (waiting_.empty()) {
      changed_.wait(lock);
      return;
    }
    lock.unlock();
    CopyOne();
    lock.lock();
  }
  void Abandon() {
    for (const Piece& piece : waiting_) {
      unfinished_.erase(unfinished_.find(piece.extent.offset));
      failed_at_ = std::min(failed_at_, piece.extent.offset);
    }
    waiting_.clear();
  }

  Outcome CopyPiece(const Piece& piece) {
    Outcome outcome;
    if (piece.zero) {
      outcome.status = MakeZero(piece.extent);
      outcome.zero_bytes = piece.extent.length;
    } else if (kernel_copies_.load(std::memory_order_relaxed)) {
      uint64_t begin = piece.extent.offset;
      CopyInKernel(begin, piece.extent.end());
      outcome.data_bytes = begin - piece.extent.offset;
      const Extent rest{begin, piece.extent.end() - begin};
      if (rest.length > 0) CopyBytes(rest, outcome);
      if (outcome.status.ok() && options_.verify && begin > piece.extent.offset) {
        outcome.status = Verify({piece.extent.offset, begin - piece.extent.offset});
      }
    } else {
      CopyBytes(piece.extent, outcome);
    }
    return outcome;
  }

  absl::Status MakeZero(Extent extent) {
    if (absl::Status zeroed = output_.WriteZeros(extent); !zeroed.ok()) return zeroed;
    if (!options_.verify) return absl::OkStatus();
    std::vector<uint8_t> seen(
        static_cast<size_t>(std::min<uint64_t>(extent.length, options_.piece_bytes)));
    for (uint64_t offset = extent.offset; offset < extent.end();) {
      const auto size = static_cast<size_t>(std::min<uint64_t>(extent.end() - offset, seen.size()));
      const std::span<uint8_t> part(seen.data(), size);
      if (absl::Status read = output_.Read(offset, part); !read.ok()) return read;
      if (!IsZero(part)) return NotEqual({offset, size});
      offset += size;
    }
    return absl::OkStatus();
  }

  // Copies [begin, end) as far as the kernel can, and moves `begin` past it. Its errors don't say
  // which end has failed: reading and writing the rest do.
  void CopyInKernel(uint64_t& begin, uint64_t end) {
    while (begin < end) {
      auto from = static_cast<off64_t>(begin);
      auto to = from;
      const ssize_t copied = Retry([&] {
        return ::copy_file_range(input_.descriptor(), &from, output_.descriptor(), &to,
                                 static_cast<size_t>(end - begin), 0);
      });
      if (copied <= 0) {
        // 0 bytes means the end of the file, or a file system that wrongly says so.
        if (copied == 0 || KernelCannotCopy(errno)) {
          kernel_copies_.store(false, std::memory_order_relaxed);
        }
        return;
      }
      begin += static_cast<uint64_t>(copied);
    }
  }

  void CopyBytes(Extent extent, Outcome& outcome) {
    std::vector<uint8_t> bytes(static_cast<size_t>(extent.length));
    outcome.status = input_.Read(extent.offset, bytes);
    if (!outcome.status.ok()) return;
    if (!options_.find_zeros) {
      outcome.status = output_.Write(extent.offset, bytes);
      outcome.data_bytes += extent.length;
    } else {
      CopyAroundZeros(extent.offset, bytes, outcome);
    }
    if (!outcome.status.ok() || !options_.verify) return;
    std::vector<uint8_t> seen(bytes.size());
    outcome.status = output_.Read(extent.offset, seen);
    if (outcome.status.ok() && seen != bytes) outcome.status = NotEqual(extent);
  }

  // Writes runs of data and of zeros, which begin at multiples of kZeroUnit.
  void CopyAroundZeros(uint64_t offset, std::span<const uint8_t> bytes, Outcome& outcome) {
    const auto unit_at = [&](size_t at) {
      const size_t to_next = kZeroUnit - static_cast<size_t>((offset + at) % kZeroUnit);
      return bytes.subspan(at, std::min(to_next, bytes.size() - at));
    };
    for (size_t begin = 0; begin < bytes.size() && outcome.status.ok();) {
      const bool zero = IsZero(unit_at(begin));
      size_t end = begin;
      while (end < bytes.size() && IsZero(unit_at(end)) == zero) end += unit_at(end).size();
      if (!zero) {
        outcome.status = output_.Write(offset + begin, bytes.subspan(begin, end - begin));
        outcome.data_bytes += end - begin;
      } else {
        if (!options_.output_is_zero) {
          outcome.status = output_.WriteZeros({offset + begin, end - begin});
        }
        outcome.zero_bytes += end - begin;
      }
      begin = end;
    }
  }

  absl::Status Verify(Extent extent) {
    std::vector<uint8_t> expected(static_cast<size_t>(extent.length));
    if (absl::Status read = input_.Read(extent.offset, expected); !read.ok()) return read;
    std::vector<uint8_t> seen(expected.size());
    if (absl::Status read = output_.Read(extent.offset, seen); !read.ok()) return read;
    return seen == expected ? absl::OkStatus() : NotEqual(extent);
  }

  static absl::Status NotEqual(Extent extent) {
    return absl::DataLossError(absl::StrCat(
        "the copy differs from its source between the bytes ", extent.offset, " and ", extent.end(),
        ": the output does not keep what is written, or the source was changed meanwhile"));
  }

  const CopyInput& input_;
  CopyOutput& output_;
  const CopyOptions& options_;
  std::atomic<bool> kernel_copies_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> waiting_;
  std::multiset<uint64_t> unfinished_;  // offsets of pieces that wait or are being copied
  CopyProgress done_;
  absl::Status failure_;
  uint64_t failed_at_ = ~uint64_t{0};  // the lowest piece that failed or was dropped
};

// Cuts ranges into pieces of data and of zeros.
class PieceCutter {
 public:
  PieceCutter(const CopyInput& input, const CopyOptions& options) noexcept
      : input_(input),
        piece_bytes_(options.piece_bytes),
        zero_bytes_(options.output_is_zero ? kMaxCapacity : kZeroPieceBytes) {}

  // Calls `use(extent, zero)` for each piece. Stops at its first error.
  template <typename Use>
  absl::Status Cut(Extent range, Use use) {
    uint64_t begin = range.offset;
    while (begin < range.end()) {
      if (begin < found_from_ || begin >= found_.end()) {
        const absl::StatusOr<Extent> found = input_.FindData(begin);
        if (!found.ok()) return found.status();
        found_from_ = begin;
        found_ = *found;
        // Nothing follows: as far as the input goes.
        if (found_.length == 0) found_ = {input_.size(), 0};
      }
      const uint64_t data = std::clamp(found_.offset, begin, range.end());
      if (data > begin) {
        const uint64_t end = std::min(data, begin + zero_bytes_);
        if (absl::Status used = use(Extent{begin, end - begin}, true); !used.ok()) return used;
        begin = end;
        continue;
      }
      const uint64_t next = AlignDown(begin, piece_bytes_) + piece_bytes_;
      const uint64_t end = std::min({next, found_.end(), range.end()});
      if (absl::Status used = use(Extent{begin, end - begin}, false); !used.ok()) return used;
      begin = end;
    }
    return absl::OkStatus();
  }

 private:
  const CopyInput& input_;
  const uint64_t piece_bytes_;
  const uint64_t zero_bytes_;
  // The last answer of FindData() and where it was asked for: neighbouring ranges often lie in one.
  uint64_t found_from_ = 0;
  Extent found_;
};

}  // namespace

absl::StatusOr<CopyProgress> CopyRanges(ExtentCursor& cursor, const CopyInput& input,
                                        CopyOutput& output, const CopyOptions& options) {
  if (absl::Status valid = CheckCopy(cursor, input, options); !valid.ok()) return valid;
  const auto copy = std::make_shared<RangeCopy>(input, output, options);
  PieceCutter cutter(input, options);
  const auto report = [&](uint64_t covered) -> absl::Status {
    if (options.on_progress) options.on_progress(copy->Progress(covered));
    if (options.stop.stop_requested()) return absl::CancelledError("the copy was cancelled");
    return absl::OkStatus();
  };
  // Whatever happens, no task may still use the input or the output after the return.
  struct StopAtEnd {
    RangeCopy& copy;
    ~StopAtEnd() { copy.Stop(); }
  };
  const StopAtEnd stop_at_end{*copy};

  uint64_t queued = cursor.covered();  // everything below it has been queued
  ExtentBatch batch;
  for (;;) {
    const absl::StatusOr<Step> step = cursor.Next(batch);
    absl::Status failure = step.status();
    for (size_t i = 0; failure.ok() && i < batch.size(); ++i) {
      // The last block of a cursor over blocks may extend past the capacity.
      Extent range = batch[i];
      range.length = std::min(range.end(), cursor.capacity()) - range.offset;
      copy->Count(1, range.length);
      failure = cutter.Cut(range, [&](Extent piece, bool zero) -> absl::Status {
        if (absl::Status added = copy->Add(piece, zero, copy); !added.ok()) return added;
        queued = piece.end();
        return report(queued);
      });
    }
    if (failure.ok()) {
      queued = cursor.covered();
      failure = report(queued);
    }
    if (failure.ok() && *step == Step::kMore) continue;

    if (failure.ok()) {
      failure = copy->Finish();
    } else {
      copy->Stop();
    }
    if (failure.ok() && options.sync) failure = output.Sync();
    // Also after an error: what is said to be covered is what a caller goes on from.
    const CopyProgress done = copy->Progress(queued);
    if (options.on_progress) options.on_progress(done);
    if (!failure.ok()) return failure;
    return done;
  }
}

}  // namespace cbt
