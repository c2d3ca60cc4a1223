#include "rpc/transport/connection_watch.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;
using Host = std::array<uint8_t, 16>;

// An IPv4-mapped IPv6 address.
Host Mapped(const in_addr& address) {
  Host host = {};
  host[10] = host[11] = 0xff;
  std::memcpy(&host[12], &address, sizeof address);
  return host;
}

std::optional<std::pair<Host, uint16_t>> HostAndPort(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    sockaddr_in in = {};
    std::memcpy(&in, address, sizeof in);
    return std::pair(Mapped(in.sin_addr), ntohs(in.sin_port));
  }
  if (address->sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in = {};
  std::memcpy(&in, address, sizeof in);
  Host host;
  std::memcpy(host.data(), &in.sin6_addr, host.size());
  return std::pair(host, ntohs(in.sin6_port));
}

// The hosts of a listener at `address`; empty if it accepts any.
std::vector<Host> HostsOf(const Address& address) {
  std::vector<Host> hosts;
  if (address.is_unix) return hosts;
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  if (getaddrinfo(address.host.c_str(), nullptr, &hints, &list) != 0) return hosts;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    const auto host = HostAndPort(info->ai_addr);
    if (!host.has_value()) continue;
    if (host->first == Host{} || host->first == Mapped({.s_addr = INADDR_ANY})) return {};
    hosts.push_back(host->first);
  }
  return hosts;
}

bool CanTakeMore(int fd) {
  pollfd poller = {.fd = fd, .events = POLLOUT, .revents = 0};
  return poll(&poller, 1, 0) < 0 || (poller.revents & POLLOUT) != 0;
}

// TCP counts acknowledged bytes. A Unix socket reports only the queued bytes, which shrink as the
// peer reads and do not grow until much of them is gone.
uint64_t Taken(int fd, bool is_unix) {
  if (is_unix) {
    int waiting = 0;
    return ioctl(fd, SIOCOUTQ, &waiting) == 0 ? static_cast<uint64_t>(waiting) : 0;
  }
  tcp_info info = {};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_bytes_acked;
}

ino_t InodeOf(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

}  // namespace

ConnectionSockets::ConnectionSockets(const Address& address)
    : address_(address), hosts_(HostsOf(address)) {}

bool ConnectionSockets::IsOurs(int fd) const {
  int listens = 1;
  socklen_t size = sizeof listens;
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens != 0) return false;
  sockaddr_storage name = {};
  size = sizeof name;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return false;
  if (address_.is_unix) {
    if (name.ss_family != AF_UNIX || size <= offsetof(sockaddr_un, sun_path)) return false;
    const auto* const local = reinterpret_cast<const sockaddr_un*>(&name);
    const size_t length = size - offsetof(sockaddr_un, sun_path);
    return std::string_view(local->sun_path, strnlen(local->sun_path, length)) == address_.path;
  }
  const auto local = HostAndPort(reinterpret_cast<const sockaddr*>(&name));
  if (!local.has_value() || local->second != address_.port) return false;
  return hosts_.empty() || std::find(hosts_.begin(), hosts_.end(), local->first) != hosts_.end();
}

template <typename Visit>
void ConnectionSockets::ForEach(const Visit& visit) const {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), &closedir);
  if (folder == nullptr) return;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
  while (const dirent* const entry = readdir(folder.get())) {
    char* end = nullptr;
    const long number = std::strtol(entry->d_name, &end, 10);
    if (end == entry->d_name || *end != '\0') continue;
    const int fd = static_cast<int>(number);
    if (const ino_t inode = InodeOf(fd); inode != 0 && IsOurs(fd)) visit(fd, inode);
  }
}

size_t ConnectionSockets::Look() {
  ++look_;
  const Clock::time_point now = Clock::now();
  ForEach([&](int fd, ino_t inode) {
    const bool blocked = !CanTakeMore(fd);
    const uint64_t taken = Taken(fd, address_.is_unix);
    Progress& progress = progress_[inode];
    if (!blocked || !progress.blocked || progress.taken != taken) progress.since = now;
    progress.blocked = blocked;
    progress.taken = taken;
    progress.look = look_;
  });
  std::erase_if(progress_, [this](const auto& entry) { return entry.second.look != look_; });
  return progress_.size();
}

size_t ConnectionSockets::Close(const std::function<bool(ino_t)>& which) {
  size_t closed = 0;
  ForEach([&](int fd, ino_t inode) {
    if (!which(inode)) return;
    // gRPC may close the descriptor meanwhile, and its number may be reused: check the socket again
    // through a duplicate before shutting it down.
    const int same = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (same < 0) return;
    if (InodeOf(same) == inode && shutdown(same, SHUT_RDWR) == 0) ++closed;
    close(same);
  });
  return closed;
}

size_t ConnectionSockets::CloseStuck(milliseconds time) {
  const Clock::time_point now = Clock::now();
  return Close([&](ino_t inode) {
    const auto found = progress_.find(inode);
    return found != progress_.end() && found->second.blocked && now - found->second.since >= time;
  });
}

size_t ConnectionSockets::CloseAll() {
  return Close([](ino_t) { return true; });
}

ConnectionWatch::ConnectionWatch(const Address& address, milliseconds stall, Owner owner)
    : sockets_(address), stall_(stall), owner_(std::move(owner)) {
  thread_ = std::thread([this] { Run(); });
}

ConnectionWatch::~ConnectionWatch() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void ConnectionWatch::CloseAllAfter(milliseconds time) {
  {
    const std::lock_guard lock(mutex_);
    close_all_at_ = Clock::now() + time;
  }
  changed_.notify_all();
}

void ConnectionWatch::Run() {
  constexpr milliseconds kShort{50};
  const milliseconds usual = std::clamp(stall_ / 8, kShort, milliseconds{1000});
  std::unique_lock lock(mutex_);
  while (!closing_) {
    changed_.wait_for(lock, close_all_at_.has_value() ? kShort : usual);
    const bool close_all = close_all_at_.has_value() && Clock::now() >= *close_all_at_;
    lock.unlock();
    try {
      Step(close_all);
    } catch (const std::bad_alloc&) {
      // Retried at the next look.
    }
    lock.lock();
  }
}

void ConnectionWatch::Step(bool close_all) {
  owner_.state(sockets_.Look());
  if (owner_.revoked() || close_all) {
    sockets_.CloseAll();
  } else if (owner_.overdue()) {
    if (const size_t closed = sockets_.CloseStuck(stall_ / 2); closed > 0) owner_.cut(closed);
  }
}

}  // namespace cbt::rpc
