#include "programs/driver/host/nbd_connection.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::milliseconds kLongestPause{500};
// A server that is ending answers so, for no longer than this.
constexpr std::chrono::seconds kMaxEnding{60};
// Requests of the protocol have 32 bits for a length; this is a multiple of every block size.
constexpr uint64_t kMaxZero = uint64_t{1} << 30;

}  // namespace

absl::StatusOr<NbdHandle> ConnectNbd(const std::string& path) {
  NbdHandle handle(::nbd_create());
  // The kernel's client, which may get this connection, knows no structured replies.
  if (handle == nullptr || ::nbd_set_request_structured_replies(handle.get(), false) != 0 ||
      ::nbd_connect_unix(handle.get(), path.c_str()) != 0) {
    const char* const why = ::nbd_get_error();
    return absl::UnavailableError(absl::StrCat(path, ": ", why == nullptr ? "no memory" : why));
  }
  return handle;
}

bool NbdConnection::Connect() {
  auto pause = kFirstPause;
  while (handle_ == nullptr) {
    if (stop_.IsSet()) return false;
    if (absl::StatusOr<NbdHandle> made = ConnectNbd(path_); made.ok()) {
      handle_ = *std::move(made);
    } else if (stop_.WaitFor(pause)) {
      return false;
    }
    pause = std::min(2 * pause, kLongestPause);
  }
  return true;
}

bool NbdConnection::Ready() {
  if (handle_ != nullptr) {
    // No request is open: what can be read is the end.
    pollfd ask = {.fd = ::nbd_aio_get_fd(handle_.get()), .events = POLLIN, .revents = 0};
    if (ask.fd < 0 || Retry([&] { return ::poll(&ask, 1, 0); }) != 0) handle_.reset();
  }
  return Connect();
}

template <typename Request>
int NbdConnection::Do(uint64_t end, Request request) {
  const auto latest = std::chrono::steady_clock::now() + kMaxEnding;
  for (;;) {
    if (!Connect()) return kAbandoned;
    if (const int64_t size = ::nbd_get_size(handle_.get());
        size >= 0 && static_cast<uint64_t>(size) < end) {
      handle_.reset();
      if (!Connect()) return kAbandoned;
    }
    if (request(handle_.get()) == 0) return 0;
    const int error = ::nbd_get_errno();
    const bool lost = ::nbd_aio_is_dead(handle_.get()) != 0 ||
                      ::nbd_aio_is_closed(handle_.get()) != 0 || error == ENOTCONN;
    const bool ending = error == ESHUTDOWN && std::chrono::steady_clock::now() < latest;
    if (!lost && !ending) return error > 0 ? error : EIO;
    handle_.reset();
    if (stop_.WaitFor(kFirstPause)) return kAbandoned;
  }
}

int NbdConnection::Read(uint64_t offset, std::span<uint8_t> bytes) {
  return Do(offset + bytes.size(), [&](nbd_handle* handle) {
    return ::nbd_pread(handle, bytes.data(), bytes.size(), offset, 0);
  });
}

int NbdConnection::Write(uint64_t offset, std::span<const uint8_t> bytes) {
  return Do(offset + bytes.size(), [&](nbd_handle* handle) {
    return ::nbd_pwrite(handle, bytes.data(), bytes.size(), offset, 0);
  });
}

int NbdConnection::Flush() {
  return Do(0, [](nbd_handle* handle) { return ::nbd_flush(handle, 0); });
}

int NbdConnection::Zero(uint64_t offset, uint64_t length, bool allocate) {
  const uint32_t flags = allocate ? LIBNBD_CMD_FLAG_NO_HOLE : 0;
  while (length > 0) {
    const uint64_t piece = std::min(length, kMaxZero);
    const int error = Do(offset + piece, [&](nbd_handle* handle) {
      return ::nbd_zero(handle, piece, offset, flags);
    });
    if (error != 0) return error;
    offset += piece;
    length -= piece;
  }
  return 0;
}

}  // namespace cbt::driver
