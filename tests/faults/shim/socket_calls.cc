// Calls on sockets, and calls that wait for them; see calls.h.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/faults/shim/calls.h"

namespace cbt::test {
namespace {

constexpr unsigned kMakes = kOnSocket | kMakesDescriptor;
constexpr unsigned kMoves = kOnSocket | kMovesBytes | kInterruptible | kOnConnection;
constexpr unsigned kWaits = kOnSocket | kInterruptible;

constexpr Call kSocketCall{"socket", kMakes}, kAccept{"accept", kMakes | kInterruptible};
constexpr Call kEpollCreate{"epoll_create", kMakes}, kEventFd{"eventfd", kMakes};
constexpr Call kConnect{"connect", kOnSocket | kOnConnection | kInterruptible};
constexpr Call kBind{"bind", kOnSocket | kTakesMemory};
constexpr Call kListen{"listen", kOnSocket | kTakesMemory};
constexpr Call kOption{"setsockopt", kOnSocket | kTakesMemory};
constexpr Call kAskOption{"getsockopt", kOnSocket | kTakesMemory};
constexpr Call kName{"getsockname", kOnSocket | kTakesMemory};
constexpr Call kReceive{"recv", kMoves}, kSend{"send", kMoves};
constexpr Call kReceiveMessage{"recvmsg", kMoves};
constexpr Call kSendMessage{"sendmsg", kMoves};
constexpr Call kPoll{"poll", kWaits | kTakesMemory}, kEpoll{"epoll_wait", kWaits};
constexpr Call kEpollControl{"epoll_ctl", kOnSocket | kTakesMemory};

bool IsSocket(int descriptor) { return KindOf(descriptor) == DescriptorKind::kSocket; }

template <typename Run>
int OnSocket(const Call& call, int descriptor, Run run) {
  return Make(IsSocket(descriptor), {.call = call, .descriptor = descriptor}, -1,
              [&](size_t) { return run(); });
}

// Calls that make a descriptor, or wait for several.
template <typename Run>
int Always(const Call& call, Run run) {
  return Make(WatchSockets(), {.call = call}, -1, [&](size_t) { return run(); });
}

int Socket(int made) {
  if (WatchSockets()) SetKind(made, DescriptorKind::kSocket);
  return made;
}

}  // namespace
}  // namespace cbt::test

using namespace cbt::test;

