#include "rpc/http2/server_call_impl.h"

#include <array>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/percent.h"
#include "rpc/contract/status.h"
#include "rpc/http2/connection.h"
#include "rpc/http2/protocol.h"

namespace cbt::rpc::http2 {
namespace {

std::string HttpText(int status) { return absl::StrCat(status); }

}  // namespace

class CallImpl::Event {
 public:
  explicit Event(CallImpl& call) noexcept : call_(call) { ++call_.events_; }
  ~Event() {
    --call_.events_;
    call_.DeleteIfDone();
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

 private:
  CallImpl& call_;
};

CallImpl::CallImpl(ServerWorker& worker)
    : worker_(worker), loop_(worker.loop()), reader_(worker.shared().limits.request_bytes) {
  worker_.Add(*this);
}

CallImpl::~CallImpl() {
  loop_.Cancel(timer_);
  loop_.Cancel(static_cast<net::Task&>(*this));
  worker_.Remove(*this);
}

// ---- the beginning

void CallImpl::OnHeaders(const HeaderBlock& headers, bool) noexcept {
  const Event event(*this);
  absl::Status status;
  try {
    status = CheckHeaders(headers);
  } catch (const std::bad_alloc&) {
    status = net::NoMemory();
  }
  if (!status.ok()) return Refuse(http_status_, status);
  SetWaiting(true);
  ScheduleDeadline();
}

// "Requests" of PROTOCOL-HTTP2.md; sets http_status_ where clients other than gRPC's must see it.
absl::Status CallImpl::CheckHeaders(const HeaderBlock& headers) {
  const auto find = [&](std::string_view name) { return headers.Find(name); };
  if (headers.cut()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the request's headers exceed ",
                     worker_.shared().limits.connection.max_header_bytes, " bytes"));
  }
  if (find(":method") != "POST") {
    http_status_ = 405;
    return absl::InternalError("the method of a gRPC request is POST");
  }
  if (const auto type = find("content-type"); !type || !IsGrpcContentType(*type)) {
    http_status_ = 415;
    return absl::InternalError("the content type of a gRPC request begins with application/grpc");
  }
  if (find("te") != "trailers") {
    http_status_ = 400;
    return absl::InternalError("the request lacks the header te: trailers");
  }
  const auto found = worker_.shared().methods.find(find(":path").value_or(""));
  if (found == worker_.shared().methods.end()) return absl::UnimplementedError("unknown method");
  method_ = found->second;
  if (find("grpc-encoding").value_or("identity") != "identity") {
    return absl::UnimplementedError("compressed requests are not accepted");
  }
  if (const auto text = find("grpc-timeout"); text.has_value()) {
    const auto timeout = ParseTimeout(*text);
    if (!timeout.has_value()) return absl::InternalError("malformed grpc-timeout");
    // Anything later counts as never, because the clock would overflow.
    constexpr std::chrono::nanoseconds kLongest = std::chrono::hours(24 * 365);
    if (*timeout < kLongest) {
      deadline_ = std::chrono::system_clock::now() +
                  std::chrono::duration_cast<std::chrono::system_clock::duration>(*timeout);
    }
  }
  return absl::OkStatus();
}

void CallImpl::SetWaiting(bool waiting) noexcept {
  if (waiting_ == waiting) return;
  waiting_ = waiting;
  waiting ? ++worker_.shared().waiting : --worker_.shared().waiting;
}

// The client's deadline, and the time limit until the request has arrived.
void CallImpl::ScheduleDeadline() noexcept {
  std::optional<net::EventLoop::Clock::duration> left;
  if (deadline_.has_value()) {
    left = std::chrono::duration_cast<net::EventLoop::Clock::duration>(
        *deadline_ - std::chrono::system_clock::now());
  }
  const std::chrono::milliseconds most = worker_.shared().limits.request_time;
  if (waiting_ && most.count() > 0 && (!left.has_value() || *left > most)) left = most;
  if (left.has_value()) {
    loop_.Schedule(timer_, net::EventLoop::Clock::now() + *left);
  } else {
    loop_.Cancel(timer_);
  }
}

// Once the bytes that have arrived are taken: a request that they also reset is never opened, so
// that its source need not be.
void CallImpl::OpenSoon() noexcept {
  if (std::exchange(opens_soon_, true)) return;
  ++events_;  // until Run()
  loop_.Post(*this);
}

