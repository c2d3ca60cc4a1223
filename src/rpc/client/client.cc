#include "cbt/rpc/client.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/stop_wait.h"
#include "base/text.h"
#include "cbt/wire/checker.h"
#include "net/address.h"
#include "rpc/client/connect.h"
#include "rpc/client/inbound_stream.h"
#include "rpc/client/remote_cursor.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/contract.h"
#include "rpc/contract/resumption.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

// For what time seldom mends, before the first message: long enough for a name that is just being
// published, or a certificate that is just being replaced.
constexpr milliseconds kPermanentErrorRetry{5000};

// The request, and how to open a stream for it at an offset.
class Caller {
 public:
  Caller(ListRequest request, ChannelMaker connect)
      : request_(std::move(request)), connect_(std::move(connect)) {
    if (request_.timeout.has_value()) {
      // Far below the clock's overflow.
      constexpr milliseconds kLongest = std::chrono::hours{24 * 365};
      deadline_ = system_clock::now() + std::min(*request_.timeout, kLongest);
    }
  }

  const ListRequest& request() const noexcept { return request_; }
  bool expired() const { return deadline_.has_value() && system_clock::now() >= *deadline_; }
  const Contract& contract() const noexcept { return ContractOf(request_.api); }

  absl::StatusOr<std::shared_ptr<Channel>> Connect() const { return connect_(); }

  absl::StatusOr<std::unique_ptr<InboundStream>> Call(const std::shared_ptr<Channel>& channel,
                                                      uint64_t offset) const {
    const absl::StatusOr<MetadataRequest> request = RequestAt(offset);
    if (!request.ok()) return request.status();
    return OpenMessageStream(channel, contract(), *request, deadline_, request_.stop,
                             request_.stall_timeout);
  }

  absl::StatusOr<MetadataRequest> RequestAt(uint64_t offset) const {
    MetadataRequest request;
    if (request_.token_source) {
      absl::StatusOr<Secret> token = request_.token_source();
      if (!token.ok()) return token.status();
      request.token = *std::move(token);
    } else {
      request.token = request_.token.Copy();
    }
    request.name_space = request_.name_space;
    request.volume_id = request_.volume_id;
    request.base_snapshot_id = request_.base_snapshot_id;
    request.target_snapshot_id = request_.snapshot_id;
    request.starting_offset = static_cast<int64_t>(offset);
    request.max_results = request_.max_results;
    request.secrets = request_.secrets.Copy();
    return request;
  }

  // Waits before the next attempt at `offset`, after `reason`.
  // Errors: `reason` if that was the last attempt, DEADLINE_EXCEEDED if the next one would be too
  //         late, CANCELLED when the stream is stopped.
  absl::Status WaitToRetry(RetryWindow& window, uint64_t offset, const absl::Status& reason) const {
    if (request_.stop.stop_requested()) return Stopped(reason);
    const std::optional<milliseconds> wait = window.NextWait(RetryWindow::Clock::now());
    if (!wait.has_value()) return reason;
    if (deadline_.has_value() && system_clock::now() + *wait >= *deadline_) {
      return absl::DeadlineExceededError(absl::StrCat("metadata stream: no time left to resume at ",
                                                      offset, " after: ", reason.message()));
    }
    if (request_.on_resume) request_.on_resume(offset, reason);
    return WaitUnlessStopped(request_.stop, *wait) ? absl::OkStatus() : Stopped(reason);
  }

  StreamChecker Checker(uint64_t offset) const {
    return StreamChecker(offset, static_cast<uint32_t>(std::max(request_.max_results, 0)));
  }

 private:
  static absl::Status Stopped(const absl::Status& reason) {
    if (absl::IsCancelled(reason)) return reason;
    return absl::CancelledError(
        absl::StrCat("metadata stream: stopped while it was retried: ", reason.message()));
  }

  ListRequest request_;
  const ChannelMaker connect_;
  Deadline deadline_;
};

