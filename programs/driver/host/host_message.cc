#include "programs/driver/host/host_message.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/json_builder.h"
#include "base/text.h"

// RapidJSON's assertions must not end the program; every access is checked first.
#define RAPIDJSON_ASSERT(condition) ((void)0)
#include "rapidjson/document.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::seconds kSendTime{10};

// False after `limit`; 0: none.
bool WaitForSocket(int socket, short events, std::chrono::milliseconds limit) {
  pollfd wait = {.fd = socket, .events = events, .revents = 0};
  const int time = limit.count() == 0 ? -1 : static_cast<int>(limit.count());
  return Retry([&] { return ::poll(&wait, 1, time); }) > 0;
}

std::string Encode(const HostMessage& message) {
  JsonBuilder json;
  json.BeginObject();
  for (const auto& [field, value] : message.fields) json.Field(field, value);
  return json.EndObject().Take();
}

bool Decode(std::string_view text, HostMessage& message) {
  rapidjson::Document document;
  document.Parse<rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag>(
      text.data(), text.size());
  if (document.HasParseError() || !document.IsObject()) return false;
  for (const auto& member : std::as_const(document).GetObject()) {
    if (!member.value.IsString()) continue;
    message.fields.insert_or_assign(
        std::string(member.name.GetString(), member.name.GetStringLength()),
        std::string(member.value.GetString(), member.value.GetStringLength()));
  }
  return true;
}

std::string Flag(bool value) { return value ? "1" : ""; }

}  // namespace

std::string_view HostMessage::Get(std::string_view field) const {
  const auto found = fields.find(field);
  return found == fields.end() ? std::string_view() : std::string_view(found->second);
}

HostMessage EncodeSession(std::string_view verb, std::string_view volume,
                          const FuseSession& session) {
  return {.fields = {{"do", std::string(verb)},
                     {"volume", std::string(volume)},
                     {"size", absl::StrCat(session.size)},
                     {"read_only", Flag(session.read_only)},
                     {"resends", Flag(session.resends)},
                     {"clean", Flag(session.clean)}},
          .descriptor = {}};
}

absl::StatusOr<FuseSession> DecodeSession(const HostMessage& message) {
  FuseSession session = {.size = 0,
                         .read_only = !message.Get("read_only").empty(),
                         .resends = !message.Get("resends").empty(),
                         .clean = !message.Get("clean").empty()};
  if (!absl::SimpleAtoi(AbslView(message.Get("size")), &session.size)) {
    return absl::InvalidArgumentError("a session without its size");
  }
  return session;
}

HostMessage EncodeStatus(const absl::Status& status) {
  return {.fields = {{"code", absl::StrCat(static_cast<int>(status.code()))},
                     {"message", std::string(status.message())}},
          .descriptor = {}};
}

absl::Status DecodeStatus(const HostMessage& message) {
  int code = 0;
  if (!absl::SimpleAtoi(AbslView(message.Get("code")), &code) || code < 0 ||
      code > static_cast<int>(absl::StatusCode::kUnauthenticated)) {
    return absl::InternalError("the volume host's answer has no status");
  }
  return {static_cast<absl::StatusCode>(code), AbslView(message.Get("message"))};
}

absl::Status SendMessage(int socket, const HostMessage& message) {
  std::string text = Encode(message);
  if (text.size() > HostMessage::kMaxBytes) {
    return absl::InternalError("a message for the volume host is too long");
  }
  iovec part = {.iov_base = text.data(), .iov_len = text.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  if (message.descriptor.has_value()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    const int number = message.descriptor.number();
    std::memcpy(CMSG_DATA(rights), &number, sizeof(number));
  }
  for (;;) {
    if (Retry([&] { return ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT); }) >= 0) {
      return absl::OkStatus();
    }
    if (errno != EAGAIN || !WaitForSocket(socket, POLLOUT, kSendTime)) {
      return absl::UnavailableError("the connection is lost: " + ErrnoText(errno));
    }
  }
}

absl::StatusOr<HostMessage> ReceiveMessage(int socket, std::chrono::milliseconds limit) {
  if (!WaitForSocket(socket, POLLIN, limit)) {
    return absl::DeadlineExceededError("no message came in time");
  }
  std::vector<char> text(HostMessage::kMaxBytes);
  iovec part = {.iov_base = text.data(), .iov_len = text.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  const ssize_t size = Retry([&] { return ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC); });
  if (size <= 0) {
    return absl::UnavailableError(size == 0 ? "the connection was closed"
                                            : "the connection is lost: " + ErrnoText(errno));
  }
  HostMessage message;
  for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    int number = -1;
    std::memcpy(&number, CMSG_DATA(each), sizeof(number));
    message.descriptor = OwnedDescriptor(number);
  }
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      !Decode({text.data(), static_cast<size_t>(size)}, message)) {
    return absl::InvalidArgumentError("no message of a driver or a volume host");
  }
  return message;
}

absl::StatusOr<OwnedDescriptor> ConnectHost(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(path + ": too long for a socket");
  }
  path.copy(address.sun_path, path.size());
  OwnedDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.has_value() || Retry([&] {
                               return ::connect(socket.number(),
                                                reinterpret_cast<const sockaddr*>(&address),
                                                sizeof(address));
                             }) != 0) {
    return absl::UnavailableError(path + ": " + ErrnoText(errno));
  }
  return socket;
}

}  // namespace cbt::driver
