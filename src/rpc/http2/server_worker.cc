#include "rpc/http2/server_worker.h"

#include <algorithm>
#include <new>
#include <random>
#include <string_view>
#include <utility>

#include "cbt/units.h"
#include "rpc/contract/server_event.h"
#include "rpc/http2/server_call_impl.h"

namespace cbt::rpc::http2 {
namespace {

using std::chrono::milliseconds;

// How often memory, and the end of a drain, are checked.
constexpr milliseconds kLook{50};

// After the grace period, for the connections' last frames.
constexpr milliseconds kDrainFlush{300};

// A smaller connection with a served call is not closed for its memory.
constexpr size_t kSmallConnection = 64 * kKiB;

// What is made room for beyond the need, so that it is not looked for again at once; and what
// connections in their handshake may hold before they end for others: parts of a loop's memory.
constexpr size_t kRoomPart = 8;
constexpr size_t kHandshakesPart = 4;

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
    case EndCause::kRoom:
      return ServerEvent::kConnectionReplaced;
    case EndCause::kOther:
      break;
  }
  return std::nullopt;
}

}  // namespace

ServerWorker::ServerWorker(ServerShared& shared, net::EventLoop& loop, size_t number)
    : shared_(shared),
      loop_(loop),
      number_(number),
      chunks_(std::make_shared<net::MemoryAccount>(shared.memory)) {
  loop_.Schedule(timer_, net::EventLoop::Clock::now() + kLook);
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

void ServerWorker::AddConnection(OwnedDescriptor connection, bool replaces) noexcept {
  Ask([&] {
    try {
      given_.push_back({std::move(connection), replaces});
    } catch (const std::bad_alloc&) {
      --shared_.connections;
    }
  });
}

void ServerWorker::CloseConnections() noexcept {
  Ask([&] { close_all_ = true; });
}

void ServerWorker::Drain(net::EventLoop::Clock::time_point deadline) noexcept {
  Ask([&] { drain_by_ = drain_by_.has_value() ? std::min(*drain_by_, deadline) : deadline; });
}

void ServerWorker::Await() noexcept {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return drained_; });
}

// Handles requests of other threads.
void ServerWorker::Work() noexcept {
  std::vector<Given> given;
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
    peers_.ForEach([](Connection& connection) { connection.Shutdown(); });
  }
  if (close_all) {
    peers_.ForEach([](Connection& connection) {
      connection.Close(absl::Status(absl::StatusCode::kUnavailable, "closed by the server"));
    });
  }
  size_t taken = 0;
  for (; taken < given.size() && MayRead(); ++taken) {
    try {
      Accept(std::move(given[taken].descriptor), given[taken].replaces);
    } catch (const std::bad_alloc&) {
      --shared_.connections;
    }
  }
  if (taken < given.size()) TakeLater(std::move(given), taken);
  CheckDrain();
}

// The connections from `first` on come in the loop's next turn, before those given since.
void ServerWorker::TakeLater(std::vector<Given> given, size_t first) noexcept {
  given.erase(given.begin(), given.begin() + static_cast<ptrdiff_t>(first));
  const std::lock_guard lock(mutex_);
  try {
    given.reserve(given.size() + given_.size());
    for (Given& one : given_) given.push_back(std::move(one));
    given_.swap(given);
  } catch (const std::bad_alloc&) {
    shared_.connections -= given.size();
  }
  loop_.Post(work_);
}