// The error for an answer without a message, unless `request` takes it for an empty one.
// `capacity_known`: of the volume, from the request or from an earlier stream.
absl::Status CheckNoMessage(const ListRequest& request, bool capacity_known) {
  if (request.no_message == NoMessage::kRefused) {
    return absl::DataLossError("metadata stream: ended without a message");
  }
  if (!capacity_known && request.no_message != NoMessage::kAccepted) {
    return absl::DataLossError(
        "metadata stream: ended without a message: the server reports nothing, and not how large "
        "the volume is; state the volume's capacity");
  }
  return absl::OkStatus();
}

// The block size of the message's tuples, if they lie on its multiples: Seek() may round down to it
// without missing anything.
uint64_t GranularityOf(const MetadataMessage& message) {
  if (message.type != BlockMetadataType::kFixedLength || message.tuples.empty()) return 1;
  const Extent tuple = message.tuples.front();
  if (tuple.length > kMaxGranularity || tuple.offset % tuple.length != 0) return 1;
  return tuple.length;
}

// The source version of a stream whose first message has arrived; empty if not reported.
std::string VersionOf(const InboundStream& stream) {
  return std::string(stream.Initial(kSourceVersionKey).value_or(""));
}

absl::Status NotProvable() {
  return absl::FailedPreconditionError(
      "metadata stream: it can't be proven, because its source knows where the data is and not "
      "whether it has changed (a block device or an NBD export): serve an image file or a change "
      "map, or do not require a proof");
}

// Checks that a stream may be what the caller asked for, before anything of it is used.
absl::Status CheckSource(const InboundStream& stream, const ListRequest& request) {
  if (!IsOfPlace(VersionOf(stream))) return absl::OkStatus();
  if (request.require_proof) return NotProvable();
  if (request.source_version.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "metadata stream: it can't be continued, because its source knows where the data is and not "
      "whether it has changed: discard what was received and start again from 0");
}

// Checks that `stream`, opened at `offset`, continues data of version `before`.
absl::Status CheckVersion(const InboundStream& stream, const std::string& before, uint64_t offset) {
  if (before.empty() || VersionOf(stream) == before) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("metadata stream: the server's data changed before it resumed at ", offset,
                   ", because the snapshot was replaced or changed: discard what was received and "
                   "start again from 0"));
}

// A stream, its first message and the checker that has passed it.
struct Opened {
  std::unique_ptr<InboundStream> stream;
  StreamChecker checker;
  // Of a stream that has ended without a message: what it would have said.
  MetadataMessage first;
  bool ended = false;
  bool capacity_known = true;
};

// Makes of a stream that has ended with OK without a message an empty answer.
absl::Status TakeNoMessage(const ListRequest& request, Opened& opened) {
  const uint64_t capacity = request.capacity.value_or(0);
  opened.ended = true;
  opened.capacity_known = capacity != 0;
  absl::Status status = CheckNoMessage(request, opened.capacity_known);
  if (!status.ok()) return status;
  if (opened.capacity_known && request.starting_offset > capacity) {
    return absl::OutOfRangeError(absl::StrCat("starting_offset ", request.starting_offset,
                                              " is greater than the capacity ", capacity));
  }
  opened.first.type = BlockMetadataType::kVariableLength;
  opened.first.capacity = opened.capacity_known ? capacity : request.starting_offset;
  return absl::OkStatus();
}

absl::StatusOr<Opened> OpenStream(const Caller& caller, const std::shared_ptr<Channel>& channel) {
  const uint64_t offset = caller.request().starting_offset;
  absl::StatusOr<std::unique_ptr<InboundStream>> stream = caller.Call(channel, offset);
  if (!stream.ok()) return stream.status();
  Opened opened{*std::move(stream), caller.Checker(offset), {}};
  absl::StatusOr<bool> more = opened.stream->Next(opened.first);
  if (!more.ok()) return more.status();
  absl::Status status =
      *more ? opened.checker.Check(opened.first) : TakeNoMessage(caller.request(), opened);
  if (!status.ok()) return status;
  absl::Status same = CheckVersion(*opened.stream, caller.request().source_version, offset);
  if (same.ok()) same = CheckSource(*opened.stream, caller.request());
  if (!same.ok()) return same;
  return opened;
}

