#include "driver/host/nbd_device.h"

#include <linux/genetlink.h>
#include <linux/nbd-netlink.h>
#include <linux/nbd.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/absl_view.h"
#include "base/descriptor.h"
#include "base/errno_text.h"
#include "base/file_io.h"
#include "driver/host/nbd_connection.h"

namespace cbt::driver {
namespace {

constexpr uint64_t kDeadConnectionSeconds = 24 * 60 * 60;
constexpr uint64_t kBlockBytes = 512;
constexpr timeval kAnswerTime = {.tv_sec = 10, .tv_usec = 0};

// A message of generic netlink: headers, then attributes.
class Message {
 public:
  Message(uint16_t family, uint8_t command, uint8_t version) : bytes_(NLMSG_HDRLEN + GENL_HDRLEN) {
    const nlmsghdr header = {.nlmsg_len = 0,
                             .nlmsg_type = family,
                             .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK,
                             .nlmsg_seq = 1,
                             .nlmsg_pid = 0};
    const genlmsghdr generic = {.cmd = command, .version = version, .reserved = 0};
    std::memcpy(bytes_.data(), &header, sizeof(header));
    std::memcpy(&bytes_[NLMSG_HDRLEN], &generic, sizeof(generic));
  }

  template <typename T>
  void Add(uint16_t type, T value) {
    Add(type, std::span(reinterpret_cast<const uint8_t*>(&value), sizeof(value)));
  }
  void Add(uint16_t type, const std::string& text) {
    Add(type, std::span(reinterpret_cast<const uint8_t*>(text.c_str()), text.size() + 1));
  }
  void Add(uint16_t type, std::span<const uint8_t> value) {
    const size_t at = Begin(type);
    bytes_.insert(bytes_.end(), value.begin(), value.end());
    End(at);
  }
  // Attributes until End() with the result are inside of this one.
  size_t Begin(uint16_t type) {
    const size_t at = bytes_.size();
    const nlattr attribute = {.nla_len = 0, .nla_type = type};
    bytes_.resize(at + NLA_HDRLEN);
    std::memcpy(&bytes_[at], &attribute, sizeof(attribute));
    return at;
  }
  void End(size_t at) {
    const auto length = static_cast<uint16_t>(bytes_.size() - at);
    std::memcpy(&bytes_[at + offsetof(nlattr, nla_len)], &length, sizeof(length));
    bytes_.resize(NLA_ALIGN(bytes_.size()));
  }

  std::span<const uint8_t> Finish() {
    const auto length = static_cast<uint32_t>(bytes_.size());
    std::memcpy(&bytes_[offsetof(nlmsghdr, nlmsg_len)], &length, sizeof(length));
    return bytes_;
  }

 private:
  std::vector<uint8_t> bytes_;
};

template <typename T>
T Load(std::span<const uint8_t> bytes) {
  T value = {};
  std::memcpy(&value, bytes.data(), std::min(sizeof(value), bytes.size()));
  return value;
}

// The value of an attribute in an answer; empty without it.
std::span<const uint8_t> Find(std::span<const uint8_t> attributes, uint16_t type) {
  while (attributes.size() >= NLA_HDRLEN) {
    const auto header = Load<nlattr>(attributes);
    if (header.nla_len < NLA_HDRLEN || header.nla_len > attributes.size()) break;
    if ((header.nla_type & NLA_TYPE_MASK) == type) {
      return attributes.subspan(NLA_HDRLEN, header.nla_len - NLA_HDRLEN);
    }
    attributes = attributes.subspan(std::min<size_t>(NLA_ALIGN(header.nla_len), attributes.size()));
  }
  return {};
}

// Sends a request and returns the attributes of its answer, which may be none.
absl::StatusOr<std::vector<uint8_t>> Ask(Message message) {
  const OwnedDescriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_GENERIC));
  const sockaddr_nl kernel = {.nl_family = AF_NETLINK, .nl_pad = 0, .nl_pid = 0, .nl_groups = 0};
  const std::span<const uint8_t> request = message.Finish();
  if (!socket.has_value() ||
      ::setsockopt(socket.number(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerTime, sizeof(kAnswerTime)) !=
          0 ||
      Retry([&] {
        return ::sendto(socket.number(), request.data(), request.size(), 0,
                        reinterpret_cast<const sockaddr*>(&kernel), sizeof(kernel));
      }) < 0) {
    return FileError("netlink", errno);
  }
  std::vector<uint8_t> answer;
  for (;;) {
    std::array<uint8_t, 16384> buffer;
    const ssize_t size =
        Retry([&] { return ::recv(socket.number(), buffer.data(), buffer.size(), 0); });
    if (size < 0) return FileError("netlink", errno);
    std::span<const uint8_t> rest(buffer.data(), static_cast<size_t>(size));
    while (rest.size() >= NLMSG_HDRLEN) {
      const auto header = Load<nlmsghdr>(rest);
      if (header.nlmsg_len < NLMSG_HDRLEN || header.nlmsg_len > rest.size()) break;
      const auto body = rest.subspan(NLMSG_HDRLEN, header.nlmsg_len - NLMSG_HDRLEN);
      if (header.nlmsg_type == NLMSG_ERROR) {
        const int error = -Load<nlmsgerr>(body).error;
        if (error == 0) return answer;
        return absl::FailedPreconditionError(ErrnoText(error));
      }
      if (body.size() > GENL_HDRLEN) answer.assign(body.begin() + GENL_HDRLEN, body.end());
      rest = rest.subspan(std::min<size_t>(NLMSG_ALIGN(header.nlmsg_len), rest.size()));
    }
  }
}

absl::StatusOr<uint16_t> NbdFamily() {
  Message message(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, 1);
  message.Add(CTRL_ATTR_FAMILY_NAME, std::string(NBD_GENL_FAMILY_NAME));
  const absl::StatusOr<std::vector<uint8_t>> answer = Ask(std::move(message));
  if (!answer.ok()) return answer.status();
  const std::span<const uint8_t> id = Find(*answer, CTRL_ATTR_FAMILY_ID);
  if (id.size() != sizeof(uint16_t)) {
    return absl::FailedPreconditionError("the kernel's NBD client does not answer");
  }
  return Load<uint16_t>(id);
}

absl::Status OfDevice(const absl::Status& status) {
  return {status.code(), absl::StrCat("the kernel's NBD client: ", status.message())};
}

// The contract's transmission flags.
uint64_t FlagsOf(nbd_handle* server, bool read_only) {
  uint64_t flags = NBD_FLAG_HAS_FLAGS;
  if (read_only || ::nbd_is_read_only(server) == 1) flags |= NBD_FLAG_READ_ONLY;
  if (::nbd_can_flush(server) == 1) flags |= NBD_FLAG_SEND_FLUSH;
  if (::nbd_can_fua(server) == 1) flags |= NBD_FLAG_SEND_FUA;
  if (::nbd_can_trim(server) == 1) flags |= NBD_FLAG_SEND_TRIM;
  if (::nbd_can_multi_conn(server) == 1) flags |= NBD_FLAG_CAN_MULTI_CONN;
  return flags;
}

void AddSocket(Message& message, int descriptor) {
  const size_t sockets = message.Begin(NBD_ATTR_SOCKETS | NLA_F_NESTED);
  const size_t item = message.Begin(NBD_SOCK_ITEM | NLA_F_NESTED);
  message.Add(NBD_SOCK_FD, static_cast<uint32_t>(descriptor));
  message.End(item);
  message.End(sockets);
}

std::string FirstLine(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

bool HasNbdDevices() { return NbdFamily().ok(); }

std::optional<uint32_t> FindNbdDevice(const std::string& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kBlockDevices, error)) {
    const std::string name = entry.path().filename();
    uint32_t number = 0;
    if (name.starts_with("nbd") && absl::SimpleAtoi(AbslView(name).substr(3), &number) &&
        FirstLine(entry.path() / "backend") == path) {
      return number;
    }
  }
  return std::nullopt;
}

