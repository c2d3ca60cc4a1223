#include "programs/volume/control_lines.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/json_builder.h"

// RapidJSON's assertions must not end the program; every access is checked first.
#define RAPIDJSON_ASSERT(condition) ((void)0)
#include "rapidjson/document.h"

namespace cbt::volume {
namespace {

using Kind = ControlRequest::Kind;

// Its nanoseconds, and those of a moment before it, fit into 64 bits.
constexpr uint64_t kMaxMarkSeconds = uint64_t{100} * 365 * 24 * 3600;

struct KindName {
  Kind kind;
  std::string_view name;
};
constexpr std::array<KindName, 9> kKinds = {{{Kind::kSnapshot, "snapshot"},
                                             {Kind::kDelete, "delete"},
                                             {Kind::kList, "list"},
                                             {Kind::kFind, "find"},
                                             {Kind::kResize, "resize"},
                                             {Kind::kRevert, "revert"},
                                             {Kind::kStatus, "status"},
                                             {Kind::kMarks, "marks"},
                                             {Kind::kHold, "hold"}}};

// Reads the members of an object, and remembers whether one was missing or of another type.
class Members {
 public:
  explicit Members(const rapidjson::Value& object) : object_(object) {}

  bool sound() const noexcept { return sound_; }
  bool Has(const char* name) const { return object_.FindMember(name) != object_.MemberEnd(); }

  std::string Text(const char* name) {
    const rapidjson::Value* const value = Find(name);
    if (value == nullptr || !value->IsString()) return Wrong(std::string());
    return {value->GetString(), value->GetStringLength()};
  }
  uint64_t Number(const char* name) {
    const rapidjson::Value* const value = Find(name);
    if (value == nullptr || !value->IsUint64()) return Wrong(uint64_t{0});
    return value->GetUint64();
  }
  int64_t Signed(const char* name) {
    const rapidjson::Value* const value = Find(name);
    if (value == nullptr || !value->IsInt64()) return Wrong(int64_t{0});
    return value->GetInt64();
  }
  bool Bool(const char* name) {
    const rapidjson::Value* const value = Find(name);
    if (value == nullptr || !value->IsBool()) return Wrong(false);
    return value->GetBool();
  }

 private:
  const rapidjson::Value* Find(const char* name) const {
    const auto found = object_.FindMember(name);
    return found == object_.MemberEnd() ? nullptr : &found->value;
  }
  template <typename T>
  T Wrong(T nothing) {
    sound_ = false;
    return nothing;
  }

