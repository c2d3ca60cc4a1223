#include "programs/driver/host/host_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"
#include "programs/driver/host/thread.h"
#include "programs/driver/system/program.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::milliseconds kConnectPause{100};
constexpr std::chrono::seconds kFirstConnection{30};
constexpr std::chrono::seconds kReadyTime{60};
// nbdkit has half a minute to start, and as much to end.
constexpr std::chrono::seconds kCallTime{90};
constexpr std::chrono::seconds kStartPause{5};
// Restarts of a server or of the host take less on a machine that is not in trouble.
constexpr std::chrono::seconds kSettleTime{15};
constexpr char kNoAnswer[] = "the volume host does not answer";

using State = VolumeHealth::State;

}  // namespace

void HostClient::Start() {
  thread_ = std::thread([this] { Run(); });
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kFirstConnection, [this] { return connected_; });
}

HostClient::~HostClient() {
  stop_.Set();
  if (thread_.joinable()) thread_.join();
}

absl::Status HostClient::Call(const HostMessage& request) const {
  {
    const std::lock_guard lock(mutex_);
    // It must know first what an earlier host has left.
    if (!connected_) return absl::UnavailableError("the volume host does not answer yet");
  }
  absl::StatusOr<OwnedDescriptor> socket = ConnectHost(options_.socket);
  if (!socket.ok()) {
    return absl::UnavailableError("the volume host does not answer: " +
                                  std::string(socket.status().message()));
  }
  if (absl::Status sent = SendMessage(socket->number(), request); !sent.ok()) return sent;
  absl::StatusOr<HostMessage> answer = ReceiveMessage(socket->number(), kCallTime);
  if (!answer.ok()) {
    return absl::UnavailableError("the volume host does not answer: " +
                                  std::string(answer.status().message()));
  }
  return DecodeStatus(*answer);
}

absl::Status HostClient::Serve(const ServeRequest& request) const {
  return Call({.fields = {{"do", "serve"},
                          {"volume", request.volume},
                          {"file", request.file ? "1" : ""},
                          {"read_only", request.read_only ? "1" : ""},
                          {"again", request.again ? "1" : ""}},
               .descriptor = {}});
}

absl::Status HostClient::Grow(const std::string& volume, uint64_t size) const {
  absl::Status grown =
      Call({.fields = {{"do", "grow"}, {"volume", volume}, {"size", absl::StrCat(size)}},
            .descriptor = {}});
  if (!absl::IsUnimplemented(grown)) return grown;
  return absl::FailedPreconditionError(
      "the volume host is of an earlier version, which can't let an attached volume grow: restart "
      "it, or unstage the volume");
}

absl::Status HostClient::Stop(const std::string& volume) const {
  return Call({.fields = {{"do", "stop"}, {"volume", volume}}, .descriptor = {}});
}

void HostClient::Expect(const std::string& volume) {
  const std::lock_guard lock(mutex_);
  health_.try_emplace(volume, VolumeHealth{.state = State::kUnknown,
                                           .error = "no volume host has said yet how it is"});
}

void HostClient::Unexpect(const std::string& volume) {
  const std::lock_guard lock(mutex_);
  const auto found = health_.find(volume);
  if (found != health_.end() && found->second.state == State::kUnknown) health_.erase(found);
}

VolumeHealth HostClient::Seen(const std::string& volume, const VolumeHealth& health) const {
  const auto kept = kept_.find(volume);
  if (kept != kept_.end() && FuseDisk::HasEnded(kept->second.second)) {
    return {.state = State::kFailed,
            .restarts = health.restarts,
            .error =
                "the connection of the volume's device was cut, and every request of it "
                "fails: delete the Pods that use the volume, then it is staged again"};
  }
  if (!connected_ && health.state != State::kFailed) {
    return {.state = State::kUnknown, .restarts = health.restarts, .error = kNoAnswer};
  }
  return health;
}

std::optional<VolumeHealth> HostClient::health(const std::string& volume) const {
  const std::lock_guard lock(mutex_);
  const auto found = health_.find(volume);
  if (found == health_.end()) return std::nullopt;
  return Seen(volume, found->second);
}

std::optional<VolumeHealth> HostClient::SettledHealth(const std::string& volume) const {
  std::unique_lock lock(mutex_);
  const auto late = std::chrono::steady_clock::now() + kSettleTime;
  for (;;) {
    const auto found = health_.find(volume);
    if (found == health_.end()) return std::nullopt;
    VolumeHealth seen = Seen(volume, found->second);
    if (seen.state != State::kStarting && seen.state != State::kUnknown) return seen;
    if (changed_.wait_until(lock, late) == std::cv_status::timeout) return seen;
  }
}

HostClient::File HostClient::file(const std::string& volume) const {
  const std::lock_guard lock(mutex_);
  if (const auto kept = kept_.find(volume); kept != kept_.end()) {
    return FuseDisk::HasEnded(kept->second.second) ? File::kGone : File::kShown;
  }
  if (!connected_) return File::kUnknown;
  const auto found = health_.find(volume);
  // Neither this process nor the host has its connection, so no process has.
  if (found == health_.end() || found->second.state == State::kFailed) return File::kGone;
  return found->second.serving() ? File::kShown : File::kUnknown;
}

bool HostClient::connected() const {
  const std::lock_guard lock(mutex_);
  return connected_;
}

bool HostClient::WaitUntilConnected() const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kSettleTime, [this] { return connected_; });
}

size_t HostClient::unserved() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(health_.begin(), health_.end(),
                    [this](const auto& each) { return !Seen(each.first, each.second).serving(); }));
}

uint64_t HostClient::restarts() const {
  const std::lock_guard lock(mutex_);
  return restarts_;
}