class RemoteCursorImpl final : public RemoteCursor {
 public:
  RemoteCursorImpl(Caller caller, Opened opened)
      : RemoteCursor(
            {.capacity = opened.first.capacity, .granularity = GranularityOf(opened.first)}),
        caller_(std::move(caller)),
        type_(opened.first.type),
        capacity_known_(opened.capacity_known),
        floor_(caller_.request().starting_offset),
        retry_(caller_.request().retry_for),
        stream_(std::move(opened.stream)),
        stream_offset_(floor_),
        summary_(SummaryOf(*stream_)),
        source_version_(VersionOf(*stream_)),
        checker_(opened.checker) {
    digest_.Add(opened.first.tuples.offsets(), opened.first.tuples.lengths());
    Take(opened.first.tuples);
  }

  // Checks the end of a stream without a message. Call once, before the cursor is used.
  absl::Status EndAtOnce() { return End(std::nullopt); }

  BlockMetadataType type() const noexcept override { return type_; }
  int resumes() const noexcept override { return resumes_; }
  Completeness completeness() const noexcept override {
    return covered() == capacity() ? completeness_ : Completeness::kUnderWay;
  }
  const StreamSummary& summary() const noexcept override { return summary_; }
  const std::string& source_version() const noexcept override { return source_version_; }
  bool capacity_known() const noexcept override { return capacity_known_; }
  bool may_change_unseen() const noexcept override { return IsOfPlace(source_version_); }

 private:
  absl::Status DoSeek(uint64_t offset) override;
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override;

  absl::Status Receive();
  bool MayResume(const absl::Status& reason) const;
  absl::Status Resume(absl::Status reason);
  absl::Status Reopen();
  absl::Status End(const std::optional<StreamHeader>& header);
  absl::Status CutAtFloor(TupleList& tuples) const;
  void CutAtCapacity(ExtentBatch& batch) const;
  void Take(TupleList& tuples);
  void TellProgress(bool always);

  static StreamSummary SummaryOf(const InboundStream& stream) {
    return ReadSummary([&stream](std::string_view key) { return stream.Initial(key); });
  }

  const Caller caller_;
  const BlockMetadataType type_;
  const bool capacity_known_;

  // The offset at which the stream is reopened: where it was opened or sought to, then the end of
  // the last tuple.
  uint64_t floor_;
  bool floor_is_tuple_end_ = false;
  // Tuples are cut at the floor. False only for a stream's very first tuple, which a server may
  // round down.
  bool floor_holds_ = false;
  RetryWindow retry_;

  std::unique_ptr<InboundStream> stream_;
  uint64_t stream_offset_;  // starting offset of stream_
  const StreamSummary summary_;
  const std::string source_version_;
  std::optional<StreamChecker> checker_;
  StreamDigest digest_;      // of the tuples of stream_
  MetadataMessage message_;  // memory for the next
  TupleList tuples_;         // of the last message that had some
  size_t taken_ = 0;         // how many of them were returned
  bool ended_ = false;       // the server ended the stream with OK
  bool continued_ = false;   // tuples of an earlier stream came before those of stream_
  Completeness completeness_ = Completeness::kUnderWay;
  int resumes_ = 0;
  uint64_t tuples_before_ = 0;  // of earlier streams
  uint64_t bytes_before_ = 0;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point told_;
};

void RemoteCursorImpl::Take(TupleList& tuples) {
  if (tuples.empty()) return;
  std::swap(tuples_, tuples);
  taken_ = 0;
  floor_ = std::min(tuples_.back().end(), capacity());
  floor_is_tuple_end_ = true;
  floor_holds_ = true;
  retry_.NoteProgress();
}

void RemoteCursorImpl::TellProgress(bool always) {
  if (!caller_.request().on_progress) return;
  constexpr milliseconds kInterval{100};
  const auto now = std::chrono::steady_clock::now();
  if (!always && now - told_ < kInterval) return;
  told_ = now;
  const uint64_t tuples = tuples_before_ + digest_.tuples();
  const double seconds = std::chrono::duration<double>(now - began_).count();
  caller_.request().on_progress(
      {.covered = ended_ ? capacity() : floor_,
       .capacity = capacity(),
       .tuples = tuples,
       .reported_bytes = bytes_before_ + digest_.bytes(),
       .tuples_per_second = seconds > 0 ? static_cast<double>(tuples) / seconds : 0});
}

