#include "programs/backup/create.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cbt/rpc/client.h"
#include "cbt/units.h"
#include "programs/backup/restore_plan.h"
#include "repository/host.h"
#include "repository/parallel.h"
#include "repository/tree.h"

namespace cbt::backup {
namespace {

using repository::BlobType;
using repository::Id;

// A list of blobs is written with each snapshot, so that fewer and larger ones pay for volumes
// beyond a tebibyte.
constexpr size_t kManyBlobs = size_t{1} << 20;
// How many snapshots are tried as a parent, the newest first.
constexpr size_t kMaxParents = 5;
// Blobs that a delta leaves out and that are compared with the parent's nevertheless.
constexpr size_t kMinSamples = 4;
constexpr size_t kMaxSamples = 32;
constexpr char kNotIncremental[] = "cbt.not-incremental";

uint64_t BlobBytesFor(uint64_t size) {
  uint64_t bytes = kMinBlobBytes;
  while (bytes < kMaxBlobBytes && BlockCount(size, bytes) > kManyBlobs) bytes *= 2;
  return bytes;
}

bool IsBlobSize(uint64_t bytes) {
  return IsPowerOfTwo(bytes) && bytes >= kMinBlobBytes && bytes <= kMaxBlobBytes;
}

struct Parent {
  VolumeSnapshot snapshot;
  VolumeContent content;
};

bool IsZero(std::span<const uint8_t> bytes) {
  return bytes.empty() ||
         (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

// One backup under way.
class Creation {
 public:
  Creation(repository::Repository& repository, const CopyInput& input, RangeSource& ranges,
           const CreateOptions& options)
      : repository_(repository), input_(input), ranges_(ranges), options_(options) {}

  absl::StatusOr<CreateResult> Run() {
    if (absl::Status planned = Plan(); !planned.ok()) return planned;
    if (absl::Status stored = StoreBlobs(); !stored.ok()) return stored;
    return Publish();
  }

 private:
  void Note(const std::string& text) const {
    if (options_.on_note) options_.on_note(text);
  }

  // The newest snapshot of the volume with a handle and a list of blobs that are all there.
  absl::Status FindParent() {
    absl::StatusOr<std::vector<VolumeSnapshot>> known =
        FindVolumeSnapshots(repository_, options_.volume);
    if (!known.ok()) return known.status();
    size_t tried = 0;
    no_delta_ = "the repository has no snapshot of this volume with a handle";
    for (auto one = known->rbegin(); one != known->rend() && tried < kMaxParents; ++one) {
      if (!one->ours || !one->handle.has_value()) continue;
      ++tried;
      absl::StatusOr<VolumeContent> content = LoadContent(repository_, *one);
      std::string why;
      if (!content.ok()) {
        // What can't be reached now may be there later.
        if (absl::IsUnavailable(content.status()) || absl::IsCancelled(content.status())) {
          return content.status();
        }
        why = std::string(content.status().message());
      } else if (!IsBlobSize(one->blob_bytes.value_or(0)) || !content->IsCutAt(*one->blob_bytes)) {
        why = absl::StrCat("snapshot ", one->snapshot.id.Short(), " is not cut into equal blobs");
      } else if (BlockCount(input_.size(), *one->blob_bytes) > kMaxVolumeBlobs) {
        why = absl::StrCat("snapshot ", one->snapshot.id.Short(), " has blobs of ",
                           *one->blob_bytes, " bytes, which are too small now");
      } else {
        parent_ = Parent{std::move(*one), *std::move(content)};
        return absl::OkStatus();
      }
      Note(absl::StrCat("not a parent: ", why));
      no_delta_ = why;
    }
    return absl::OkStatus();
  }

  // Marks the blobs that the extents of `cursor` touch.
  absl::Status Mark(ExtentCursor& cursor) {
    if (cursor.capacity() != size_) {
      return absl::InvalidArgumentError(
          absl::StrCat("the data has ", size_, " bytes, but the metadata is of a volume of ",
                       cursor.capacity(), ": they belong to different snapshots"));
    }
    wanted_.assign(content_.size(), false);
    return ForEachBatch(cursor, [&](const ExtentBatch& batch) {
      for (size_t i = 0; i < batch.size(); ++i) {
        const Extent extent = batch[i];
        // The last block of a cursor over blocks may extend past the capacity.
        const uint64_t end = std::min(extent.end(), size_);
        if (extent.offset >= end) continue;
        for (uint64_t blob = extent.offset / blob_bytes_; blob <= (end - 1) / blob_bytes_; ++blob) {
          wanted_[blob] = true;
        }
      }
      return absl::OkStatus();
    });
  }

  // OK without marks: the next tier is to be tried.
  absl::Status StepDown(rpc::Tier tier, const absl::Status& why, bool& marked) {
    marked = why.ok();
    if (why.ok()) return absl::OkStatus();
    // Ranges of another snapshot are a mistake that the next tier would hide.
    if (!rpc::FallsBack(tier, why)) return why;
    (tier == rpc::Tier::kDelta ? no_delta_ : no_allocation_) = std::string(why.message());
    return absl::OkStatus();
  }

  absl::Status TryDelta(bool& marked) {
    marked = false;
    if (!parent_.has_value()) return absl::OkStatus();
    const absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor =
        ranges_.Delta(*parent_->snapshot.handle);
    if (!cursor.ok()) return StepDown(rpc::Tier::kDelta, cursor.status(), marked);
    const uint64_t own = blob_bytes_;
    blob_bytes_ = *parent_->snapshot.blob_bytes;
    content_.assign(BlockCount(size_, blob_bytes_), Id());
    const bool fits = (*cursor)->capacity() == size_;
    absl::Status read = Mark(**cursor);
    if (!fits) return read;
    if (absl::Status step = StepDown(rpc::Tier::kDelta, read, marked); !step.ok()) return step;
    if (!marked) {
      blob_bytes_ = own;
      content_.assign(BlockCount(size_, blob_bytes_), Id());
      return absl::OkStatus();
    }
    // Where the volume became longer or shorter, the parent's last blob does not count, nor what
    // follows.
    const VolumeContent& old = parent_->content;
    const size_t same =
        old.size == size_ ? content_.size() : std::min(old.size, size_) / blob_bytes_;
    for (size_t i = 0; i < content_.size(); ++i) {
      if (i >= same) wanted_[i] = true;
      if (!wanted_[i]) content_[i] = old.blobs[i];
    }
    return CheckParent();
  }

  // A delta of another volume, or from another snapshot of the same handle, is believed nowhere
  // else: what it leaves out would be the parent's. Samples are enough for data that has nothing to
  // do with the parent's, and cost a tenth of what is read anyway.
  absl::Status CheckParent() const {
    std::vector<uint32_t> believed;
    for (uint32_t i = 0; i < content_.size(); ++i) {
      if (!wanted_[i]) believed.push_back(i);
    }
    const size_t samples =
        std::clamp((content_.size() - believed.size()) / 10, kMinSamples, kMaxSamples);
    const absl::StatusOr<std::optional<uint32_t>> different = FindDifferent(
        parent_->content, believed,
        [this](uint64_t offset, std::span<uint8_t> out) { return input_.Read(offset, out); },
        samples);
    if (!different.ok()) return different.status();
    if (!different->has_value()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the data differs from snapshot ", parent_->snapshot.snapshot.id.Short(),
                     " at byte_offset ", parent_->content.offsets[**different],
                     ", which the delta from '", *parent_->snapshot.handle,
                     "' leaves out: it is a delta of another volume, or from another "
                     "snapshot of this handle. Back up another volume under another name; a full "
                     "backup takes no "
                     "--delta and no --from-service"));
  }

  absl::Status TryAllocated(bool& marked) {
    const absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor = ranges_.Allocated();
    if (!cursor.ok()) return StepDown(rpc::Tier::kAllocated, cursor.status(), marked);
    const bool fits = (*cursor)->capacity() == size_;
    absl::Status read = Mark(**cursor);
    if (!fits) return read;
    return StepDown(rpc::Tier::kAllocated, read, marked);
  }

  absl::Status Plan() {
    size_ = input_.size();
    blob_bytes_ = BlobBytesFor(size_);
    if (BlockCount(size_, blob_bytes_) > kMaxVolumeBlobs) {
      return absl::InvalidArgumentError(
          absl::StrCat("the volume has ", size_, " bytes; more than 32 TiB fit into no file here"));
    }
    content_.assign(BlockCount(size_, blob_bytes_), Id());
    if (absl::Status found = FindParent(); !found.ok()) return found;
    bool marked = false;
    if (absl::Status tried = TryDelta(marked); !tried.ok()) return tried;
    tier_ = "delta";
    if (!marked) {
      const std::string why = "no delta: " + no_delta_;
      if (options_.require_incremental) {
        absl::Status refused = absl::FailedPreconditionError(why);
        refused.SetPayload(kNotIncremental, absl::Cord());
        return refused;
      }
      Note(why);
      tier_ = "allocated";
      if (absl::Status tried = TryAllocated(marked); !tried.ok()) return tried;
    }
    if (!marked) {
      Note("not known what is allocated: " + no_allocation_);
      tier_ = "all";
      wanted_.assign(content_.size(), true);
    }
    for (size_t i = 0; i < content_.size(); ++i) {
      if (wanted_[i]) reads_.push_back(static_cast<uint32_t>(i));
    }
    return absl::OkStatus();
  }

  uint64_t LengthOf(size_t blob) const { return std::min(blob_bytes_, size_ - blob * blob_bytes_); }

  // Stores a blob of zeros, whose sum is computed once for each of the two lengths.
  absl::Status StoreZeros(size_t blob, std::span<const uint8_t> zeros) {
    {
      const std::lock_guard lock(mutex_);
      Id& id = zeros.size() == blob_bytes_ ? zero_id_ : last_zero_id_;
      if (id == Id()) id = Id::Of(zeros);
      content_[blob] = id;
    }
    return repository_.SaveBlobAs(BlobType::kData, content_[blob], zeros);
  }

  absl::Status StoreBlobs() {
    for (const uint32_t blob : reads_) progress_.bytes_total += LengthOf(blob);
    const absl::Status stored =
        repository::ParallelFor(reads_.size(), options_.threads, options_.stop, [&](size_t i) {
          const size_t blob = reads_[i];
          // Kept by each thread for its next blob.
          thread_local std::vector<uint8_t> room;
          room.resize(std::max(room.size(), static_cast<size_t>(LengthOf(blob))));
          const std::span<uint8_t> bytes =
              std::span(room).first(static_cast<size_t>(LengthOf(blob)));
          absl::Status done = input_.Read(blob * blob_bytes_, bytes);
          if (!done.ok()) return done;
          if (IsZero(bytes)) {
            done = StoreZeros(blob, bytes);
          } else {
            content_[blob] = Id::Of(bytes);
            done = repository_.SaveBlobAs(BlobType::kData, content_[blob], bytes);
          }
          if (!done.ok()) return done;
          const std::lock_guard lock(mutex_);
          progress_.bytes_done += bytes.size();
          if (options_.on_progress) options_.on_progress(progress_);
          return absl::OkStatus();
        });
    if (!stored.ok()) return stored;
    // What is neither read nor the parent's is zero.
    std::vector<uint8_t> zeros;
    for (size_t i = 0; i < content_.size(); ++i) {
      if (wanted_[i] || content_[i] != Id()) continue;
      zeros.resize(static_cast<size_t>(LengthOf(i)));
      if (absl::Status done = StoreZeros(i, zeros); !done.ok()) return done;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<CreateResult> Publish() {
    CreateResult result{
        .blobs = content_.size(), .blobs_read = reads_.size(), .bytes_read = progress_.bytes_done};
    const absl::Time now = absl::Now();
    const std::string tree = repository::EncodeFileTree(
        {.name = options_.volume, .size = size_, .content = std::move(content_)}, now);
    const absl::StatusOr<Id> root = repository_.SaveBlob(
        BlobType::kTree, {reinterpret_cast<const uint8_t*>(tree.data()), tree.size()});
    if (!root.ok()) return root.status();
    if (absl::Status flushed = repository_.Flush(); !flushed.ok()) return flushed;
    if (options_.stop.stop_requested()) return absl::CancelledError("the backup was cancelled");
    VolumeSnapshot& made = result.snapshot;
    made.volume = options_.volume;
    made.ours = true;
    made.handle = options_.handle;
    made.capacity = size_;
    made.blob_bytes = blob_bytes_;
    made.tier = tier_;
    made.snapshot = {.time = now,
                     .tree = *root,
                     .paths = {"/" + options_.volume},
                     .host = repository::HostName(),
                     .user = repository::UserName(),
                     .program = options_.program,
                     .tags = TagsOf(made)};
    made.snapshot.tags.insert(made.snapshot.tags.end(), options_.tags.begin(), options_.tags.end());
    if (parent_.has_value() && tier_ == "delta") {
      made.snapshot.parent = parent_->snapshot.snapshot.id;
      result.parent = made.snapshot.parent;
    }
    if (options_.check_input) {
      if (absl::Status same = options_.check_input(); !same.ok()) return same;
    }
    const absl::StatusOr<Id> id = repository_.SaveSnapshot(made.snapshot);
    if (!id.ok()) return id.status();
    made.snapshot.id = *id;
    result.stored = repository_.stored();
    return result;
  }

  repository::Repository& repository_;
  const CopyInput& input_;
  RangeSource& ranges_;
  const CreateOptions& options_;

  uint64_t size_ = 0;
  uint64_t blob_bytes_ = 0;
  std::optional<Parent> parent_;
  std::string no_delta_;
  std::string no_allocation_;
  std::string tier_;
  std::vector<Id> content_;   // all zero: not known yet
  std::vector<bool> wanted_;  // blobs to read
  std::vector<uint32_t> reads_;

  std::mutex mutex_;
  CreateProgress progress_;
  Id zero_id_;
  Id last_zero_id_;
};

}  // namespace

absl::StatusOr<CreateResult> Create(repository::Repository& repository, const CopyInput& input,
                                    RangeSource& ranges, const CreateOptions& options) {
  if (absl::Status valid = CheckVolumeName(options.volume); !valid.ok()) return valid;
  return Creation(repository, input, ranges, options).Run();
}

bool IsNotIncremental(const absl::Status& status) {
  return status.GetPayload(kNotIncremental).has_value();
}

}  // namespace cbt::backup