void CallImpl::OpenIfWhole() noexcept {
  absl::Status status;
  opening_ = true;
  try {
    absl::Cord request;
    const MessageReader::Result result = reader_.Next(request);
    if (result == MessageReader::Result::kMessage) {
      status = Open(std::move(request));
    } else if (result != MessageReader::Result::kNeedMore) {
      status = Broken(result);
    } else if (!request_ended_) {
      opening_ = false;
      return;
    } else {
      status = reader_.AtBoundary() ? RequestMissing() : Broken(result);
    }
  } catch (const std::bad_alloc&) {
    status = net::NoMemory();
  }
  opening_ = false;
  SetWaiting(false);
  if (!status.ok()) return Refuse(200, status);
  ScheduleDeadline();
  // Operations that the handler requested during its creation.
  CarryOut();
}

absl::Status CallImpl::Open(absl::Cord request) {
  if (worker_.OverMemory(connection())) {
    return absl::ResourceExhaustedError("the server has no memory for more calls");
  }
  connection()->Consume(*this, request.size() + kPrefixBytes);
  absl::StatusOr<CallHandler*> handler = method_->open(*this, std::move(request));
  if (!handler.ok()) return handler.status();
  handler_ = *handler;
  finished_ = false;
  connection()->SetServed(*this, true);
  return absl::OkStatus();
}

std::string CallImpl::peer() const {
  return connection() == nullptr ? std::string() : connection()->PeerAddress();
}

// Ends the call with our own status. A handler, if there is one, sees it as cancelled.
void CallImpl::Refuse(int http_status, const absl::Status& status) noexcept {
  if (refused_ || status_sent_) return;
  refused_ = true;
  SetWaiting(false);
  http_status_ = http_status;
  status_ = status;
  if (writing_) {
    GiveUp(ResetOfCode(status.code()));
  } else {
    SendStatus();
  }
  OnLost();
}

// ---- requests of the handler

template <typename Note>
void CallImpl::Do(const Note& note) noexcept {
  if (loop_.IsInLoop()) {
    {
      const std::lock_guard lock(mutex_);
      note(asked_);
    }
    if (!opening_) CarryOut();
    return;
  }
  // Posted under the mutex: once the loop has taken Finish(), the call may be destroyed.
  const std::lock_guard lock(mutex_);
  note(asked_);
  loop_.Post(*this);
}

void CallImpl::StartRead() noexcept {
  Do([](Operations& operations) { operations.read = true; });
}

void CallImpl::Write(absl::Cord message) noexcept {
  Do([&](Operations& operations) {
    operations.write = true;
    operations.message = std::move(message);
  });
}

void CallImpl::Finish(absl::Status status) noexcept {
  Do([&](Operations& operations) {
    operations.finish = true;
    operations.status = std::move(status);
  });
}

void CallImpl::WriteAndFinish(absl::Cord message) noexcept {
  Do([&](Operations& operations) {
    operations.write = operations.write_quietly = operations.finish = true;
    operations.message = std::move(message);
  });
}

void CallImpl::Cancel() noexcept {
  Do([](Operations& operations) { operations.cancel = true; });
}

void CallImpl::CancelForDrain() noexcept {
  Do([](Operations& operations) {
    operations.cancel = true;
    operations.draining = true;
  });
}

void CallImpl::AddInitialMetadata(std::string_view key, std::string_view value) {
  const std::string encoded = IsBinaryKey(key) ? Base64Encode(value) : std::string(value);
  const std::lock_guard lock(mutex_);
  initial_.Add(key, encoded);
}

void CallImpl::AddTrailingMetadata(std::string_view key, std::string_view value) {
  const std::string encoded = IsBinaryKey(key) ? Base64Encode(value) : std::string(value);
  const std::lock_guard lock(mutex_);
  trailing_.Add(key, encoded);
}

void CallImpl::Run() noexcept {
  const Event event(*this);
  if (std::exchange(opens_soon_, false)) {
    --events_;
    if (waiting_) OpenIfWhole();
  }
  CarryOut();
}

void CallImpl::CarryOut() noexcept {
  // An operation's event may request the next one, which then follows it.
  if (carrying_out_ || handler_ == nullptr) return;
  const Event event(*this);
  carrying_out_ = true;
  for (;;) {
    Operations operations;
    {
      const std::lock_guard lock(mutex_);
      if (!asked_.read && !asked_.write && !asked_.finish && !asked_.cancel) break;
      operations = std::exchange(asked_, Operations());
    }
    CarryOutOnce(operations);
  }
  carrying_out_ = false;
}

