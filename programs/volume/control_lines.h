// The lines of the control protocol, docs/reference/volume-control.md: reading, writing, waiting.
#ifndef CBT_PROGRAMS_VOLUME_CONTROL_LINES_H_
#define CBT_PROGRAMS_VOLUME_CONTROL_LINES_H_

#include <sys/un.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/volume/snapshot_info.h"
#include "programs/volume/tracked_volume.h"

namespace cbt::volume {

inline constexpr size_t kMaxRequestBytes = size_t{64} << 10;
inline constexpr size_t kMaxAnswerBytes = size_t{4} << 20;
inline constexpr uint64_t kMaxPage = 1000;  // snapshots or marks in an answer

struct ControlRequest {
  enum class Kind { kSnapshot, kDelete, kList, kFind, kResize, kRevert, kStatus, kMarks, kHold };
  Kind kind = Kind::kStatus;
  std::string id = {};                   // kSnapshot, kDelete, kFind, kRevert
  std::optional<MarkLimits> marks = {};  // kDelete
  std::string after = {};  // kList, kMarks: the last id of the page before; empty: from the oldest
  uint64_t capacity = 0;   // kResize
  uint64_t seconds = 0;    // kHold
};

struct ControlAnswer {
  absl::Status status = {};  // of the request
  std::vector<SnapshotInfo> snapshots = {};
  std::optional<std::vector<SnapshotMark>> marks = {};  // kMarks
  bool more = false;                                    // kList, kMarks: another page follows
  std::optional<VolumeStatus> volume = {};
};

// Without the newline, which never occurs in it.
std::string Encode(const ControlRequest& request);
std::string Encode(const ControlAnswer& answer);

// Errors: INVALID_ARGUMENT.
absl::StatusOr<ControlRequest> DecodeRequest(std::string_view line);
absl::StatusOr<ControlAnswer> DecodeAnswer(std::string_view line);

// The address of a socket's path; INVALID_ARGUMENT if it does not fit.
absl::StatusOr<sockaddr_un> SocketAddress(const std::string& path);

// Lines over a socket, which it does not own.
class LineChannel {
 public:
  using Clock = std::chrono::steady_clock;

  LineChannel(int socket, size_t most) : socket_(socket), most_(most) {}

  // The next line without its newline.
  // Errors: UNAVAILABLE if the other side has closed the connection or it broke, DEADLINE_EXCEEDED,
  //         OUT_OF_RANGE for a line of more than `most` bytes.
  absl::StatusOr<std::string> Read(Clock::time_point deadline);
  // Writes `line` and a newline.
  absl::Status Write(std::string_view line, Clock::time_point deadline);

 private:
  absl::Status Wait(short events, Clock::time_point deadline) const;

  const int socket_;
  const size_t most_;
  std::string read_;
};

}  // namespace cbt::volume

#endif  // CBT_PROGRAMS_VOLUME_CONTROL_LINES_H_
