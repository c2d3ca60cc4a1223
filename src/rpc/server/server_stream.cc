#include "rpc/server/server_stream.h"

#include <algorithm>
#include <new>
#include <utility>

#include "rpc/contract/status.h"

namespace cbt::rpc {

ServerStream::ServerStream(ServerCall& call, StreamRegistry& registry, FairPlaces::Place place,
                           const StreamOptions& options, const Telemetry& telemetry,
                           const StreamKind& kind)
    : TimedCall(call),
      registry_(registry),
      peer_(call.peer()),
      deadline_(call.deadline()),
      loop_(call.loop()),
      place_(std::move(place)),
      budget_(options.messages_in_flight, options.bytes_in_flight),
      watch_(telemetry, kind) {}

void ServerStream::Admit(StreamSlot slot) {
  const std::lock_guard lock(mutex_);
  slot_.emplace(std::move(slot));
  place_.Release();
  watch_.Admitted();
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
  const size_t length = message.bytes.size();
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
  // Sent with the first message or the status.
  if (closed_) return;
  for (const auto& [key, value] : initial) call_.AddInitialMetadata(key, value);
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
    for (const auto& [key, value] : trailing_) call_.AddTrailingMetadata(key, value);
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
  return absl::OkStatus();
}

// Takes the next step on the transport's side, if any. Calls it without the lock: writing_ and
// closed_ keep other threads out. Does not throw when out of memory: the last step must finish the
// stream, and no other call would.
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
    OutMessage message = std::move(ready_.front());
    ready_.pop_front();
    writing_ = true;
    in_flight_ = message.bytes.size();
    clock_.StartSending();
    watch_.Message(message.tuples, message.reported, in_flight_);
    lock.unlock();
    call_.Write(std::move(message.bytes));
    return;
  } else {
    return;
  }
  closed_ = true;
  clock_.StartSending();
  ready_.clear();
  // A working feed will notice that the stream is closed.
  std::shared_ptr<OutboundFeed> left;
  left.swap(feed_);
  const bool close_feed = left != nullptr && !feeding_;
  watch_.End(status, reason());
  lock.unlock();
  call_.Finish(std::move(status));
  if (close_feed) left->Close();
}

void ServerStream::OnWriteDone(bool ok) {
  if (!ok) Break();
  std::shared_ptr<OutboundFeed> resumed;
  std::unique_lock lock(mutex_);
  writing_ = false;
  budget_.Taken(in_flight_, clock_.Sent());
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