absl::StatusOr<uint32_t> ConnectNbdDevice(const std::string& path, bool read_only) {
  const absl::StatusOr<uint16_t> family = NbdFamily();
  if (!family.ok()) return OfDevice(family.status());
  const absl::StatusOr<NbdHandle> server = ConnectNbd(path);
  if (!server.ok()) return server.status();
  const int64_t size = ::nbd_get_size(server->get());
  if (size < 0) return absl::UnavailableError(path + ": the server tells no size");
  Message message(*family, NBD_CMD_CONNECT, NBD_GENL_VERSION);
  message.Add(NBD_ATTR_SIZE_BYTES, static_cast<uint64_t>(size));
  message.Add(NBD_ATTR_BLOCK_SIZE_BYTES, kBlockBytes);
  message.Add(NBD_ATTR_SERVER_FLAGS, FlagsOf(server->get(), read_only));
  message.Add(NBD_ATTR_DEAD_CONN_TIMEOUT, kDeadConnectionSeconds);
  message.Add(NBD_ATTR_BACKEND_IDENTIFIER, path);
  AddSocket(message, ::nbd_aio_get_fd(server->get()));
  const absl::StatusOr<std::vector<uint8_t>> answer = Ask(std::move(message));
  if (!answer.ok()) return OfDevice(answer.status());
  const std::span<const uint8_t> index = Find(*answer, NBD_ATTR_INDEX);
  if (index.size() != sizeof(uint32_t)) {
    return absl::FailedPreconditionError("the kernel's NBD client does not name the device");
  }
  const auto number = Load<uint32_t>(index);
  if (FindNbdDevice(path) != number) {
    DisconnectNbdDevice(number).IgnoreError();
    return absl::FailedPreconditionError(
        "the kernel's NBD client does not tell whose a device is (Linux 5.14 does)");
  }
  return number;
}

absl::Status ReconnectNbdDevice(uint32_t number, const std::string& path) {
  const absl::StatusOr<uint16_t> family = NbdFamily();
  if (!family.ok()) return OfDevice(family.status());
  const absl::StatusOr<NbdHandle> server = ConnectNbd(path);
  if (!server.ok()) return server.status();
  Message message(*family, NBD_CMD_RECONFIGURE, NBD_GENL_VERSION);
  message.Add(NBD_ATTR_INDEX, number);
  message.Add(NBD_ATTR_BACKEND_IDENTIFIER, path);
  AddSocket(message, ::nbd_aio_get_fd(server->get()));
  const absl::StatusOr<std::vector<uint8_t>> answer = Ask(std::move(message));
  return answer.ok() ? absl::OkStatus() : OfDevice(answer.status());
}

absl::Status DisconnectNbdDevice(uint32_t number) {
  const absl::StatusOr<uint16_t> family = NbdFamily();
  if (!family.ok()) return OfDevice(family.status());
  Message message(*family, NBD_CMD_DISCONNECT, NBD_GENL_VERSION);
  message.Add(NBD_ATTR_INDEX, number);
  const absl::StatusOr<std::vector<uint8_t>> answer = Ask(std::move(message));
  return answer.ok() ? absl::OkStatus() : OfDevice(answer.status());
}

}  // namespace cbt::driver
