#include "rpc/server/message_producer.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/transform.h"
#include "rpc/contract/resumption.h"
#include "rpc/contract/status.h"
#include "rpc/server/guard_cursor.h"

namespace cbt::rpc {
namespace {

// After this long, found tuples are sent even if the message has room: a client should not wait for
// them while a quiet region is searched.
constexpr std::chrono::milliseconds kFlushAfter{100};

// An error of the provider, not of the request.
absl::Status Broken(std::string_view what) {
  return absl::InternalError(absl::StrCat("the provider broke its contract: ", AbslView(what)));
}

// Checks the cursor, then applies alignment, coalescing and splitting, or blocks.
absl::StatusOr<std::unique_ptr<ExtentCursor>> Shape(std::unique_ptr<ExtentCursor> cursor,
                                                    BlockMetadataType type, uint64_t block_size,
                                                    const StreamShape& shape) {
  absl::StatusOr<std::unique_ptr<ExtentCursor>> shaped = MakeGuardCursor(std::move(cursor));
  if (shape.alignment > 1) shaped = AlignOutward(*std::move(shaped), shape.alignment);
  if (shaped.ok() && shape.coalesce_gap > 0) {
    shaped = Coalesce(*std::move(shaped), shape.coalesce_gap);
  }
  if (!shaped.ok()) return shaped;
  if (type == BlockMetadataType::kFixedLength) return ToBlocks(*std::move(shaped), block_size);
  if (shape.max_extent == 0) return shaped;
  // Pieces begin at multiples of the granularity, so that a stream can resume after any of them.
  const uint64_t granularity = (*shaped)->granularity();
  const uint64_t length = std::max(AlignDown(shape.max_extent, granularity), granularity);
  return Split(*std::move(shaped), length);
}

}  // namespace

absl::StatusOr<ShapedCursor> OpenShapedCursor(SnapshotProvider& provider,
                                              const AdmittedRequest& request,
                                              const StreamContext& context,
                                              const StreamShape& shape) {
  absl::StatusOr<MetadataSource> source =
      request.base_snapshot_id.has_value()
          ? provider.OpenDelta(*request.base_snapshot_id, request.target_snapshot_id, context)
          : provider.OpenAllocated(request.target_snapshot_id, context);
  if (!source.ok()) return source.status();
  if (source->cursor == nullptr) return Broken("no cursor");
  ShapedCursor opened;
  opened.capacity = source->cursor->capacity();
  if (absl::Status status = CheckGeometry(
          {.capacity = opened.capacity, .granularity = source->cursor->granularity()});
      !status.ok()) {
    return Broken(std::string(status.message()));
  }
  if (request.starting_offset > opened.capacity) {
    return absl::OutOfRangeError(absl::StrCat("starting_offset ", request.starting_offset,
                                              " is greater than the capacity ", opened.capacity));
  }
  opened.type = shape.type.value_or(source->type);
  const uint64_t block_size = shape.block_size != 0 ? shape.block_size : source->block_size;
  if (opened.type == BlockMetadataType::kUnknown) return Broken("unknown block_metadata_type");
  absl::StatusOr<std::unique_ptr<ExtentCursor>> shaped =
      Shape(std::move(source->cursor), opened.type, block_size, shape);
  if (!shaped.ok()) return Broken(std::string(shaped.status().message()));
  opened.cursor = *std::move(shaped);
  if (absl::Status status = opened.cursor->Seek(request.starting_offset); !status.ok()) {
    return status;
  }
  if (source->summary) opened.summary = source->summary(request.starting_offset);
  opened.keep_alive = source->keep_alive;
  opened.proven = std::move(source->proven);
  opened.never_blocks = source->never_blocks;
  opened.may_change_unseen = source->may_change_unseen;
  opened.version =
      SourceVersion(request.base_snapshot_id, request.target_snapshot_id, source->version);
  return opened;
}

MessageProducer::MessageProducer(const Contract& contract, SnapshotProvider& provider,
                                 AdmittedRequest request, const StreamOptions& options,
                                 std::shared_ptr<SlicePool> pool,
                                 std::optional<std::chrono::system_clock::time_point> deadline)
    : contract_(contract),
      provider_(provider),
      request_(std::move(request)),
      options_(options),
      pool_(std::move(pool)),
      deadline_(deadline) {}

absl::Status MessageProducer::Open(const std::stop_token& stop, MessageSink& sink) {
  absl::StatusOr<ShapedCursor> opened = [&] {
    // Wiped as soon as they are no longer needed; the stream may run for hours.
    const Secrets secrets = std::move(request_.secrets);
    return OpenShapedCursor(provider_, request_,
                            {.stop = stop, .secrets = secrets, .deadline = deadline_},
                            options_.shape);
  }();
  if (!opened.ok()) return opened.status();
  keep_alive_ = std::move(opened->keep_alive);
  cursor_ = std::move(opened->cursor);
  proven_ = std::move(opened->proven);
  never_blocks_ = opened->never_blocks;
  may_change_unseen_ = opened->may_change_unseen;
  Metadata initial = SummaryMetadata(opened->summary);
  initial.emplace_back(kSourceVersionKey, SourceVersionText(opened->version, may_change_unseen_));
  sink.Announce(std::move(initial));
  header_ = {.type = opened->type, .capacity = opened->capacity};
  builder_.emplace(pool_, TypeOnWire(contract_, opened->type), opened->capacity,
                   request_.max_results, options_.message_bytes);
  return absl::OkStatus();
}

Metadata MessageProducer::Trailing() const {
  ProofScope scope = may_change_unseen_ ? ProofScope::kPlace : ProofScope::kSource;
  if (proven_ && !proven_()) scope = ProofScope::kRelay;
  return ProofMetadata(digest_, request_.starting_offset, header_, scope);
}

// Fetches the next batch. Skips the tuples before the starting offset, which a cursor that rounds
// down may return.
absl::StatusOr<Step> MessageProducer::Fill() {
  if (batch_.capacity() < ExtentBatch::kDefaultCapacity) batch_ = ExtentBatch();
  absl::StatusOr<Step> step = cursor_->Next(batch_);
  taken_ = CountTuplesBefore(batch_.offsets(), batch_.lengths(), request_.starting_offset);
  return step;
}

void MessageProducer::Compact() noexcept {
  if (batch_.capacity() < ExtentBatch::kDefaultCapacity) return;  // done before
  try {
    ExtentBatch smallest(1);
    rest_.Pack(batch_, taken_);
    batch_ = std::move(smallest);
    taken_ = 0;
  } catch (const std::bad_alloc&) {
    return;  // it stays as it is
  }
}

OutMessage MessageProducer::TakeMessage() {
  ++messages_;
  const uint64_t tuples = builder_->tuples();
  const uint64_t reported = digest_.bytes() - digest_sent_;
  digest_sent_ = digest_.bytes();
  return {.bytes = builder_->Take(), .tuples = tuples, .reported = reported};
}

absl::StatusOr<MessageProducer::Outcome> MessageProducer::Run(
    const std::stop_token& stop, Clock::time_point yield_at, MessageSink& sink,
    std::optional<OutMessage>& message) try {
  message.reset();
  if (!failure_.ok()) return failure_;
  if (stop.stop_requested()) return absl::CancelledError("the stream was cancelled");
  if (!builder_.has_value()) {
    failure_ = Open(stop, sink);
    if (!failure_.ok()) return failure_;
  }
  if (!rest_.empty()) {
    batch_ = ExtentBatch();
    rest_.UnpackTo(batch_);
  }
  for (;;) {
    if (taken_ < batch_.size()) {
      if (builder_->tuples() == 0) first_tuple_at_ = Clock::now();
      const size_t done =
          builder_->Append(batch_.offsets().subspan(taken_), batch_.lengths().subspan(taken_));
      digest_.Add(batch_.offsets().subspan(taken_, done), batch_.lengths().subspan(taken_, done));
      taken_ += done;
      if (builder_->full()) {
        message = TakeMessage();
        // A client that reads nothing gets no second one: the next stream takes the batch's memory.
        if (messages_ == 1) Compact();
        return Outcome::kMessage;
      }
      continue;
    }
    if (complete_) {
      // A stream without tuples still reports type and capacity, once.
      if (builder_->tuples() != 0 || messages_ == 0) message = TakeMessage();
      return Outcome::kComplete;
    }
    if (stop.stop_requested()) return absl::CancelledError("the stream was cancelled");
    const Clock::time_point now = Clock::now();
    if (builder_->tuples() != 0 && now - first_tuple_at_ >= kFlushAfter) {
      message = TakeMessage();
      return Outcome::kMessage;
    }
    if (now >= yield_at) return Outcome::kYield;
    absl::StatusOr<Step> step = Fill();
    if (!step.ok()) {
      failure_ = step.status();
      if (builder_->tuples() == 0) return failure_;
      // The tuples found so far are correct despite the error, and let the client resume after
      // them.
      message = TakeMessage();
      return Outcome::kMessage;
    }
    complete_ = *step == Step::kComplete;
  }
} catch (const std::bad_alloc&) {
  message.reset();
  failure_ = OutOfMemory();
  return failure_;
} catch (...) {
  // Providers are foreign code, and nothing above this task catches exceptions. The text is
  // constant because what() may hold anything.
  message.reset();
  failure_ = MakeStatusNoThrow(absl::StatusCode::kInternal, "the provider threw an exception");
  return failure_;
}

}  // namespace cbt::rpc