extern "C" {

int socket(int domain, int type, int protocol) noexcept {
  return Always(kSocketCall, [&] { return Socket(CBT_REAL(socket)(domain, type, protocol)); });
}

int accept(int descriptor, sockaddr* address, socklen_t* length) {
  return OnSocket(kAccept, descriptor,
                  [&] { return Socket(CBT_REAL(accept)(descriptor, address, length)); });
}

int accept4(int descriptor, sockaddr* address, socklen_t* length, int flags) {
  return OnSocket(kAccept, descriptor,
                  [&] { return Socket(CBT_REAL(accept4)(descriptor, address, length, flags)); });
}

int epoll_create1(int flags) noexcept {
  return Always(kEpollCreate, [&] { return CBT_REAL(epoll_create1)(flags); });
}

int eventfd(unsigned count, int flags) noexcept {
  return Always(kEventFd, [&] { return CBT_REAL(eventfd)(count, flags); });
}

int connect(int descriptor, const sockaddr* address, socklen_t length) {
  return OnSocket(kConnect, descriptor,
                  [&] { return CBT_REAL(connect)(descriptor, address, length); });
}

int bind(int descriptor, const sockaddr* address, socklen_t length) noexcept {
  return OnSocket(kBind, descriptor, [&] { return CBT_REAL(bind)(descriptor, address, length); });
}

int listen(int descriptor, int backlog) noexcept {
  return OnSocket(kListen, descriptor, [&] { return CBT_REAL(listen)(descriptor, backlog); });
}

int setsockopt(int descriptor, int level, int name, const void* value, socklen_t size) noexcept {
  return OnSocket(kOption, descriptor,
                  [&] { return CBT_REAL(setsockopt)(descriptor, level, name, value, size); });
}

int getsockopt(int descriptor, int level, int name, void* value, socklen_t* size) noexcept {
  return OnSocket(kAskOption, descriptor,
                  [&] { return CBT_REAL(getsockopt)(descriptor, level, name, value, size); });
}

int getsockname(int descriptor, sockaddr* address, socklen_t* length) noexcept {
  return OnSocket(kName, descriptor,
                  [&] { return CBT_REAL(getsockname)(descriptor, address, length); });
}

ssize_t recv(int descriptor, void* bytes, size_t size, int flags) {
  return Make<ssize_t>(IsSocket(descriptor),
                       {.call = kReceive, .descriptor = descriptor, .size = size}, -1,
                       [&](size_t most) { return CBT_REAL(recv)(descriptor, bytes, most, flags); });
}

ssize_t __recv_chk(int descriptor, void* bytes, size_t size, size_t, int flags) {
  return recv(descriptor, bytes, size, flags);
}

ssize_t send(int descriptor, const void* bytes, size_t size, int flags) {
  return Make<ssize_t>(IsSocket(descriptor),
                       {.call = kSend, .descriptor = descriptor, .bytes = bytes, .size = size}, -1,
                       [&](size_t most) { return CBT_REAL(send)(descriptor, bytes, most, flags); });
}

ssize_t recvmsg(int descriptor, msghdr* message, int flags) {
  const size_t size = message->msg_iovlen == 0 ? 0 : message->msg_iov[0].iov_len;
  return Make<ssize_t>(IsSocket(descriptor),
                       {.call = kReceiveMessage, .descriptor = descriptor, .size = size}, -1,
                       [&](size_t most) {
                         if (most == size) return CBT_REAL(recvmsg)(descriptor, message, flags);
                         // Short: half of the first piece and none of the others.
                         iovec piece{message->msg_iov[0].iov_base, most};
                         msghdr less = *message;
                         less.msg_iov = &piece;
                         less.msg_iovlen = 1;
                         const ssize_t received = CBT_REAL(recvmsg)(descriptor, &less, flags);
                         message->msg_flags = less.msg_flags;
                         message->msg_controllen = less.msg_controllen;
                         return received;
                       });
}

ssize_t sendmsg(int descriptor, const msghdr* message, int flags) {
  const size_t size = message->msg_iovlen == 0 ? 0 : message->msg_iov[0].iov_len;
  return Make<ssize_t>(IsSocket(descriptor),
                       {.call = kSendMessage, .descriptor = descriptor, .size = size}, -1,
                       [&](size_t most) {
                         if (most == size) return CBT_REAL(sendmsg)(descriptor, message, flags);
                         iovec piece{message->msg_iov[0].iov_base, most};
                         msghdr less = *message;
                         less.msg_iov = &piece;
                         less.msg_iovlen = 1;
                         return CBT_REAL(sendmsg)(descriptor, &less, flags);
                       });
}

int poll(pollfd* waiting, nfds_t count, int timeout) {
  return Always(kPoll, [&] { return CBT_REAL(poll)(waiting, count, timeout); });
}

int __poll_chk(pollfd* waiting, nfds_t count, int timeout, size_t) {
  return poll(waiting, count, timeout);
}

int epoll_wait(int descriptor, epoll_event* events, int most, int timeout) {
  return Always(kEpoll, [&] { return CBT_REAL(epoll_wait)(descriptor, events, most, timeout); });
}

int epoll_ctl(int descriptor, int operation, int on, epoll_event* event) noexcept {
  return OnSocket(kEpollControl, on,
                  [&] { return CBT_REAL(epoll_ctl)(descriptor, operation, on, event); });
}

}  // extern "C"
