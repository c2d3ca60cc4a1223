#include "net/acceptor.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "net/socket_file.h"

namespace cbt::net {
namespace {

// As long as the system permits: beyond it, connecting to a Unix socket fails at once.
constexpr int kBacklog = SOMAXCONN;
constexpr int kAcceptsPerTurn = 32;
constexpr std::chrono::milliseconds kBackOff{100};

// What the kernel holds of a Unix connection that its peer does not read; it takes twice as much
// for its own. With the usual 208 KiB in all, each message of 128 KiB waits for the peer to be
// woken: half of the speed. More than this is no faster.
constexpr int kUnixSendBytes = 256 * 1024;

absl::Status ListenError(const Address& address, int error) {
  const std::string text = absl::StrCat("listen: ", address.ToString(), ": ", ErrnoText(error));
  return error == EADDRINUSE ? absl::FailedPreconditionError(text) : absl::UnavailableError(text);
}

// Whether this descriptor is one of the process's last. Those are reserved for calls: a call that
// cannot open its files fails, whereas a refused connection retries.
bool IsScarce(int descriptor) noexcept {
  constexpr rlim_t kMaxKept = 64;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const rlim_t kept = std::min(limit.rlim_cur / 4, kMaxKept);
  // The system assigns the lowest free number.
  return static_cast<rlim_t>(descriptor) >= limit.rlim_cur - kept;
}

OwnedDescriptor Spare() noexcept {
  return OwnedDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

absl::StatusOr<OwnedDescriptor> ListenUnix(const Address& address) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  address.path.copy(name.sun_path, sizeof name.sun_path - 1);
  OwnedDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  // The mode before the name, so that no other user can connect in between.
  if (!fd.has_value() || fchmod(fd.number(), kSocketMode) != 0 ||
      bind(fd.number(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      listen(fd.number(), kBacklog) != 0) {
    return ListenError(address, errno);
  }
  return fd;
}

// The port that a socket is bound to.
uint16_t PortOf(int fd) noexcept {
  sockaddr_storage name = {};
  socklen_t size = sizeof name;
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size);
  if (name.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&name)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&name)->sin_port);
}

absl::StatusOr<OwnedDescriptor> ListenTcp(const Address& address, const addrinfo& info) {
  OwnedDescriptor fd(
      socket(info.ai_family, info.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, info.ai_protocol));
  if (!fd.has_value()) return ListenError(address, errno);
  const int on = 1;
  // Not SO_REUSEPORT: two servers would share the clients.
  setsockopt(fd.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd.number(), info.ai_addr, info.ai_addrlen) != 0 || listen(fd.number(), kBacklog) != 0) {
    return ListenError(address, errno);
  }
  return fd;
}

}  // namespace

absl::StatusOr<std::vector<OwnedDescriptor>> ListenAt(Address& address) {
  std::vector<OwnedDescriptor> sockets;
  if (address.is_unix) {
    auto made = ListenUnix(address);
    if (!made.ok()) return made.status();
    sockets.push_back(*std::move(made));
    return sockets;
  }
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  absl::Status failure = absl::UnavailableError("no address");
  addrinfo* list = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), nullptr, &hints, &list); error != 0) {
    return absl::UnavailableError(
        absl::StrCat("listen: ", address.ToString(), ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  for (addrinfo* info = list; info != nullptr; info = info->ai_next) {
    if (info->ai_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(info->ai_addr)->sin6_port = htons(address.port);
    } else if (info->ai_family == AF_INET) {
      reinterpret_cast<sockaddr_in*>(info->ai_addr)->sin_port = htons(address.port);
    }
    auto made = ListenTcp(address, *info);
    if (!made.ok()) {
      failure = made.status();
      // A port in use on one address is an error even if it is free on another.
      if (failure.code() == absl::StatusCode::kFailedPrecondition) return failure;
      continue;
    }
    if (address.port == 0) address.port = PortOf(made->number());
    sockets.push_back(*std::move(made));
  }
  if (sockets.empty()) return failure;
  return sockets;
}

absl::StatusOr<std::unique_ptr<Acceptor>> Acceptor::Create(EventLoop& loop, OwnedDescriptor socket,
                                                           Take take) {
  const int fd = socket.number();
  std::unique_ptr<Acceptor> made(new Acceptor(loop, std::move(socket), std::move(take)));
  if (absl::Status status = loop.Add(fd, EPOLLIN, *made); !status.ok()) return status;
  return made;
}

Acceptor::Acceptor(EventLoop& loop, OwnedDescriptor socket, Take take)
    : loop_(loop), socket_(std::move(socket)), take_(std::move(take)), spare_(Spare()) {}

Acceptor::~Acceptor() {
  loop_.Cancel(timer_);
  loop_.Remove(socket_.number(), *this);
}

void Acceptor::OnReady(uint32_t) noexcept {
  for (int i = 0; i < kAcceptsPerTurn; ++i) {
    OwnedDescriptor connection(
        accept4(socket_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!connection.has_value()) {
      if (errno == EAGAIN) return;
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        return OnNoDescriptors();
      }
      // The connection was closed before it was accepted.
      continue;
    }
    if (IsScarce(connection.number())) {
      // Clients that reconnect at once must not keep the loop busy.
      connection.Close();
      return OnNoDescriptors();
    }
    const int on = 1;
    if (setsockopt(connection.number(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
      // A Unix socket. A failure to make its buffer larger only makes it slower.
      setsockopt(connection.number(), SOL_SOCKET, SO_SNDBUF, &kUnixSendBytes,
                 sizeof kUnixSendBytes);
    }
    take_(std::move(connection));
  }
}

// The spare descriptor lets waiting clients be refused instead of waiting forever.
void Acceptor::OnNoDescriptors() noexcept {
  if (spare_.has_value()) {
    spare_.Close();
    for (int i = 0; i < kAcceptsPerTurn; ++i) {
      const OwnedDescriptor refused(accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!refused.has_value()) break;
    }
    spare_ = Spare();
  }
  loop_.Change(socket_.number(), 0, *this);
  loop_.Schedule(timer_, loop_.now() + kBackOff);
}

void Acceptor::Resume() noexcept {
  if (!spare_.has_value()) spare_ = Spare();
  loop_.Change(socket_.number(), EPOLLIN, *this);
}

}  // namespace cbt::net