void HostClient::SetConnected(bool connected) {
  {
    const std::lock_guard lock(mutex_);
    connected_ = connected;
  }
  changed_.notify_all();
  if (connected) {
    Report("", {});
  } else if (!stop_.IsSet()) {
    Report("", {.state = State::kUnknown, .error = kNoAnswer});
  }
}

// What an earlier host has said is not true of this one, which may fail to serve a volume.
void HostClient::DoubtHealth() {
  const std::lock_guard lock(mutex_);
  for (auto& [volume, health] : health_) {
    health.state = State::kUnknown;
    health.error = "the volume host has started again, and has not said yet how it is";
  }
}

void HostClient::Report(const std::string& volume, const VolumeHealth& health) {
  VolumeHealth& before = reported_[volume];
  const bool same =
      before.state == health.state && (health.serving() || before.error == health.error);
  before = health;
  if (!same) options_.changed(volume, health);
}

// Connects to the host, whom it starts if that is its task.
absl::StatusOr<OwnedDescriptor> HostClient::Connect() {
  auto next_start = std::chrono::steady_clock::now();
  const auto late = next_start + kFirstConnection;
  for (;;) {
    absl::StatusOr<OwnedDescriptor> socket = ConnectHost(options_.socket);
    if (socket.ok()) return socket;
    if (std::chrono::steady_clock::now() > late) SetConnected(false);
    if (!options_.program.empty() && std::chrono::steady_clock::now() >= next_start) {
      // It waits for an earlier one to end, and outlives this process.
      std::vector<std::string> command = {"setsid", "--fork"};
      command.insert(command.end(), options_.program.begin(), options_.program.end());
      CallProgram(command).IgnoreError();
      next_start = std::chrono::steady_clock::now() + kStartPause;
    }
    if (stop_.WaitFor(kConnectPause)) return absl::CancelledError("");
  }
}

// What an earlier host has left.
absl::Status HostClient::GiveBack(int socket) {
  const std::lock_guard lock(mutex_);
  for (auto& [volume, kept] : kept_) {
    auto& [session, connection] = kept;
    HostMessage message = EncodeSession("give", volume, session);
    message.descriptor = OwnedDescriptor(::fcntl(connection.number(), F_DUPFD_CLOEXEC, 3));
    if (!message.descriptor.has_value()) return FileError("/dev/fuse", errno);
    if (absl::Status sent = SendMessage(socket, message); !sent.ok()) return sent;
  }
  if (absl::Status sent = SendMessage(socket, {.fields = {{"do", "keep"}}, .descriptor = {}});
      !sent.ok()) {
    return sent;
  }
  return absl::OkStatus();
}

// Learns what is attached. Before the host is ready it could be asked to serve a volume whose
// session it has not read yet, and would begin another one.
absl::Status HostClient::WaitUntilReady(int socket) {
  for (;;) {
    absl::StatusOr<HostMessage> message = ReceiveMessage(socket, kReadyTime);
    if (!message.ok()) return message.status();
    if (message->Get("do") == "ready") return absl::OkStatus();
    Learn(*std::move(message));
  }
}

void HostClient::Learn(HostMessage message) {
  const std::string volume(message.Get("volume"));
  const std::string_view verb = message.Get("do");
  if (verb == "kept") {
    const absl::StatusOr<FuseSession> session = DecodeSession(message);
    if (!session.ok()) return;
    const std::lock_guard lock(mutex_);
    auto& [kept, connection] = kept_[volume];
    kept = *session;
    if (message.descriptor.has_value()) connection = std::move(message.descriptor);
    if (!connection.has_value()) kept_.erase(volume);
  } else if (verb == "dropped") {
    const std::lock_guard lock(mutex_);
    kept_.erase(volume);
    health_.erase(volume);
    reported_.erase(volume);
    changed_.notify_all();
  } else if (verb == "state") {
    VolumeHealth health = {.state = State::kWaiting, .error = std::string(message.Get("error"))};
    if (!message.Get("serving").empty()) health.state = State::kServing;
    if (!message.Get("starting").empty()) health.state = State::kStarting;
    if (!message.Get("failed").empty()) health.state = State::kFailed;
    static_cast<void>(absl::SimpleAtoi(AbslView(message.Get("restarts")), &health.restarts));
    {
      const std::lock_guard lock(mutex_);
      VolumeHealth& known = health_[volume];
      // Another host begins at 0.
      restarts_ += health.restarts - (health.restarts < known.restarts ? 0 : known.restarts);
      known = health;
    }
    changed_.notify_all();
    Report(volume, health);
  }
}

// Receives messages until the host or the client ends.
void HostClient::Listen(int socket) {
  while (stop_.WaitUntilReadable(socket)) {
    absl::StatusOr<HostMessage> message = ReceiveMessage(socket, kConnectPause);
    if (!message.ok() && !absl::IsInvalidArgument(message.status())) return;
    if (message.ok()) Learn(*std::move(message));
  }
}

void HostClient::Run() {
  for (;;) {
    const absl::StatusOr<OwnedDescriptor> socket = Connect();
    if (!socket.ok()) return;
    DoubtHealth();
    if (!GiveBack(socket->number()).ok() || !WaitUntilReady(socket->number()).ok()) {
      if (stop_.WaitFor(kConnectPause)) return;
      continue;
    }
    SetConnected(true);
    // What the host sends meanwhile waits in the socket.
    std::thread ask;
    if (StartThread(ask, [this] { options_.connected(); }).ok()) Listen(socket->number());
    SetConnected(false);
    if (ask.joinable()) ask.join();
    if (stop_.IsSet() || stop_.WaitFor(kConnectPause)) return;
  }
}

}  // namespace cbt::driver