// Checks the server's OK against what was received. `header`: empty if it sent no message.
absl::Status RemoteCursorImpl::End(const std::optional<StreamHeader>& header) {
  std::string what;
  switch (CheckProof([this](std::string_view key) { return stream_->Trailing(key); }, digest_,
                     stream_offset_, header, what)) {
    case ProofVerdict::kDiffers:
      return absl::DataLossError(
          absl::StrCat("metadata stream: does not match the server's proof: ", what));
    case ProofVerdict::kHolds:
      completeness_ = Completeness::kProven;
      break;
    case ProofVerdict::kHoldsForPlace:
      completeness_ = Completeness::kProvenForPlace;
      break;
    case ProofVerdict::kHoldsFromRelay:
      if (caller_.request().require_proof) {
        return absl::FailedPreconditionError(
            "metadata stream: the relay's proof does not reach the source, because the plugin sent "
            "no "
            "proof: use a plugin that sends one, or do not require a proof");
      }
      completeness_ = Completeness::kProvenFromRelay;
      break;
    case ProofVerdict::kAbsent:
      if (caller_.request().require_proof) {
        return absl::FailedPreconditionError(
            "metadata stream: the server sent no proof that the stream is complete");
      }
      completeness_ = Completeness::kEnded;
      break;
  }
  // The proof is of the last call alone: nothing says that the parts are of one state.
  const bool unknown_parts = continued_ && source_version_.empty();
  if (completeness_ == Completeness::kProven && unknown_parts) {
    completeness_ = Completeness::kProvenForPlace;
  }
  if (completeness_ == Completeness::kProvenForPlace && caller_.request().require_proof) {
    if (!unknown_parts) return NotProvable();
    return absl::FailedPreconditionError(
        "metadata stream: it was resumed, and the server reports no version of its data that would "
        "prove that the parts belong together: ask again from 0, or do not require a proof");
  }
  ended_ = true;
  TellProgress(true);
  return absl::OkStatus();
}

// `tuples` are those of a message; they end after the floor, and begin before it only if they are the
// first of a stream.
absl::Status RemoteCursorImpl::CutAtFloor(TupleList& tuples) const {
  if (!floor_holds_ || tuples.empty()) return absl::OkStatus();
  const Extent first = tuples.front();
  if (first.offset >= floor_) return absl::OkStatus();
  // A last block that reaches past the capacity does not end at it: servers may repeat it.
  if (floor_is_tuple_end_ && floor_ == capacity() && first == tuples_.back()) {
    tuples.clear();
    return absl::OkStatus();
  }
  if (type_ == BlockMetadataType::kFixedLength && floor_is_tuple_end_) {
    return absl::DataLossError(absl::StrCat("metadata stream: resumed at ", floor_,
                                            ", the end of a block, but the next block is at ",
                                            first.offset));
  }
  tuples.set(0, {floor_, first.end() - floor_});
  return absl::OkStatus();
}

// Takes one message, or the end of the stream. Resumes a broken stream.
absl::Status RemoteCursorImpl::Receive() {
  absl::StatusOr<bool> more = stream_->Next(message_);
  if (!more.ok()) return Resume(more.status());
  if (!*more) return End(StreamHeader{type_, capacity()});
  if (absl::Status status = checker_->Check(message_); !status.ok()) return status;
  digest_.Add(message_.tuples.offsets(), message_.tuples.lengths());
  // The first message of a stream may have no tuples, and the next one those at the floor.
  if (absl::Status status = CutAtFloor(message_.tuples); !status.ok()) return status;
  Take(message_.tuples);
  TellProgress(false);
  return absl::OkStatus();
}

