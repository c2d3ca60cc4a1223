#include "rpc/http2/call_core.h"

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/version.h"
#include "rpc/contract/status.h"
#include "rpc/http2/protocol.h"

namespace cbt::rpc::http2 {
namespace {

constexpr uint32_t kNoError = 0;
constexpr uint32_t kCancelError = 8;

// "grpc-" and the language come first, as PROTOCOL-HTTP2.md requires ("User Agents").
const std::string& UserAgent() {
  static const std::string agent = absl::StrCat("grpc-c++-cbt/", kVersion);
  return agent;
}

absl::Status StatusOfReset(const StreamEnd& end) {
  if (end.by == StreamEnd::By::kProtocol) {
    return absl::InternalError(
        absl::StrCat("the server broke the rules of HTTP/2: ", ResetName(end.code)));
  }
  if (end.by == StreamEnd::By::kBoth) {
    return absl::InternalError("the stream was closed without an end");
  }
  if (end.unprocessed) {
    return absl::UnavailableError("the server takes no more calls on this connection");
  }
  return {CodeOfReset(end.code),
          absl::StrCat("the server has reset the stream: ", ResetName(end.code))};
}

}  // namespace

CallCore::CallCore(std::shared_ptr<ChannelCore> channel, Deadline deadline)
    : channel_(std::move(channel)),
      deadline_(deadline),
      response_(channel_->options().max_message_bytes) {}

void CallCore::Start(const std::string& path, const std::string& request,
                     ClientCallHandler& handler) {
  // 4 GiB is more than any server accepts, and the prefix cannot express it.
  if (request.size() > std::numeric_limits<uint32_t>::max()) throw std::bad_alloc();
  path_ = path;
  const auto prefix = MessagePrefix(static_cast<uint32_t>(request.size()));
  request_ = absl::Cord(absl::string_view(prefix.data(), prefix.size()));
  request_.Append(request);
  UserAgent();
  handler_ = &handler;
  end_at_ = SteadyTime(deadline_);
  Ask(kStart);
}

void CallCore::Cancel() noexcept {
  // First, so that no OK is delivered in the meantime.
  cancelled_.store(true);
  Ask(kCancel);
}

void CallCore::Ask(Wish wish) noexcept {
  const std::lock_guard lock(mutex_);
  if (over_) return;
  wishes_ |= wish;
  if (queued_ != nullptr) return;
  queued_ = shared_from_this();
  channel_->loop().Post(task_);
}

void CallCore::Run() noexcept {
  std::shared_ptr<CallCore> self;
  unsigned wishes = 0;
  {
    const std::lock_guard lock(mutex_);
    self = std::move(queued_);
    wishes = std::exchange(wishes_, 0);
    if (over_) return;
  }
  if ((wishes & kStart) != 0) started_ = self;
  // Cancelled before the start: there is no handler yet that could be called.
  if (started_ == nullptr) return;
  if (cancelled_.load()) return End(absl::Status(absl::StatusCode::kCancelled, ""));
  if ((wishes & kStart) != 0) return Begin();
  if ((wishes & kReadOn) == 0 || !stopped_) return;
  stopped_ = false;
  Deliver();
}

void CallCore::Begin() noexcept {
  if (end_at_.has_value()) {
    if (*end_at_ <= Clock::now()) return OnTime();
    channel_->loop().Schedule(timer_, *end_at_);
  }
  channel_->StartCall(*this);
}

// The order of the document ("Requests").
void CallCore::Open(Connection& connection) noexcept {
  opened_ = true;
  std::array<Header, 10> headers = {{{":method", "POST"},
                                     {":scheme", channel_->secure() ? "https" : "http"},
                                     {":path", path_},
                                     {":authority", channel_->authority()},
                                     {"te", "trailers"},
                                     {"content-type", "application/grpc"},
                                     {"user-agent", UserAgent()},
                                     {"grpc-accept-encoding", "identity"}}};
  size_t count = 8;
  std::string timeout;
  if (end_at_.has_value()) {
    timeout = FormatTimeout(*end_at_ - Clock::now());
    headers[count++] = {"grpc-timeout", timeout};
  }
  connection.Open(*this, std::span(headers).first(count), std::move(request_));
}

void CallCore::Fail(const absl::Status& reason) noexcept {
  response_.OnFailure(reason);
  Deliver();
}

void CallCore::OnTime() noexcept {
  absl::Status status(absl::StatusCode::kDeadlineExceeded, "");
  try {
    const absl::Status& failure = channel_->last_failure();
    status = absl::DeadlineExceededError(
        opened_ ? std::string("the deadline has passed")
                : absl::StrCat("the deadline has passed before there was a connection",
                               failure.ok() ? "" : ": ", failure.message()));
  } catch (const std::bad_alloc&) {
    // Without a text.
  }
  End(std::move(status));
}

// Delivers messages as long as the handler takes them, and then the end. `this` may be destroyed.
void CallCore::Deliver() noexcept {
  try {
    while (!stopped_) {
      if (cancelled_.load()) return End(absl::Status(absl::StatusCode::kCancelled, ""));
      if (!DeliverNext()) break;
    }
  } catch (const std::bad_alloc&) {
    return End(OutOfMemory());
  } catch (...) {
    return End(absl::Status(absl::StatusCode::kCancelled, ""));
  }
  if (response_.status().has_value()) {
    // Some servers, the reference driver of CSI for one, end what their deadline has cut with OK.
    // Their deadline is not before this one, because they are sent the time rounded up.
    const bool late = end_at_.has_value() && *end_at_ <= Clock::now();
    if (late && response_.status()->ok()) return OnTime();
    return End(*response_.status());
  }
  Consume();
}

// Returns false if there is no message.
bool CallCore::DeliverNext() {
  absl::Cord message;
  if (!response_.Next(message)) return false;
  stopped_ = !handler_->OnMessage(std::move(message));
  return true;
}

// Messages that wait for the handler stay unconsumed, so that the server pauses; the start of an
// incomplete message is consumed, because the rest must arrive.
void CallCore::Consume() noexcept {
  if (connection() == nullptr) return;
  const size_t kept = stopped_ ? std::min(unconsumed_, response_.buffered()) : 0;
  const size_t bytes = unconsumed_ - kept;
  unconsumed_ = kept;
  if (bytes > 0) connection()->Consume(*this, bytes);
}

// `this` may be destroyed.
void CallCore::End(absl::Status status) noexcept {
  channel_->loop().Cancel(timer_);
  channel_->Forget(*this);
  if (connection() != nullptr) connection()->Reset(*this, status.ok() ? kNoError : kCancelError);
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  if (status.ok() && cancelled_.load()) status = absl::Status(absl::StatusCode::kCancelled, "");
  const std::shared_ptr<CallCore> self = std::move(started_);
  handler_->OnEnd(status);
}

void CallCore::OnHeaders(const HeaderBlock& headers, bool end) noexcept try {
  response_.OnHeaders(headers, end);
  if (!end) Deliver();
} catch (const std::bad_alloc&) {
  End(OutOfMemory());
}

void CallCore::OnData(absl::Cord data) noexcept try {
  unconsumed_ += data.size();
  response_.OnData(std::move(data));
  Deliver();
} catch (const std::bad_alloc&) {
  End(OutOfMemory());
}

void CallCore::OnTrailers(const HeaderBlock& trailers) noexcept try {
  response_.OnTrailers(trailers);
} catch (const std::bad_alloc&) {
  End(OutOfMemory());
}

void CallCore::OnRemoteEnd() noexcept try {
  response_.OnEnd();
  // The stream closes next, unless the server did not wait for the end of the request ("Early
  // Server Closure"). Resetting a closed stream only counts against us.
  if (!sent_) Deliver();
} catch (const std::bad_alloc&) {
  End(OutOfMemory());
}

void CallCore::OnClosed(const StreamEnd& end) noexcept try {
  if (end.by == StreamEnd::By::kConnection && !response_.ended()) return channel_->AddLost(*this);
  absl::Status status = StatusOfReset(end);
  // "Client Cancellation": the server's clock may be ahead.
  if (absl::IsCancelled(status) && end_at_.has_value() && *end_at_ <= Clock::now()) return OnTime();
  Fail(std::move(status));
} catch (const std::bad_alloc&) {
  End(OutOfMemory());
}

}  // namespace cbt::rpc::http2
