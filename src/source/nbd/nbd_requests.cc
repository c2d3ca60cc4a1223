// Requests for data: many in flight, all answered before a call returns.
#ifdef CBT_HAVE_LIBNBD

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "source/nbd/libnbd.h"
#include "source/nbd/nbd_connection.h"

namespace cbt {
namespace {

constexpr uint64_t kPieceBytes = kMiB;
// Zeros have no payload, but may be written where the file system has no holes.
constexpr uint64_t kZerosBytes = 32 * kMiB;
// A flush may write everything that a server has in memory.
constexpr std::chrono::minutes kFlushTime(10);

constexpr nbd_completion_callback kNothingToCall{nullptr, nullptr, nullptr};

}  // namespace

uint64_t NbdConnection::MaximumPiece() const {
  const int64_t most = Nbd().get_block_size(handle_, LIBNBD_SIZE_MAXIMUM);
  const uint64_t block = MinimumBlock();
  if (most <= 0 || static_cast<uint64_t>(most) >= kPieceBytes) return kPieceBytes;
  return std::max(AlignDown(static_cast<uint64_t>(most), block), block);
}

absl::Status NbdConnection::WaitFor(std::span<const int64_t> cookies, Deadline deadline,
                                    std::string_view doing) {
  for (const int64_t cookie : cookies) {
    for (;;) {
      const int completed = Nbd().aio_command_completed(handle_, static_cast<uint64_t>(cookie));
      if (completed == 1) break;
      if (completed < 0) return LibraryError(doing);
      if (absl::Status status = PollOnce(deadline, doing); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

template <typename Send>
absl::Status NbdConnection::InPieces(std::string_view doing, uint64_t offset, uint64_t length,
                                     uint64_t piece_bytes, Send send) {
  const std::string what = absl::StrCat(AbslView(doing), " at offset ", offset);
  std::vector<int64_t> cookies;
  absl::Status status;
  for (uint64_t done = 0; done < length && status.ok(); done += piece_bytes) {
    const int64_t cookie = send(offset + done, std::min(piece_bytes, length - done));
    if (cookie < 0) {
      status = LibraryError(what);
    } else {
      cookies.push_back(cookie);
    }
  }
  if (status.ok()) status = WaitFor(cookies, FromNow(), what);
  // Replies to the others may still come, into the caller's memory.
  if (!status.ok()) given_up_ = true;
  return status;
}

absl::Status NbdConnection::Read(uint64_t offset, std::span<uint8_t> out) {
  return InPieces("read", offset, out.size(), MaximumPiece(), [&](uint64_t at, uint64_t length) {
    return Nbd().aio_pread(handle_, out.data() + (at - offset), static_cast<size_t>(length), at,
                           kNothingToCall, 0);
  });
}

absl::Status NbdConnection::Write(uint64_t offset, std::span<const uint8_t> bytes) {
  return InPieces("write", offset, bytes.size(), MaximumPiece(), [&](uint64_t at, uint64_t length) {
    return Nbd().aio_pwrite(handle_, bytes.data() + (at - offset), static_cast<size_t>(length), at,
                            kNothingToCall, 0);
  });
}

absl::Status NbdConnection::WriteZeros(uint64_t offset, uint64_t length) {
  if (Nbd().can_zero(handle_) == 1) {
    return InPieces("write zeros", offset, length, kZerosBytes, [&](uint64_t at, uint64_t size) {
      return Nbd().aio_zero(handle_, size, at, kNothingToCall, 0);
    });
  }
  const std::vector<uint8_t> zeros(static_cast<size_t>(std::min(length, kPieceBytes)));
  for (uint64_t done = 0; done < length; done += zeros.size()) {
    const auto size = static_cast<size_t>(std::min<uint64_t>(length - done, zeros.size()));
    if (absl::Status status = Write(offset + done, {zeros.data(), size}); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status NbdConnection::Flush() {
  // A server that knows no flush can't be asked to make anything durable.
  if (Nbd().can_flush(handle_) != 1) return absl::OkStatus();
  const int64_t cookie = Nbd().aio_flush(handle_, kNothingToCall, 0);
  absl::Status status;
  if (cookie < 0) {
    status = LibraryError("flush");
  } else {
    const Deadline deadline = std::max(FromNow(), std::chrono::steady_clock::now() + kFlushTime);
    status = WaitFor({&cookie, 1}, deadline, "flush");
  }
  if (!status.ok()) given_up_ = true;
  return status;
}

bool NbdConnection::HasManyClients() const { return Nbd().can_multi_conn(handle_) == 1; }

bool NbdConnection::IsReadOnly() const { return Nbd().is_read_only(handle_) == 1; }

}  // namespace cbt

#endif  // CBT_HAVE_LIBNBD