// Throws std::bad_alloc.
void ServerWorker::Accept(OwnedDescriptor descriptor, bool replaces) {
  const auto refuse = [this] { --shared_.connections; };
  if (draining_) return refuse();
  const size_t before = peers_.leaving();
  const bool no_place = replaces && !peers_.MakePlace();
  NoteLeaving(before);
  if (no_place || OverMemory(nullptr)) {
    Report(shared_.telemetry, ServerEvent::kConnectionRefused);
    return refuse();
  }
  net::OwnedSsl ssl;
  if (shared_.ssl) {
    absl::StatusOr<net::OwnedSsl> made = shared_.ssl();
    // Reported where it is refused.
    if (!made.ok()) return refuse();
    ssl = *std::move(made);
  }
  auto socket = net::SocketStream::Create(std::move(descriptor), std::move(ssl));
  if (!socket.ok()) return refuse();
  ConnectionSettings settings = shared_.limits.connection;
  if (settings.max_age.count() > 0) {
    // Plus or minus a tenth, so that clients do not all return at once.
    static thread_local std::minstd_rand random{std::random_device{}()};
    settings.max_age = settings.max_age * (900 + static_cast<int>(random() % 201)) / 1000;
  }
  auto made = Connection::Create(loop_, chunks_, *std::move(socket), settings, *this);
  if (!made.ok()) return refuse();
  peers_.Add(*std::move(made), net::EventLoop::Clock::now());
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
  const size_t before = peers_.leaving();
  peers_.Remove(connection);
  NoteLeaving(before);
  --shared_.connections;
  if (draining_) CheckDrain();
}

void ServerWorker::OnReady(Connection& connection) noexcept {
  peers_.Update(connection, loop_.now());
}

void ServerWorker::OnServed(Connection& connection) noexcept {
  peers_.Update(connection, loop_.now());
}

// Bytes of this loop's connections beyond their share, if the server is over its quota.
size_t ServerWorker::Excess() noexcept {
  const size_t quota = shared_.limits.memory_bytes;
  if (quota == 0 || shared_.memory->used() <= quota + shared_.leaving.load()) return 0;
  const size_t kept = quota / shared_.workers + peers_.leaving();
  const size_t used = chunks_.account().used();
  return used > kept ? used - kept : 0;
}

void ServerWorker::NoteLeaving(size_t before) noexcept {
  shared_.leaving += peers_.leaving() - before;  // modulo 2^64
}

// Connections that were chosen to end are gone by the next turn. Until then the others must not
// take far more than there is.
bool ServerWorker::MayRead() noexcept {
  const size_t quota = shared_.limits.memory_bytes;
  return quota == 0 || peers_.leaving() == 0 || shared_.memory->used() <= quota + quota / kRoomPart;
}

bool ServerWorker::OverMemory(const Connection* keep) noexcept {
  const size_t excess = Excess();
  if (excess == 0) return false;
  const net::EventLoop::Clock::time_point now = net::EventLoop::Clock::now();
  if (now < no_room_until_) return true;
  const size_t share = shared_.limits.memory_bytes / shared_.workers;
  const size_t before = peers_.leaving();
  const size_t wanted = excess + share / kRoomPart;
  // What was not found now will not be found soon.
  if (peers_.MakeRoom(wanted, share / kHandshakesPart, keep, now) < wanted) {
    no_room_until_ = now + kLook;
  }
  NoteLeaving(before);
  return Excess() > 0;
}

void ServerWorker::Add(CallImpl& call) noexcept {
  chunks_.account().Add(kCallBytes);
  call.next_ = first_call_;
  if (first_call_ != nullptr) first_call_->previous_ = &call;
  first_call_ = &call;
}

void ServerWorker::Remove(CallImpl& call) noexcept {
  chunks_.account().Remove(kCallBytes);
  (call.previous_ != nullptr ? call.previous_->next_ : first_call_) = call.next_;
  if (call.next_ != nullptr) call.next_->previous_ = call.previous_;
}

void ServerWorker::CheckDrain() noexcept {
  if (!draining_) return;
  const net::EventLoop::Clock::time_point now = net::EventLoop::Clock::now();
  net::EventLoop::Clock::time_point deadline;
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
  if (now >= deadline + kDrainFlush) {
    peers_.ForEach([](Connection& connection) {
      connection.Close(absl::Status(absl::StatusCode::kUnavailable, "shutdown"));
    });
  }
  if (peers_.empty() && first_call_ == nullptr) loop_.Defer(end_);
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
  // Calls are ended only if nothing else helps.
  while (OverMemory(nullptr)) {
    const size_t before = peers_.leaving();
    const size_t ended = peers_.EndLargest(kSmallConnection);
    NoteLeaving(before);
    if (ended == 0) break;
  }
  CheckDrain();
  loop_.Schedule(timer_, net::EventLoop::Clock::now() + kLook);
}

}  // namespace cbt::rpc::http2
