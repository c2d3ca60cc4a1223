#include "rpc/http2/connector.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/text.h"
#include "rpc/contract/status.h"

namespace cbt::rpc::http2 {
namespace {

using std::chrono::milliseconds;

// A Unix socket with a full queue refuses at once, where TCP waits.
constexpr milliseconds kRetry{20};
// An unresponsive address must not use up the time of the next ones.
constexpr milliseconds kLeastTime{1000};

addrinfo Hints(int flags) noexcept {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  return hints;
}

// Why nothing will listen at a socket's path that could not be connected to, however long one
// waits; empty if a server may still come.
absl::string_view NeverASocket(const std::string& path, int error) {
  struct stat info = {};
  if (error == ECONNREFUSED && stat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
    return "the file is not a socket";
  }
  if (error != ENOENT) return "";
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  return stat(directory.c_str(), &info) == 0 ? "" : "its directory does not exist";
}

}  // namespace

// Resolves a host name, which may take long, on its own thread, which may outlive the connector.
class Connector::Lookup final : public std::enable_shared_from_this<Lookup> {
 public:
  Lookup(net::EventLoop& loop, Connector& owner, const net::Address& address)
      : host_(address.host), port_(std::to_string(address.port)), loop_(&loop), owner_(&owner) {}
  ~Lookup() {
    if (list_ != nullptr) freeaddrinfo(list_);
  }
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;

  // Throws std::system_error if there is no thread, or std::bad_alloc.
  void Start() {
    std::thread([self = shared_from_this()] { self->Ask(); }).detach();
  }

  // The owner is not called any more.
  void Abandon() noexcept {
    std::shared_ptr<Lookup> queued;
    const std::lock_guard lock(mutex_);
    if (queued_ != nullptr) loop_->Cancel(task_);
    loop_ = nullptr;
    queued = std::move(queued_);
  }

 private:
  void Ask() noexcept {
    const addrinfo hints = Hints(AI_ADDRCONFIG);
    addrinfo* list = nullptr;
    const int error = getaddrinfo(host_.c_str(), port_.c_str(), &hints, &list);
    const std::lock_guard lock(mutex_);
    error_ = error;
    list_ = list;
    if (loop_ == nullptr) return;
    queued_ = shared_from_this();
    loop_->Post(task_);
  }

  void Deliver() noexcept {
    std::shared_ptr<Lookup> self;
    {
      const std::lock_guard lock(mutex_);
      self = std::move(queued_);
      loop_ = nullptr;
    }
    owner_->OnResolved(error_, std::exchange(list_, nullptr));
  }

  const std::string host_;
  const std::string port_;
  std::mutex mutex_;
  net::EventLoop* loop_;  // null: abandoned
  Connector* const owner_;
  std::shared_ptr<Lookup> queued_;  // this, while the task is queued
  int error_ = 0;
  addrinfo* list_ = nullptr;
  net::MemberTask<Lookup, &Lookup::Deliver> task_{*this};
};

Connector::Connector(net::EventLoop& loop, const net::Address& address, Listener& listener) noexcept
    : loop_(loop), address_(address), listener_(listener) {}

Connector::~Connector() {
  if (lookup_ != nullptr) lookup_->Abandon();
  CloseSocket();
  loop_.Cancel(timer_);
  loop_.Cancel(begin_);
}

void Connector::Start(milliseconds time) noexcept {
  running_ = true;
  error_ = 0;
  end_ = Clock::now() + time;
  loop_.Schedule(timer_, end_);
  loop_.Post(begin_);
}

void Connector::Begin() noexcept try {
  if (!running_) return;
  if (address_.is_unix) return TryUnix();
  // A numeric address needs no thread.
  const addrinfo hints = Hints(AI_NUMERICHOST | AI_NUMERICSERV);
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address_.port);
  if (getaddrinfo(address_.host.c_str(), port.c_str(), &hints, &list) == 0) {
    return OnResolved(0, list);
  }
  lookup_ = std::make_shared<Lookup>(loop_, *this, address_);
  lookup_->Start();
} catch (const std::bad_alloc&) {
  Fail(OutOfMemory());
} catch (const std::system_error& error) {
  Fail(MakeStatusNoThrow(absl::StatusCode::kUnavailable, "can't start a thread"));
}

