#include "rpc/outbound/server_stream.h"

#include <algorithm>
#include <new>
#include <utility>

#include "rpc/contract/status.h"
#include "rpc/transport/flat_message.h"

namespace cbt::rpc {
namespace {

// gRPC represents "none" as the maximum time.
std::optional<std::chrono::system_clock::time_point> DeadlineOf(
    const grpc::CallbackServerContext& context) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return std::nullopt;
  return deadline;
}

}  // namespace

ServerStream::ServerStream(grpc::CallbackServerContext& context, OpenStreams& registry,
                           StreamSlot slot, const StreamOptions& options,
                           const Telemetry& telemetry, const StreamKind& kind, OnRequest on_request)
    : TimedCall(context),
      registry_(registry),
      slot_(std::move(slot)),
      deadline_(DeadlineOf(context)),
      telemetry_(telemetry),
      kind_(kind),
      on_request_(std::move(on_request)),
      budget_(options.messages_in_flight, options.bytes_in_flight) {}

void ServerStream::OnReadDone(bool ok) {
  OnRequest on_request;
  {
    const std::lock_guard lock(mutex_);
    clock_.Requested();
    on_request.swap(on_request_);
  }
  NoteRequest();
  if (!ok || IsCompressed(request_)) {
    // gRPC itself ends calls with compressed requests.
    NoteReason(EndReason::kRefused);
    End(RequestMissing());
    return;
  }
  try {
    on_request(shared_from_this(), request_);
  } catch (const std::bad_alloc&) {
    EndOutOfMemory();
  }
  request_.Clear();
}

void ServerStream::Asked(bool resumed) {
  const std::lock_guard lock(mutex_);
  kind_.resumed = resumed;
  if (!closed_) watch_.emplace(telemetry_, kind_);
}

void ServerStream::Start(const std::shared_ptr<OutboundFeed>& feed) {
  bool closed = false;
  {
    std::lock_guard lock(mutex_);
    closed = closed_;
    if (!closed) {
      feed_ = feed;
      feeding_ = true;
    }
  }
  closed ? feed->Close() : feed->Resume();
}

// Requires the lock.
MessageSink::Want ServerStream::CheckLocked() {
  if (closed_) {
    feeding_ = false;
    return Want::kNothing;
  }
  if (!budget_.HasRoom()) {
    feeding_ = false;
    return Want::kPause;
  }
  return Want::kMore;
}

MessageSink::Want ServerStream::Check() {
  std::lock_guard lock(mutex_);
  return CheckLocked();
}

// Requires the lock.
void ServerStream::Queue(OutMessage message) {
  const size_t length = message.bytes.Length();
  ready_.push_back(std::move(message));
  budget_.Made(length);
}

MessageSink::Want ServerStream::Offer(OutMessage message) {
  std::unique_lock lock(mutex_);
  if (!closed_) Queue(std::move(message));
  // Decided before the lock is released: after that, a write may finish and the feed may work
  // again.
  const bool idle = !writing_ && !closed_;
  if (idle) {
    // The offered message is about to be in flight; there may be room for the next one.
    const Want want = CheckLocked();
    Advance(std::move(lock));
    return want;
  }
  return CheckLocked();
}

void ServerStream::Announce(Metadata initial) {
  std::lock_guard lock(mutex_);
  // gRPC sends it with the first message or the status.
  if (closed_) return;
  for (const auto& [key, value] : initial) context_->AddInitialMetadata(key, value);
}

void ServerStream::Complete(absl::Status status, Metadata trailing,
                            std::optional<OutMessage> last) {
  std::shared_ptr<OutboundFeed> done;  // dies outside the lock
  std::unique_lock lock(mutex_);
  feeding_ = false;
  try {
    if (last.has_value() && !closed_) Queue(*std::move(last));
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
  }
  produced_ = std::move(status);
  trailing_ = std::move(trailing);
  done.swap(feed_);
  Advance(std::move(lock));
}

// Requires the lock. Without the proof the stream is not complete.
absl::Status ServerStream::AddProof() {
  try {
    for (const auto& [key, value] : trailing_) context_->AddTrailingMetadata(key, value);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
  return absl::OkStatus();
}

// Takes the next step on gRPC's side, if any. Calls gRPC without the lock: writing_ and closed_
// keep other threads out. Does not throw when out of memory: the last step must finish the stream,
// and no other call would.
void ServerStream::Advance(std::unique_lock<std::mutex> lock) {
  if (closed_ || writing_) return;
  const bool sent_all = produced_.has_value() && ready_.empty();
  absl::Status status;
  if (sent_all && produced_->ok() && !broken_) {
    status = AddProof();
  } else if (forced_.has_value()) {
    status = *forced_;
  } else if (sent_all) {
    status = *produced_;
  } else if (!ready_.empty()) {
    current_ = ready_.front();  // a reference: ByteBuffer can't be moved
    ready_.pop_front();
    writing_ = true;
    clock_.HandOver();
    watch_->Message(current_.tuples, current_.reported, current_.bytes.Length());
    lock.unlock();
    StartWrite(&current_.bytes);
    return;
  } else {
    return;
  }
  closed_ = true;
  clock_.HandOver();
  ready_.clear();
  // A working feed will notice that the stream is closed.
  std::shared_ptr<OutboundFeed> left;
  left.swap(feed_);
  const bool close_feed = left != nullptr && !feeding_;
  if (!watch_.has_value()) watch_.emplace(telemetry_, kind_);
  watch_->End(status, reason());
  lock.unlock();
  Finish(ToGrpcStatus(status));
  if (close_feed) left->Close();
}

void ServerStream::OnWriteDone(bool ok) {
  if (!ok) Break();
  std::shared_ptr<OutboundFeed> resumed;
  std::unique_lock lock(mutex_);
  writing_ = false;
  budget_.Taken(current_.bytes.Length(), clock_.Sent());
  current_.bytes.Clear();
  if (feed_ != nullptr && !feeding_ && !forced_.has_value() && budget_.HasMuchRoom()) {
    feeding_ = true;
    resumed = feed_;
  }
  Advance(std::move(lock));
  if (resumed != nullptr) resumed->Resume();
}

// The client has disconnected.
void ServerStream::Break() {
  NoteReason(EndReason::kClient);
  {
    std::lock_guard lock(mutex_);
    broken_ = true;
    if (!forced_.has_value()) {
      forced_ = MakeStatusNoThrow(absl::StatusCode::kCancelled, "the stream was cancelled");
    }
  }
  stop_.request_stop();
}

void ServerStream::OnCancel() {
  Break();
  Advance(std::unique_lock(mutex_));
}

void ServerStream::End(absl::Status status) {
  {
    // Before the feed is stopped: its error after that is not the stream's status.
    std::lock_guard lock(mutex_);
    if (!forced_.has_value()) forced_ = std::move(status);
  }
  // Without the lock: providers may have callbacks on the token.
  stop_.request_stop();
  Advance(std::unique_lock(mutex_));
}

void ServerStream::EndOutOfMemory() noexcept {
  try {
    End(OutOfMemory());
  } catch (const std::bad_alloc&) {
    Abort();
  }
}

void ServerStream::OnDone() {
  Done();
  registry_.Remove(this);  // may destroy this
}

}  // namespace cbt::rpc
