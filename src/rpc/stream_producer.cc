#include "rpc/stream_producer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/transform.h"
#include "core/absl_view.h"
#include "rpc/guard_cursor.h"

namespace cbt::rpc {
namespace {

// After this long, tuples that were found are sent even if the message could take more: a client
// should not wait for them while a quiet region is searched.
constexpr std::chrono::milliseconds kFlushAfter{100};

// A provider's own mistake, as opposed to one of the request.
absl::Status Broken(std::string_view what) {
  return absl::InternalError(absl::StrCat("the provider broke its contract: ", AbslView(what)));
}

}  // namespace

StreamProducer::StreamProducer(SnapshotProvider& provider, MetadataRequest request,
                               size_t message_bytes)
    : provider_(provider),
      base_snapshot_id_(std::move(request.base_snapshot_id)),
      target_snapshot_id_(std::move(request.target_snapshot_id)),
      starting_offset_(static_cast<uint64_t>(request.starting_offset)),
      max_results_(static_cast<uint32_t>(request.max_results)),
      message_bytes_(message_bytes),
      secrets_(std::move(request.secrets)) {}

absl::Status StreamProducer::Open(const std::stop_token& stop) {
  const StreamContext context{.stop = stop, .secrets = *secrets_};
  absl::StatusOr<MetadataSource> source =
      base_snapshot_id_.has_value()
          ? provider_.OpenDelta(*base_snapshot_id_, target_snapshot_id_, context)
          : provider_.OpenAllocated(target_snapshot_id_, context);
  // Wiped as soon as nobody needs them; the stream may run for hours.
  secrets_.reset();
  if (!source.ok()) return source.status();
  return Prepare(*std::move(source));
}

absl::Status StreamProducer::Prepare(MetadataSource source) {
  if (source.cursor == nullptr) return Broken("no cursor");
  const uint64_t capacity = source.cursor->capacity();
  if (absl::Status status = CheckGeometry(capacity, source.cursor->granularity()); !status.ok()) {
    return Broken(std::string(status.message()));
  }
  if (starting_offset_ > capacity) {
    return absl::OutOfRangeError(absl::StrCat("starting_offset ", starting_offset_,
                                              " is greater than the capacity ", capacity));
  }
  cursor_ = MakeGuardCursor(std::move(source.cursor));
  switch (source.type) {
    case BlockMetadataType::kVariableLength:
      break;
    case BlockMetadataType::kFixedLength: {
      absl::StatusOr<std::unique_ptr<ExtentCursor>> blocks =
          ToBlocks(std::move(cursor_), source.block_size);
      if (!blocks.ok()) return Broken(std::string(blocks.status().message()));
      cursor_ = *std::move(blocks);
      break;
    }
    case BlockMetadataType::kUnknown:
      return Broken("unknown block_metadata_type");
  }
  if (absl::Status status = cursor_->Seek(starting_offset_); !status.ok()) return status;
  builder_.emplace(source.type, capacity, max_results_, message_bytes_);
  return absl::OkStatus();
}

// Asks the cursor for the next batch. Tuples that end at or before the starting offset are left
// out: a cursor that rounds down may hand on some, the client has them already.
absl::StatusOr<Step> StreamProducer::Fill() {
  taken_ = 0;
  absl::StatusOr<Step> step = cursor_->Next(batch_);
  while (!started_ && taken_ < batch_.size()) {
    if (batch_[taken_].end() > starting_offset_) {
      started_ = true;
    } else {
      ++taken_;
    }
  }
  return step;
}

grpc::ByteBuffer StreamProducer::TakeMessage() {
  ++messages_;
  return builder_->Take();
}

absl::StatusOr<StreamProducer::Outcome> StreamProducer::Run(
    const std::stop_token& stop, Clock::time_point yield_at,
    std::optional<grpc::ByteBuffer>& message) try {
  message.reset();
  if (!failure_.ok()) return failure_;
  if (stop.stop_requested()) return absl::CancelledError("the stream was cancelled");
  if (!builder_.has_value()) {
    failure_ = Open(stop);
    if (!failure_.ok()) return failure_;
  }
  for (;;) {
    if (taken_ < batch_.size()) {
      if (builder_->tuples() == 0) first_tuple_at_ = Clock::now();
      taken_ += builder_->Append(batch_, taken_);
      if (builder_->full()) {
        message = TakeMessage();
        return Outcome::kMessage;
      }
      continue;
    }
    if (complete_) {
      // A stream without tuples still tells type and capacity, once.
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
      // What was found is right whatever happened then, and lets the client resume further on.
      message = TakeMessage();
      return Outcome::kMessage;
    }
    complete_ = *step == Step::kComplete;
  }
} catch (...) {
  // Providers are foreign code, and nothing above this task could catch what they throw. The text
  // is constant because what() may hold anything.
  message.reset();
  failure_ = absl::InternalError("the provider threw an exception");
  return failure_;
}

}  // namespace cbt::rpc