void Connector::OnResolved(int error, addrinfo* list) noexcept {
  lookup_ = nullptr;
  list_.reset(list);
  if (error != 0) {
    return Fail(MakeStatusNoThrow(absl::StatusCode::kNotFound, gai_strerror(error)));
  }
  next_ = list;
  left_ = 0;
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) ++left_;
  TryNext();
}

// If all addresses fail, the last one's error is reported.
void Connector::TryNext() noexcept {
  if (address_.is_unix || next_ == nullptr) return FailWith(error_);
  const addrinfo* const info = next_;
  const auto left = std::chrono::duration_cast<milliseconds>(end_ - Clock::now());
  const milliseconds share = std::max(left / static_cast<int64_t>(left_), kLeastTime);
  next_ = info->ai_next;
  --left_;
  loop_.Schedule(timer_, std::min(end_, Clock::now() + share));
  TryAddress(info->ai_family, info->ai_addr, info->ai_addrlen);
}

void Connector::TryUnix() noexcept {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (address_.path.size() >= sizeof address.sun_path) return FailWith(ENAMETOOLONG);
  std::memcpy(address.sun_path, address_.path.data(), address_.path.size());
  TryAddress(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

void Connector::TryAddress(int family, const sockaddr* address, socklen_t length) noexcept {
  socket_ = OwnedDescriptor(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_.has_value()) return OnRefused(errno);
  if (family != AF_UNIX) {
    const int on = 1;
    setsockopt(socket_.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  if (connect(socket_.number(), address, length) == 0) return Succeed();
  if (errno == EAGAIN && family == AF_UNIX) {
    error_ = EAGAIN;
    retry_ = true;
    CloseSocket();
    return loop_.Schedule(timer_, std::min(end_, Clock::now() + kRetry));
  }
  // An interrupted connect() continues by itself.
  if (errno != EINPROGRESS && errno != EINTR) return OnRefused(errno);
  watched_ = loop_.Add(socket_.number(), EPOLLOUT, *this).ok();
  if (!watched_) OnRefused(ENOMEM);
}

void Connector::OnReady(uint32_t) noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(socket_.number(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error == 0) return Succeed();
  OnRefused(error);
}

void Connector::OnTime() noexcept {
  if (std::exchange(retry_, false) && Clock::now() < end_) return TryUnix();
  if (lookup_ != nullptr) {
    return Fail(MakeStatusNoThrow(absl::StatusCode::kUnavailable,
                                  "the host's addresses could not be found in time"));
  }
  error_ = ETIMEDOUT;
  CloseSocket();
  if (Clock::now() < end_) return TryNext();
  FailWith(error_);
}

void Connector::OnRefused(int error) noexcept {
  error_ = error;
  CloseSocket();
  TryNext();
}

void Connector::CloseSocket() noexcept {
  if (std::exchange(watched_, false)) loop_.Remove(socket_.number(), *this);
  socket_ = OwnedDescriptor();
}

void Connector::Succeed() noexcept {
  if (std::exchange(watched_, false)) loop_.Remove(socket_.number(), *this);
  loop_.Cancel(timer_);
  list_ = nullptr;
  running_ = false;
  listener_.OnConnected(std::move(socket_));
}

void Connector::Fail(absl::Status status) noexcept {
  if (lookup_ != nullptr) std::exchange(lookup_, nullptr)->Abandon();
  CloseSocket();
  loop_.Cancel(timer_);
  list_ = nullptr;
  running_ = false;
  listener_.OnConnected(std::move(status));
}

void Connector::FailWith(int error) noexcept try {
  if (address_.is_unix) {
    // As of a host without an address.
    const absl::string_view why = NeverASocket(address_.path, error);
    if (!why.empty()) return Fail(absl::NotFoundError(why));
  }
  Fail(absl::UnavailableError(ErrnoText(error)));
} catch (const std::bad_alloc&) {
  Fail(OutOfMemory());
}

}  // namespace cbt::rpc::http2