  const rapidjson::Value& object_;
  bool sound_ = true;
};

// False for anything but an object.
bool Parse(std::string_view line, rapidjson::Document& document) {
  // Iterative: nesting must not overflow the stack.
  document.Parse<rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag>(
      line.data(), line.size());
  return !document.HasParseError() && document.IsObject();
}

void Encode(const SnapshotInfo& info, JsonBuilder& json) {
  json.BeginObject().Field("id", info.id).Field("created_ns", info.created_ns);
  json.Field("size", info.size).Field("ready", info.ready).EndObject();
}

void Encode(const SnapshotMark& mark, JsonBuilder& json) {
  json.BeginObject().Field("id", mark.id);
  if (mark.created_ns.has_value()) json.Field("created_ns", *mark.created_ns);
  json.Field("size", mark.size).EndObject();
}

void Encode(const VolumeStatus& volume, JsonBuilder& json) {
  json.BeginObject().Field("name", volume.name).Field("capacity", volume.capacity);
  json.Field("granularity", volume.granularity).Field("snapshots", volume.snapshots);
  json.Field("copying", volume.copying).Field("marks", volume.marks);
  json.Field("changed_bytes", volume.changed_bytes);
  json.Field("exact", volume.exact).Field("clones", volume.clones);
  json.Field("longest_hold_ns", volume.longest_hold_ns);
  json.Field("last_error", volume.last_error).EndObject();
}

bool Decode(const rapidjson::Value& value, SnapshotInfo& info) {
  if (!value.IsObject()) return false;
  Members members(value);
  info = {.id = members.Text("id"),
          .created_ns = members.Signed("created_ns"),
          .size = members.Number("size"),
          .ready = members.Bool("ready")};
  return members.sound();
}

bool Decode(const rapidjson::Value& value, SnapshotMark& mark) {
  if (!value.IsObject()) return false;
  Members members(value);
  mark = {.id = members.Text("id"), .created_ns = {}, .size = members.Number("size")};
  if (members.Has("created_ns")) mark.created_ns = members.Signed("created_ns");
  return members.sound();
}

bool Decode(const rapidjson::Value& value, VolumeStatus& volume) {
  if (!value.IsObject()) return false;
  Members members(value);
  volume = {.name = members.Text("name"),
            .capacity = members.Number("capacity"),
            .granularity = members.Number("granularity"),
            .snapshots = members.Number("snapshots"),
            .copying = members.Number("copying"),
            .changed_bytes = members.Number("changed_bytes"),
            .exact = members.Bool("exact"),
            .clones = members.Bool("clones"),
            .longest_hold_ns = members.Number("longest_hold_ns"),
            .last_error = members.Text("last_error")};
  // A server of an earlier version has none.
  if (members.Has("marks")) volume.marks = members.Number("marks");
  return members.sound();
}

std::optional<MarkLimits> Limits(const rapidjson::Value& value) {
  if (!value.IsObject()) return std::nullopt;
  Members members(value);
  const uint64_t count = members.Number("count");
  const uint64_t seconds = members.Number("seconds");
  const uint64_t bytes = members.Number("bytes");
  if (!members.sound()) return std::nullopt;
  // Longer ages have no end that matters.
  return MarkLimits{.count = count,
                    .age = std::chrono::seconds(std::min(seconds, kMaxMarkSeconds)),
                    .bytes = bytes};
}

absl::StatusCode CodeOf(std::string_view name) {
  for (int code = 1; code <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++code) {
    const auto each = static_cast<absl::StatusCode>(code);
    if (absl::StatusCodeToString(each) == name) return each;
  }
  return absl::StatusCode::kUnknown;
}

}  // namespace

std::string Encode(const ControlRequest& request) {
  const auto* const named = std::find_if(kKinds.begin(), kKinds.end(), [&](const KindName& each) {
    return each.kind == request.kind;
  });
  JsonBuilder line;
  line.BeginObject().Field("request", named->name);
  if (!request.id.empty()) line.Field("id", request.id);
  if (!request.after.empty()) line.Field("after", request.after);
  if (request.kind == Kind::kResize) line.Field("capacity", request.capacity);
  if (request.kind == Kind::kHold) line.Field("seconds", request.seconds);
  if (request.marks.has_value()) {
    line.Key("marks").BeginObject().Field("count", request.marks->count);
    line.Field("seconds", request.marks->age.count());
    line.Field("bytes", request.marks->bytes).EndObject();
  }
  return line.EndObject().Take();
}

std::string Encode(const ControlAnswer& answer) {
  JsonBuilder line;
  line.BeginObject().Field("ok", answer.status.ok());
  if (!answer.status.ok()) {
    line.Field("code", absl::StatusCodeToString(answer.status.code()));
    line.Field("message", std::string(answer.status.message()));
    return line.EndObject().Take();
  }
  line.Key("snapshots").BeginArray();
  for (const SnapshotInfo& info : answer.snapshots) Encode(info, line);
  line.EndArray();
  if (answer.marks.has_value()) {
    line.Key("marks").BeginArray();
    for (const SnapshotMark& mark : *answer.marks) Encode(mark, line);
    line.EndArray();
  }
  line.Field("more", answer.more);
  if (answer.volume.has_value()) Encode(*answer.volume, line.Key("volume"));
  return line.EndObject().Take();
}

absl::StatusOr<ControlRequest> DecodeRequest(std::string_view line) {
  rapidjson::Document document;
  if (!Parse(line, document)) return absl::InvalidArgumentError("expected a JSON object");
  Members members(document);
  const std::string name = members.Text("request");
  const auto* const named = std::find_if(kKinds.begin(), kKinds.end(),
                                         [&](const KindName& each) { return each.name == name; });
  if (named == kKinds.end()) {
    return absl::InvalidArgumentError(
        "expected a \"request\" of snapshot, delete, list, find, resize, revert, status, marks, "
        "hold");
  }
  ControlRequest request{.kind = named->kind};
  if (request.kind == Kind::kSnapshot || request.kind == Kind::kDelete ||
      request.kind == Kind::kFind || request.kind == Kind::kRevert) {
    request.id = members.Text("id");
  }
  if ((request.kind == Kind::kList || request.kind == Kind::kMarks) && members.Has("after")) {
    request.after = members.Text("after");
  }
  if (request.kind == Kind::kDelete && members.Has("marks")) {
    request.marks = Limits(document["marks"]);
    if (!request.marks.has_value()) {
      return absl::InvalidArgumentError(
          "\"marks\" of \"delete\" needs numbers \"count\", \"seconds\" and \"bytes\"");
    }
  }
  if (request.kind == Kind::kResize) request.capacity = members.Number("capacity");
  if (request.kind == Kind::kHold) request.seconds = members.Number("seconds");
  if (!members.sound()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\" needs ",
                     request.kind == Kind::kResize ? "a number \"capacity\""
                     : request.kind == Kind::kHold ? "a number \"seconds\""
                                                   : "a string \"id\" or \"after\""));
  }
  return request;
}

