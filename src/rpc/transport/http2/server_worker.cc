#include "rpc/transport/http2/server_worker.h"

#include <algorithm>
#include <new>
#include <random>
#include <string_view>
#include <utility>

#include "cbt/units.h"
#include "rpc/contract/server_event.h"
#include "rpc/transport/http2/server_call_impl.h"

namespace cbt::rpc::http2 {
namespace {

using std::chrono::milliseconds;

// How often memory, and the end of a drain, are checked.
constexpr milliseconds kLook{50};

// After the grace period, for the connections' last frames.
constexpr milliseconds kLastWords{300};

// A smaller connection is not closed for its memory.
constexpr size_t kSmallConnection = 256 * kKiB;

// nullopt for ends that the peer wanted, and for a shutdown.
std::optional<ServerEvent> EventOf(EndCause cause) noexcept {
  switch (cause) {
    case EndCause::kHandshake:
      return ServerEvent::kHandshakeFailed;
    case EndCause::kFlood:
      return ServerEvent::kConnectionFlood;
    case EndCause::kStall:
      return ServerEvent::kConnectionCut;
    case EndCause::kSilence:
      return ServerEvent::kConnectionSilent;
    case EndCause::kAge:
      return ServerEvent::kConnectionAged;
    case EndCause::kIdle:
      return ServerEvent::kConnectionIdle;
    case EndCause::kMemory:
      return ServerEvent::kConnectionTooLarge;
    case EndCause::kOther:
      break;
  }
  return std::nullopt;
}

}  // namespace

ServerWorker::ServerWorker(ServerShared& shared, EventLoop& loop, size_t number)
    : shared_(shared), loop_(loop), number_(number), chunks_(shared.memory) {
  loop_.Schedule(timer_, EventLoop::Clock::now() + kLook);
}

ServerWorker::~ServerWorker() {
  if (drained_) return;
  loop_.Cancel(work_);
  loop_.Cancel(end_);
  loop_.Cancel(timer_);
}

// Posted under the mutex: once drained_ is set, the loop may outlive the worker.
template <typename Note>
void ServerWorker::Ask(const Note& note) noexcept {
  const std::lock_guard lock(mutex_);
  if (drained_) return;
  note();
  loop_.Post(work_);
}

void ServerWorker::Give(OwnedDescriptor connection) noexcept {
  Ask([&] {
    try {
      given_.push_back(std::move(connection));
    } catch (const std::bad_alloc&) {
      --shared_.connections;
    }
  });
}

void ServerWorker::CloseConnections() noexcept {
  Ask([&] { close_all_ = true; });
}

void ServerWorker::Drain(EventLoop::Clock::time_point deadline) noexcept {
  Ask([&] { drain_by_ = drain_by_.has_value() ? std::min(*drain_by_, deadline) : deadline; });
}

void ServerWorker::Await() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return drained_; });
}

// Handles requests of other threads.
void ServerWorker::Work() noexcept {
  std::vector<OwnedDescriptor> given;
  bool close_all = false;
  bool drain = false;
  {
    const std::lock_guard lock(mutex_);
    given.swap(given_);
    close_all = std::exchange(close_all_, false);
    drain = drain_by_.has_value();
  }
  if (drain && !draining_) {
    draining_ = true;
    for (const auto& [connection, owner] : connections_) connection->Shutdown();
  }
  if (close_all) {
    for (const auto& [connection, owner] : connections_) {
      connection->Close(absl::Status(absl::StatusCode::kUnavailable, "closed by the server"));
    }
  }
  for (OwnedDescriptor& descriptor : given) {
    try {
      Accept(std::move(descriptor));
    } catch (const std::bad_alloc&) {
      --shared_.connections;
    }
  }
  CheckDrain();
}