// Reopens the stream at the floor and takes its first message.
absl::Status RemoteCursorImpl::Reopen() {
  stream_.reset();
  tuples_before_ += digest_.tuples();
  bytes_before_ += digest_.bytes();
  digest_ = StreamDigest();
  const absl::StatusOr<std::shared_ptr<Channel>> channel = caller_.Connect();
  if (!channel.ok()) return channel.status();
  absl::StatusOr<std::unique_ptr<InboundStream>> stream = caller_.Call(*channel, floor_);
  if (!stream.ok()) return stream.status();
  stream_ = *std::move(stream);
  stream_offset_ = floor_;
  continued_ = continued_ || floor_is_tuple_end_;
  checker_.emplace(caller_.Checker(floor_));
  absl::StatusOr<bool> more = stream_->Next(message_);
  if (!more.ok()) return more.status();
  if (!*more) {
    absl::Status status = CheckNoMessage(caller_.request(), true);
    if (status.ok()) status = CheckVersion(*stream_, source_version_, floor_);
    return status.ok() ? End(StreamHeader{type_, capacity()}) : status;
  }
  if (absl::Status status = checker_->Check(message_); !status.ok()) return status;
  if (message_.type != type_ || message_.capacity != capacity()) {
    return absl::DataLossError(
        absl::StrCat("metadata stream: resumed at ", floor_, " with a different type or capacity: ",
                     AbslView(BlockMetadataTypeName(message_.type)), " and ", message_.capacity,
                     " after ", AbslView(BlockMetadataTypeName(type_)), " and ", capacity()));
  }
  if (absl::Status status = CheckVersion(*stream_, source_version_, floor_); !status.ok()) {
    return status;
  }
  digest_.Add(message_.tuples.offsets(), message_.tuples.lengths());
  if (absl::Status status = CutAtFloor(message_.tuples); !status.ok()) return status;
  Take(message_.tuples);
  return absl::OkStatus();
}

// Whether a retry may help. A server that shuts down may cancel calls; the client's own
// cancellation is checked separately.
bool IsLost(const absl::Status& reason) {
  return absl::IsUnavailable(reason) || absl::IsCancelled(reason);
}

bool RemoteCursorImpl::MayResume(const absl::Status& reason) const {
  if (IsLost(reason)) return true;
  // Servers may limit how long a stream runs: the Go sidecar ends each after ten minutes. If it
  // brought something, the next one will too; a server that is too slow for the first tuple is not
  // asked again.
  return absl::IsDeadlineExceeded(reason) && stream_ != nullptr && stream_->timed_out() &&
         floor_ > stream_offset_ && !caller_.expired();
}

absl::Status RemoteCursorImpl::Resume(absl::Status reason) {
  while (MayResume(reason)) {
    if (absl::Status waited = caller_.WaitToRetry(retry_, floor_, reason); !waited.ok()) {
      return waited;
    }
    ++resumes_;
    reason = Reopen();
  }
  return reason;
}

absl::Status RemoteCursorImpl::DoSeek(uint64_t offset) {
  floor_ = offset;
  floor_is_tuple_end_ = false;
  floor_holds_ = true;
  tuples_.clear();
  taken_ = 0;
  ended_ = false;
  completeness_ = Completeness::kUnderWay;
  if (offset == 0) continued_ = false;
  retry_.NoteProgress();
  absl::Status reopened = Reopen();
  return reopened.ok() ? reopened : Resume(std::move(reopened));
}

// Only the last block of a stream can extend past the capacity; a consumer has nothing to copy
// there.
void RemoteCursorImpl::CutAtCapacity(ExtentBatch& batch) const {
  if (caller_.request().wire_tuples || batch.empty()) return;
  const Extent last = batch.back();
  if (last.end() <= capacity()) return;
  batch.mutable_lengths()[batch.size() - 1] = capacity() - last.offset;
}

absl::StatusOr<uint64_t> RemoteCursorImpl::DoNext(ExtentBatch& batch) {
  // A tuple that reaches the capacity would complete the cursor, so it waits for the server's OK.
  const auto held_back = [this] {
    return !ended_ && taken_ < tuples_.size() && tuples_.back().end() >= capacity();
  };
  if (!ended_ && (taken_ == tuples_.size() || held_back())) {
    if (absl::Status status = Receive(); !status.ok()) return status;
  }
  if (held_back()) return covered();
  const size_t count = std::min(batch.room(), tuples_.size() - taken_);
  std::copy_n(tuples_.offsets().data() + taken_, count, batch.mutable_offsets() + batch.size());
  std::copy_n(tuples_.lengths().data() + taken_, count, batch.mutable_lengths() + batch.size());
  batch.set_size(batch.size() + count);
  taken_ += count;
  CutAtCapacity(batch);
  if (ended_ && taken_ == tuples_.size()) return capacity();
  return batch.empty() ? covered() : batch.back().end();
}

}  // namespace