absl::StatusOr<ControlAnswer> DecodeAnswer(std::string_view line) {
  const absl::Status unknown = absl::InvalidArgumentError("unknown answer");
  rapidjson::Document document;
  if (!Parse(line, document)) return unknown;
  Members members(document);
  ControlAnswer answer;
  if (!members.Bool("ok")) {
    const std::string code = members.Text("code");
    answer.status = absl::Status(CodeOf(code), members.Text("message"));
    if (!members.sound()) return unknown;
    return answer;
  }
  answer.more = members.Bool("more");
  const rapidjson::Document& object = document;
  const auto list = object.FindMember("snapshots");
  if (!members.sound() || list == object.MemberEnd() || !list->value.IsArray()) return unknown;
  for (const rapidjson::Value& value : list->value.GetArray()) {
    answer.snapshots.emplace_back();
    if (!Decode(value, answer.snapshots.back())) return unknown;
  }
  const auto marks = object.FindMember("marks");
  if (marks != object.MemberEnd()) {
    if (!marks->value.IsArray()) return unknown;
    answer.marks.emplace();
    for (const rapidjson::Value& value : marks->value.GetArray()) {
      answer.marks->emplace_back();
      if (!Decode(value, answer.marks->back())) return unknown;
    }
  }
  const auto volume = object.FindMember("volume");
  if (volume != object.MemberEnd()) {
    answer.volume.emplace();
    if (!Decode(volume->value, *answer.volume)) return unknown;
  }
  return answer;
}

absl::StatusOr<sockaddr_un> SocketAddress(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path) ||
      path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a socket's path has 1 to ", sizeof(address.sun_path) - 1, " bytes, not ", path.size()));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::Status LineChannel::Wait(short events, Clock::time_point deadline) const {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return absl::DeadlineExceededError("the other side takes too long");
    pollfd wait = {.fd = socket_, .events = events, .revents = 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::min<int64_t>(left, INT_MAX)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return FileError("the connection", errno);
  }
}

absl::StatusOr<std::string> LineChannel::Read(Clock::time_point deadline) {
  for (size_t searched = 0;;) {
    const size_t end = read_.find('\n', searched);
    if (end != std::string::npos && end <= most_) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    if (read_.size() > most_) {
      return absl::OutOfRangeError(absl::StrCat("a line of more than ", most_, " bytes"));
    }
    searched = read_.size();
    if (absl::Status status = Wait(POLLIN, deadline); !status.ok()) return status;
    std::array<char, 4096> bytes;
    const ssize_t got =
        Retry([&] { return ::recv(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT); });
    if (got < 0 && errno == EAGAIN) continue;
    if (got <= 0) {
      return absl::UnavailableError(got == 0 ? "the other side has closed the connection"
                                             : "the connection broke");
    }
    read_.append(bytes.data(), static_cast<size_t>(got));
  }
}

absl::Status LineChannel::Write(std::string_view line, Clock::time_point deadline) {
  std::string bytes(line);
  bytes += '\n';
  for (size_t done = 0; done < bytes.size();) {
    if (absl::Status status = Wait(POLLOUT, deadline); !status.ok()) return status;
    const ssize_t put = Retry([&] {
      return ::send(socket_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
    });
    if (put < 0 && errno == EAGAIN) continue;
    if (put < 0) return absl::UnavailableError("the connection broke");
    done += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

}  // namespace cbt::volume