// Throws std::bad_alloc.
void ServerWorker::Accept(OwnedDescriptor descriptor) {
  const auto refuse = [this] { --shared_.connections; };
  if (draining_) return refuse();
  if (shared_.OverMemory()) {
    Report(shared_.telemetry, ServerEvent::kConnectionRefused);
    return refuse();
  }
  OwnedSsl ssl;
  if (shared_.ssl) {
    absl::StatusOr<OwnedSsl> made = shared_.ssl();
    // Reported where it is refused.
    if (!made.ok()) return refuse();
    ssl = *std::move(made);
  }
  auto socket = SocketStream::Create(std::move(descriptor), std::move(ssl));
  if (!socket.ok()) return refuse();
  ConnectionSettings settings = shared_.limits.connection;
  if (settings.max_age.count() > 0) {
    // Plus or minus a tenth, so that clients do not all return at once.
    static thread_local std::minstd_rand random{std::random_device{}()};
    settings.max_age = settings.max_age * (900 + static_cast<int>(random() % 201)) / 1000;
  }
  auto made = Connection::Create(loop_, chunks_, *std::move(socket), settings, *this);
  if (!made.ok()) return refuse();
  Connection* const connection = made->get();
  connections_.emplace(connection, *std::move(made));
  ++shared_.accepted;
}

Stream* ServerWorker::OnRequest(Connection&, const HeaderBlock&) noexcept {
  try {
    return new CallImpl(*this);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void ServerWorker::OnClosed(Connection& connection, const absl::Status&) noexcept {
  if (const auto event = EventOf(connection.cause()); event.has_value()) {
    Report(shared_.telemetry, *event);
  }
  connections_.erase(&connection);
  --shared_.connections;
  if (draining_) CheckDrain();
}

void ServerWorker::Add(CallImpl& call) noexcept {
  shared_.memory->Add(sizeof call);
  call.next_ = first_call_;
  if (first_call_ != nullptr) first_call_->previous_ = &call;
  first_call_ = &call;
}

void ServerWorker::Remove(CallImpl& call) noexcept {
  shared_.memory->Remove(sizeof call);
  (call.previous_ != nullptr ? call.previous_->next_ : first_call_) = call.next_;
  if (call.next_ != nullptr) call.next_->previous_ = call.previous_;
}

void ServerWorker::CheckDrain() noexcept {
  if (!draining_) return;
  const EventLoop::Clock::time_point now = EventLoop::Clock::now();
  EventLoop::Clock::time_point deadline;
  {
    const std::lock_guard lock(mutex_);
    deadline = *drain_by_;
  }
  if (now >= deadline && !std::exchange(cancelled_, true)) {
    for (CallImpl* call = first_call_; call != nullptr;) {
      CallImpl* const next = call->next_;
      call->CancelFromLoop();
      call = next;
    }
  }
  if (now >= deadline + kLastWords) {
    for (const auto& [connection, owner] : connections_) {
      connection->Close(absl::Status(absl::StatusCode::kUnavailable, "shutdown"));
    }
  }
  if (connections_.empty() && first_call_ == nullptr) loop_.Defer(end_);
}

// Later than what found the last one gone, which still uses the worker.
void ServerWorker::EndDrain() noexcept {
  loop_.Cancel(timer_);
  const std::lock_guard lock(mutex_);
  drained_ = true;
  loop_.Cancel(work_);
  // Under the lock: the waiting thread destroys the worker.
  changed_.notify_all();
}

void ServerWorker::OnTime() noexcept {
  if (shared_.OverMemory()) EndLargest();
  CheckDrain();
  loop_.Schedule(timer_, EventLoop::Clock::now() + kLook);
}

// One per check, in each loop.
void ServerWorker::EndLargest() noexcept {
  Connection* largest = nullptr;
  size_t most = kSmallConnection;
  for (const auto& [connection, owner] : connections_) {
    if (const size_t bytes = connection->memory(); bytes > most && !connection->ended()) {
      largest = connection;
      most = bytes;
    }
  }
  if (largest == nullptr) return;
  largest->Close(absl::Status(absl::StatusCode::kResourceExhausted, "memory"), EndCause::kMemory);
}

}  // namespace cbt::rpc::http2
