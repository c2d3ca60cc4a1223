#include "rpc/http2/channel_core.h"

#include <algorithm>
#include <new>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/units.h"
#include "rpc/contract/status.h"
#include "rpc/http2/call_core.h"
#include "rpc/http2/driven_loop.h"

namespace cbt::rpc::http2 {
namespace {

using std::chrono::milliseconds;

// With longer delays, clients would return late to a restarted plugin.
constexpr milliseconds kFirstBackoff{100};
constexpr milliseconds kLastBackoff{1000};

constexpr uint32_t kMaxFrameBytes = 256 * kKiB;
constexpr uint32_t kMaxHeaderBytes = 16 * kKiB;

// The :authority that a server sees.
std::string AuthorityOf(const net::Address& address) {
  if (address.is_unix) return "localhost";
  net::Address without_interface = address;
  without_interface.host = address.host.substr(0, address.host.find('%'));
  return without_interface.ToString();
}

ConnectionSettings SettingsOf(const ChannelOptions& options) {
  ConnectionSettings settings;
  settings.role = Role::kClient;
  settings.max_frame_bytes = kMaxFrameBytes;
  settings.stream_window_bytes = options.stream_window_bytes;
  // Streams have separate windows: one that is not read must not block the others.
  settings.separate_streams = true;
  settings.connection_window_bytes = 2 * options.stream_window_bytes;
  settings.max_header_bytes = kMaxHeaderBytes;
  settings.handshake_time = options.connect_time;
  settings.keepalive_time = options.keepalive_time;
  settings.keepalive_timeout = options.keepalive_timeout;
  settings.keepalive_without_streams = false;
  return settings;
}

}  // namespace

std::optional<net::EventLoop::Clock::time_point> SteadyTime(const Deadline& deadline) {
  if (!deadline.has_value()) return std::nullopt;
  const auto system_now = std::chrono::system_clock::now();
  const auto now = net::EventLoop::Clock::now();
  if (*deadline <= system_now) return now;
  const auto left = *deadline - system_now;
  if (left > net::EventLoop::Clock::time_point::max() - now) return std::nullopt;
  return now + std::chrono::duration_cast<net::EventLoop::Clock::duration>(left);
}

void CallList::PushBack(CallCore& call) noexcept {
  call.list_ = this;
  call.next_ = nullptr;
  call.previous_ = last_;
  (last_ == nullptr ? first_ : last_->next_) = &call;
  last_ = &call;
}

CallCore* CallList::PopFront() noexcept {
  CallCore* const call = first_;
  if (call != nullptr) Remove(*call);
  return call;
}

void CallList::Remove(CallCore& call) noexcept {
  (call.previous_ == nullptr ? first_ : call.previous_->next_) = call.next_;
  (call.next_ == nullptr ? last_ : call.next_->previous_) = call.previous_;
  call.list_ = nullptr;
}

ChannelCore::ChannelCore(const net::Address& address, std::unique_ptr<net::ClientTls> tls,
                         const ChannelOptions& options, std::shared_ptr<const ClientLoop> loop)
    : address_(address),
      authority_(AuthorityOf(address)),
      tls_(std::move(tls)),
      options_(options),
      loop_(std::move(loop)),
      connector_(*loop_->loop, address_, *this) {}

std::shared_ptr<ChannelCore> ChannelCore::Create(const net::Address& address,
                                                 std::unique_ptr<net::ClientTls> tls,
                                                 const ChannelOptions& options,
                                                 std::shared_ptr<const ClientLoop> loop) {
  auto* const core = new ChannelCore(address, std::move(tls), options, std::move(loop));
  return {core, [](ChannelCore* last) { last->loop().Post(last->destroy_task_); }};
}

// Runs in the loop, without any calls left.
ChannelCore::~ChannelCore() {
  loop().Cancel(wanted_task_);
  loop().Cancel(retry_timer_);
}

absl::Status ChannelCore::Connect(std::chrono::system_clock::time_point deadline,
                                  DrivenLoop* driven) {
  Waiter waiter;
  std::unique_lock lock(mutex_);
  waiter.next = std::exchange(waiters_, &waiter);
  loop().Post(wanted_task_);
  const auto done = [&] { return waiter.result.has_value(); };
  if (driven == nullptr) {
    changed_.wait_until(lock, deadline, done);
  } else {
    lock.unlock();
    const auto locked_done = [&] {
      const std::lock_guard inner(mutex_);
      return done();
    };
    driven->RunUntil(locked_done, SteadyTime(deadline).value_or(Clock::time_point::max()));
    lock.lock();
  }
  if (waiter.result.has_value()) return *waiter.result;
  Waiter** at = &waiters_;
  while (*at != &waiter) at = &(*at)->next;
  *at = waiter.next;
  if (!last_failure_.ok()) return last_failure_;
  return absl::UnavailableError(
      absl::StrCat("can't connect to ", address_.ToString(), ": no answer in time"));
}

void ChannelCore::StartCall(CallCore& call) noexcept {
  if (CanOpen() && MakeRoom()) return call.Open(*current_);
  const bool soon = !options_.reconnect_at_once && Clock::now() < next_attempt_;
  if (soon && !connector_.running() && !CanOpen()) return call.Fail(last_failure_);
  waiting_.PushBack(call);
  Attempt(true);
}

// A server may close a connection for the resets of some of its streams, and so fail all others: a
// relay's streams belong to many clients. So a connection carries no more streams than may be
// reset, and a new connection takes the next one. Returns false if the current one takes no call,
// now or ever.
bool ChannelCore::MakeRoom() noexcept {
  if (current_->MayResetOneMore()) return true;
  // Not earlier: it would end at once.
  if (current_->ready()) {
    current_->Shutdown();
    RetireCurrent();
  }
  return false;
}

// Calls without room wait for the current connection or the next.
void ChannelCore::OpenWaiting() noexcept {
  while (!waiting_.empty() && CanOpen() && MakeRoom()) waiting_.PopFront()->Open(*current_);
  if (!waiting_.empty()) Attempt(true);
}

void ChannelCore::Forget(CallCore& call) noexcept {
  if (call.list_ != nullptr) call.list_->Remove(call);
}

// Does nothing if there is a connection or a running attempt.
void ChannelCore::Attempt(bool at_once) noexcept {
  if (connector_.running() || CanOpen()) return;
  if (at_once || Clock::now() >= next_attempt_) {
    loop().Cancel(retry_timer_);
    connector_.Start(options_.connect_time);
  } else {
    loop().Schedule(retry_timer_, next_attempt_);
  }
}

void ChannelCore::OnConnected(absl::StatusOr<OwnedDescriptor> socket) noexcept try {
  absl::Status status = socket.status();
  if (status.ok()) status = OpenConnection(*std::move(socket));
  if (!status.ok()) return OnAttemptFailed(status, !absl::IsNotFound(status));
  OpenWaiting();
} catch (const std::bad_alloc&) {
  OnAttemptFailed(OutOfMemory(), true);
}

absl::Status ChannelCore::OpenConnection(OwnedDescriptor socket) {
  RetireCurrent();
  net::Ssl ssl;
  if (tls_ != nullptr) {
    absl::StatusOr<net::Ssl> made =
        tls_->NewConnection(address_.is_unix ? "localhost" : address_.host);
    if (!made.ok()) return made.status();
    ssl = *std::move(made);
  }
  auto stream = net::SocketStream::Create(std::move(socket), net::OwnedSsl(ssl.release()));
  if (!stream.ok()) return stream.status();
  // RetireCurrent() must not fail.
  old_.reserve(old_.size() + 1);
  auto connection =
      Connection::Create(loop(), *loop_->chunks, *std::move(stream), SettingsOf(options_), *this);
  if (!connection.ok()) return connection.status();
  current_ = *std::move(connection);
  return absl::OkStatus();
}

void ChannelCore::RetireCurrent() noexcept {
  if (current_ != nullptr) old_.push_back(std::move(current_));
}

void ChannelCore::OnReady(Connection& connection) noexcept {
  if (&connection != current_.get()) return;
  transient_ = true;
  backoff_ = {};
  next_attempt_ = {};
  {
    const std::lock_guard lock(mutex_);
    last_failure_ = absl::OkStatus();
  }
  WakeWaiters(absl::OkStatus());
  OpenWaiting();
}

void ChannelCore::OnGoaway(Connection& connection, uint32_t, std::string_view) noexcept {
  if (&connection == current_.get()) RetireCurrent();
  if (!waiting_.empty() || HasWaiters()) Attempt(!waiting_.empty());
}

void ChannelCore::OnClosed(Connection& connection, const absl::Status& reason) noexcept {
  // Destroyed when this function returns.
  std::unique_ptr<Connection> closed;
  bool failed = false;
  if (&connection == current_.get()) {
    failed = !connection.ready();
    closed = std::move(current_);
  } else {
    const auto at = std::find_if(old_.begin(), old_.end(),
                                 [&](const auto& old) { return old.get() == &connection; });
    if (at != old_.end()) {
      closed = std::move(*at);
      old_.erase(at);
    }
  }
  absl::Status status;
  try {
    const std::string text =
        reason.ok() ? "the server closed the connection" : std::string(reason.message());
    status = absl::UnavailableError(
        failed ? absl::StrCat("can't connect to ", address_.ToString(), ": ", text)
               : absl::StrCat("the connection to ", address_.ToString(), " is lost: ", text));
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
  }
  if (failed) OnAttemptFailed(reason.ok() ? status : reason, !connection.mismatched());
  while (CallCore* const call = lost_.PopFront()) call->Fail(status);
  if (!waiting_.empty() || HasWaiters()) Attempt(!waiting_.empty());
}

void ChannelCore::OnAttemptFailed(const absl::Status& reason, bool waiting_may_help) noexcept {
  // Unlike std::random_device, this never throws.
  thread_local std::minstd_rand random(
      static_cast<uint32_t>(Clock::now().time_since_epoch().count()));
  transient_ = waiting_may_help;
  backoff_ = std::clamp<Clock::duration>(backoff_ * 8 / 5, kFirstBackoff, kLastBackoff);
  // Plus or minus a fifth, so that the clients of a restarted server do not all return at once.
  next_attempt_ = Clock::now() + backoff_ * std::uniform_int_distribution(80, 120)(random) / 100;
  absl::Status status;
  try {
    status = absl::UnavailableError(
        absl::StrCat("can't connect to ", address_.ToString(), ": ", reason.message()));
  } catch (const std::bad_alloc&) {
    status = OutOfMemory();
  }
  {
    const std::lock_guard lock(mutex_);
    last_failure_ = status;
  }
  // Calls that start a new one immediately belong to the next attempt.
  CallList failed = std::exchange(waiting_, CallList());
  while (CallCore* const call = failed.PopFront()) call->Fail(status);
  WakeWaiters(status);
}

// A thread waits in Connect(), or the time of the next attempt has come.
void ChannelCore::OnWanted() noexcept {
  if (CanOpen() && current_->ready()) return WakeWaiters(absl::OkStatus());
  if (HasWaiters()) Attempt(false);
}

bool ChannelCore::HasWaiters() noexcept {
  const std::lock_guard lock(mutex_);
  return waiters_ != nullptr;
}

void ChannelCore::WakeWaiters(const absl::Status& result) noexcept {
  const std::lock_guard lock(mutex_);
  while (waiters_ != nullptr) {
    waiters_->result = result;
    waiters_ = waiters_->next;
  }
  changed_.notify_all();
}

}  // namespace cbt::rpc::http2