ListRequest ListRequest::Copy() const {
  // Does not compile while a member is left out.
  const auto& [its_address, its_api, its_snapshot_id, its_base_snapshot_id, its_token,
               its_token_source, its_name_space, its_volume_id, its_starting_offset,
               its_source_version, its_max_results, its_no_message, its_capacity, its_secrets,
               its_tls, its_timeout, its_stall_timeout, its_require_proof, its_retry_for,
               its_wire_tuples, its_on_resume, its_on_progress, its_stop] = *this;
  return {.address = its_address,
          .api = its_api,
          .snapshot_id = its_snapshot_id,
          .base_snapshot_id = its_base_snapshot_id,
          .token = its_token.Copy(),
          .token_source = its_token_source,
          .name_space = its_name_space,
          .volume_id = its_volume_id,
          .starting_offset = its_starting_offset,
          .source_version = its_source_version,
          .max_results = its_max_results,
          .no_message = its_no_message,
          .capacity = its_capacity,
          .secrets = its_secrets.Copy(),
          .tls = its_tls,
          .timeout = its_timeout,
          .stall_timeout = its_stall_timeout,
          .require_proof = its_require_proof,
          .retry_for = its_retry_for,
          .wire_tuples = its_wire_tuples,
          .on_resume = its_on_resume,
          .on_progress = its_on_progress,
          .stop = its_stop};
}

absl::StatusOr<std::unique_ptr<RemoteCursor>> RemoteCursor::Open(const ListRequest& request) {
  absl::StatusOr<net::Address> address = net::ParseAddress(request.address);
  if (!address.ok()) return address.status();
  const auto connect = [address = *std::move(address), tls = request.tls] {
    return ConnectForConsumer(address, tls);
  };
  return OpenRemoteCursor(request, connect, request.retry_for);
}

absl::StatusOr<std::unique_ptr<RemoteCursor>> OpenRemoteCursor(const ListRequest& request,
                                                               ChannelMaker connect,
                                                               milliseconds open_for) {
  if (request.starting_offset > kMaxCapacity) {
    return absl::OutOfRangeError(
        absl::StrCat("starting_offset ", request.starting_offset, " is greater than any capacity"));
  }
  Caller caller(request.Copy(), std::move(connect));
  RetryWindow window(open_for);
  RetryWindow short_window(std::min(open_for, kPermanentErrorRetry));
  for (;;) {
    const absl::StatusOr<std::shared_ptr<Channel>> channel = caller.Connect();
    absl::StatusOr<Opened> opened =
        channel.ok() ? OpenStream(caller, *channel) : absl::StatusOr<Opened>(channel.status());
    if (opened.ok()) {
      const bool ended = opened->ended;
      auto cursor = std::make_unique<RemoteCursorImpl>(std::move(caller), *std::move(opened));
      if (absl::Status status = ended ? cursor->EndAtOnce() : absl::OkStatus(); !status.ok()) {
        return status;
      }
      return cursor;
    }
    if (!absl::IsUnavailable(opened.status())) return opened.status();
    const bool hope = !channel.ok() || (*channel)->IsTransient();
    if (hope) short_window.NoteProgress();
    absl::Status waited =
        caller.WaitToRetry(hope ? window : short_window, request.starting_offset, opened.status());
    if (!waited.ok()) return waited;
  }
}

std::string_view CompletenessName(Completeness completeness) noexcept {
  switch (completeness) {
    case Completeness::kEnded:
      return "ended";
    case Completeness::kProvenFromRelay:
      return "proven from the relay on";
    case Completeness::kProvenForPlace:
      return "proven for its place";
    case Completeness::kProven:
      return "proven";
    case Completeness::kUnderWay:
      break;
  }
  return "under way";
}

}  // namespace cbt::rpc
