#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "programs/volume/control.h"
#include "programs/volume/control_lines.h"

namespace cbt::volume {

class ControlClient::Core {
 public:
  Core(OwnedDescriptor socket, double timeout_seconds)
      : socket_(std::move(socket)),
        channel_(socket_.number(), kMaxAnswerBytes),
        timeout_(std::chrono::duration_cast<LineChannel::Clock::duration>(
            std::chrono::duration<double>(timeout_seconds))) {}

  // The answer to a request that has succeeded.
  absl::StatusOr<ControlAnswer> Ask(const ControlRequest& request) {
    if (!broken_.ok()) return broken_;
    const auto deadline = LineChannel::Clock::now() + timeout_;
    broken_ = channel_.Write(Encode(request), deadline);
    // A server that refuses the connection says why before it closes it.
    const bool may_answer = broken_.ok() || absl::IsUnavailable(broken_);
    const absl::StatusOr<std::string> line =
        may_answer ? channel_.Read(deadline) : absl::StatusOr<std::string>(broken_);
    if (!line.ok()) {
      broken_ = line.status();
      if (absl::IsOutOfRange(broken_)) broken_ = absl::InternalError(broken_.message());
      return broken_;
    }
    absl::StatusOr<ControlAnswer> answer = DecodeAnswer(*line);
    if (!answer.ok()) {
      broken_ = absl::InternalError(answer.status().message());
      return broken_;
    }
    if (!answer->status.ok()) return answer->status;
    if (!broken_.ok()) return broken_;
    return answer;
  }

  // In as many pages as it takes. `entries` gives those of a page, or null.
  template <typename Entry, typename Entries>
  absl::StatusOr<std::vector<Entry>> AskForAll(ControlRequest::Kind kind, Entries entries) {
    // A page is refused if the entry that it begins after has gone meanwhile.
    constexpr int kTries = 10;
    absl::Status status;
    for (int i = 0; i < kTries; ++i) {
      std::vector<Entry> all;
      for (;;) {
        absl::StatusOr<ControlAnswer> page =
            Ask({.kind = kind, .after = all.empty() ? std::string() : all.back().id});
        status = page.status();
        if (!status.ok()) break;
        const std::vector<Entry>* const more = entries(*page);
        if (more == nullptr) return absl::InternalError("not the answer to the request");
        all.insert(all.end(), more->begin(), more->end());
        if (!page->more) return all;
        if (more->empty()) return absl::InternalError("a page without entries");
      }
      if (!absl::IsAborted(status)) return status;
    }
    return status;
  }

  absl::StatusOr<SnapshotInfo> AskForOne(const ControlRequest& request) {
    absl::StatusOr<ControlAnswer> answer = Ask(request);
    if (!answer.ok()) return answer.status();
    if (answer->snapshots.size() != 1) return absl::InternalError("not the answer to the request");
    return answer->snapshots.front();
  }

 private:
  const OwnedDescriptor socket_;
  LineChannel channel_;
  const LineChannel::Clock::duration timeout_;
  absl::Status broken_;  // an answer may come late, and must not be taken for the next one
};

ControlClient::ControlClient(std::unique_ptr<Core> core) : core_(std::move(core)) {}
ControlClient::~ControlClient() = default;

absl::StatusOr<std::unique_ptr<ControlClient>> ControlClient::Connect(const std::string& path,
                                                                      double timeout_seconds) {
  const absl::StatusOr<sockaddr_un> address = SocketAddress(path);
  if (!address.ok()) return address.status();
  OwnedDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.has_value()) return FileError(path, errno);
  // The kernel accepts for the server, so this waits only if its queue is full.
  timeval limit = {.tv_sec = static_cast<time_t>(timeout_seconds) + 1, .tv_usec = 0};
  ::setsockopt(socket.number(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (Retry([&] {
        return ::connect(socket.number(), reinterpret_cast<const sockaddr*>(&*address),
                         sizeof(*address));
      }) != 0) {
    return FileError(path, errno);
  }
  return std::unique_ptr<ControlClient>(
      new ControlClient(std::make_unique<Core>(std::move(socket), timeout_seconds)));
}

absl::StatusOr<SnapshotInfo> ControlClient::TakeSnapshot(const std::string& id) {
  return core_->AskForOne({.kind = ControlRequest::Kind::kSnapshot, .id = id});
}

absl::Status ControlClient::DeleteSnapshot(const std::string& id,
                                           const std::optional<MarkLimits>& marks) {
  return core_->Ask({.kind = ControlRequest::Kind::kDelete, .id = id, .marks = marks}).status();
}

absl::Status ControlClient::HoldWrites(unsigned seconds) {
  return core_->Ask({.kind = ControlRequest::Kind::kHold, .seconds = seconds}).status();
}

absl::StatusOr<std::vector<SnapshotInfo>> ControlClient::ListSnapshots() {
  return core_->AskForAll<SnapshotInfo>(ControlRequest::Kind::kList,
                                        [](ControlAnswer& page) { return &page.snapshots; });
}

absl::StatusOr<std::vector<SnapshotMark>> ControlClient::ListMarks() {
  return core_->AskForAll<SnapshotMark>(ControlRequest::Kind::kMarks, [](ControlAnswer& page) {
    return page.marks.has_value() ? &*page.marks : nullptr;
  });
}

absl::StatusOr<SnapshotInfo> ControlClient::FindSnapshot(std::string_view id) {
  return core_->AskForOne({.kind = ControlRequest::Kind::kFind, .id = std::string(id)});
}

absl::Status ControlClient::Resize(uint64_t capacity) {
  return core_->Ask({.kind = ControlRequest::Kind::kResize, .capacity = capacity}).status();
}

absl::Status ControlClient::Revert(const std::string& id) {
  return core_->Ask({.kind = ControlRequest::Kind::kRevert, .id = id}).status();
}

absl::StatusOr<VolumeStatus> ControlClient::Status() {
  absl::StatusOr<ControlAnswer> answer = core_->Ask({.kind = ControlRequest::Kind::kStatus});
  if (!answer.ok()) return answer.status();
  if (!answer->volume.has_value()) return absl::InternalError("not the answer to the request");
  return *std::move(answer->volume);
}

}  // namespace cbt::volume