void CallImpl::CarryOutOnce(Operations& operations) noexcept {
  if (operations.write) {
    writing_ = true;
    quiet_ = operations.write_quietly;
    if (lost_ || refused_) {
      writing_ = false;
      if (!quiet_) handler_->OnWriteDone(false);
    } else {
      SendMessage(std::move(operations.message));
    }
  }
  if (operations.finish) {
    finished_ = true;
    if (connection() != nullptr) connection()->SetServed(*this, false);
    if (!refused_) {
      status_ = std::move(operations.status);
      // Handlers end a cancelled call with CANCELLED, whatever the cause.
      if (deadline_passed_ && (status_.ok() || absl::IsCancelled(status_))) {
        status_ = absl::Status(absl::StatusCode::kDeadlineExceeded, "Deadline Exceeded");
      }
      // A client that does not read must not hold the call beyond its time.
      if (deadline_passed_ && writing_) {
        GiveUp(ResetOfCode(absl::StatusCode::kDeadlineExceeded));
      } else {
        SendStatus();
      }
    }
  }
  // What clients read as UNAVAILABLE. None repeats by itself what has begun to answer.
  if (operations.cancel) {
    GiveUp(operations.draining ? uint32_t{NGHTTP2_REFUSED_STREAM}
                               : ResetOfCode(absl::StatusCode::kCancelled));
  }
  if (operations.read) {
    reading_ = true;
    Deliver();
  }
}

void CallImpl::CancelFromLoop() noexcept {
  const Event event(*this);
  GiveUp(ResetOfCode(absl::StatusCode::kCancelled));
}

// ---- sending

void CallImpl::SendInitial() {
  if (initial_sent_) return;
  initial_sent_ = true;
  const std::lock_guard lock(mutex_);
  std::vector<Header> headers = {{":status", "200"}, {"content-type", "application/grpc"}};
  for (size_t i = 0; i < initial_.size(); ++i) headers.push_back(initial_[i]);
  connection()->SendHeaders(*this, headers, false);
}

void CallImpl::SendMessage(absl::Cord message) noexcept {
  if (connection() == nullptr) return;
  try {
    if (message.size() > UINT32_MAX) throw std::bad_alloc();
    SendInitial();
    const std::array<char, kPrefixBytes> prefix =
        MessagePrefix(static_cast<uint32_t>(message.size()));
    absl::Cord framed(absl::string_view(prefix.data(), prefix.size()));
    framed.Append(std::move(message));
    connection()->Send(*this, std::move(framed));
  } catch (const std::bad_alloc&) {
    GiveUp(ResetOfCode(absl::StatusCode::kResourceExhausted));
  }
}

// Follows everything written. Once.
void CallImpl::SendStatus() noexcept {
  if (status_sent_ || lost_ || connection() == nullptr) return;
  status_sent_ = true;
  status_ = StatusForWire(std::move(status_));
  try {
    const std::lock_guard lock(mutex_);
    const std::string http = HttpText(http_status_);
    const std::string code = absl::StrCat(static_cast<int>(status_.code()));
    const std::string text =
        PercentEncode(std::string_view(status_.message().data(), status_.message().size()),
                      PercentPlain::kPrintable);
    std::vector<Header> headers;
    // "Trailers-Only", unless there are headers to send.
    const bool alone = !initial_sent_ && initial_.empty();
    if (!initial_sent_) {
      headers = {{":status", http}, {"content-type", "application/grpc"}};
      for (size_t i = 0; i < initial_.size(); ++i) headers.push_back(initial_[i]);
      initial_sent_ = true;
    }
    if (!alone && !headers.empty()) {
      connection()->SendHeaders(*this, headers, false);
      headers.clear();
    }
    headers.push_back({"grpc-status", code});
    if (!text.empty()) headers.push_back({"grpc-message", text});
    if (status_.code() == absl::StatusCode::kUnimplemented) {
      headers.push_back({"grpc-accept-encoding", "identity"});
    }
    for (size_t i = 0; i < trailing_.size(); ++i) headers.push_back(trailing_[i]);
    if (alone) {
      connection()->SendHeaders(*this, headers, true);
    } else {
      connection()->SendTrailers(*this, headers);
    }
  } catch (const std::bad_alloc&) {
    GiveUp(ResetOfCode(absl::StatusCode::kResourceExhausted));
  }
}

void CallImpl::OnSent() noexcept {
  const Event event(*this);
  if (!std::exchange(writing_, false)) return;
  if (!quiet_ && handler_ != nullptr) handler_->OnWriteDone(true);
}

// ---- receiving

void CallImpl::OnData(absl::Cord data) noexcept {
  const Event event(*this);
  const size_t bytes = data.size();
  // Drops what arrives after the end of the call.
  if ((handler_ == nullptr && !waiting_) || lost_ || status_sent_) {
    return connection()->Consume(*this, bytes);
  }
  try {
    reader_.Append(std::move(data));
  } catch (const std::bad_alloc&) {
    return Refuse(200, net::NoMemory());
  }
  waiting_ ? OpenSoon() : Deliver();
}

void CallImpl::OnRemoteEnd() noexcept {
  const Event event(*this);
  request_ended_ = true;
  waiting_ ? OpenSoon() : Deliver();
}

// Why a request is refused that yields this instead of a message.
absl::Status CallImpl::Broken(MessageReader::Result result) const {
  switch (result) {
    case MessageReader::Result::kMessage:
    case MessageReader::Result::kNeedMore:
      return absl::InternalError("the request ends within a message");
    case MessageReader::Result::kTooLong:
      return absl::ResourceExhaustedError(absl::StrCat(
          "the request's message exceeds ", worker_.shared().limits.request_bytes, " bytes"));
    case MessageReader::Result::kCompressed:
      return absl::UnimplementedError("compressed requests are not accepted");
    case MessageReader::Result::kMalformed:
      break;
  }
  return absl::InternalError("malformed message in the request");
}

void CallImpl::Deliver() noexcept {
  if (delivering_) return;
  delivering_ = true;
  while (reading_ && DeliverOne()) continue;
  delivering_ = false;
}

// Delivers the open read's next message or the end. Returns false if the read must wait.
bool CallImpl::DeliverOne() noexcept {
  if (lost_ || refused_ || status_sent_) {
    reading_ = false;
    handler_->OnReadDone(false, absl::Cord());
    return true;
  }
  try {
    absl::Cord message;
    const MessageReader::Result result = reader_.Next(message);
    if (result == MessageReader::Result::kMessage) {
      connection()->Consume(*this, message.size() + kPrefixBytes);
      reading_ = false;
      handler_->OnReadDone(true, std::move(message));
      return true;
    }
    if (result != MessageReader::Result::kNeedMore) {
      Refuse(200, Broken(result));
      return true;
    }
    if (!request_ended_) return false;
    if (!reader_.AtBoundary()) {
      Refuse(200, Broken(result));
      return true;
    }
    reading_ = false;
    handler_->OnReadDone(false, absl::Cord());
    return true;
  } catch (const std::bad_alloc&) {
    Refuse(200, net::NoMemory());
  }
  return true;
}

// ---- the end

// Drops unsent data.
void CallImpl::GiveUp(uint32_t code) noexcept {
  if (connection() != nullptr) connection()->Reset(*this, code);
  lost_ = true;
  OnLost();
}

void CallImpl::OnClosed(const StreamEnd&) noexcept {
  const Event event(*this);
  lost_ = true;
  OnLost();
}

// Ends the handler's operations, and reports cancellation unless the handler has finished.
void CallImpl::OnLost() noexcept {
  loop_.Cancel(timer_);
  SetWaiting(false);
  if (handler_ == nullptr) return;
  if ((lost_ || refused_) && std::exchange(writing_, false) && !quiet_) {
    handler_->OnWriteDone(false);
  }
  if (reading_) Deliver();
  if (!finished_ && !std::exchange(cancel_reported_, true)) handler_->OnCancel();
}

void CallImpl::OnDeadline() noexcept {
  const Event event(*this);
  if (waiting_) {
    return Refuse(200, RequestTooLate());
  }
  deadline_passed_ = true;
  // The handler has finished, but the client does not read.
  if (finished_) return GiveUp(ResetOfCode(absl::StatusCode::kDeadlineExceeded));
  if (!std::exchange(cancel_reported_, true)) handler_->OnCancel();
}

void CallImpl::DeleteIfDone() noexcept {
  if (events_ > 0 || !finished_ || connection() != nullptr || id() == 0) return;
  ++events_;
  if (handler_ != nullptr) handler_->OnDone();
  delete this;
}

}  // namespace cbt::rpc::http2
