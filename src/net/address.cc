#include "net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::net {

namespace {

constexpr std::string_view kUnixScheme = "unix:";

absl::Status Invalid(std::string_view text, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("address: '", AbslView(text), "': ", AbslView(why)));
}

absl::StatusOr<Address> ParseUnix(std::string_view text) {
  std::string_view path = text.substr(kUnixScheme.size());
  if (path.starts_with("//")) {
    // The authority between the slashes is always empty.
    if (!path.starts_with("///")) return Invalid(text, "expected unix:///absolute/path");
    path.remove_prefix(2);
  }
  if (path.empty() || path.ends_with('/')) return Invalid(text, "no socket path");
  if (path.find('\0') != std::string_view::npos) return Invalid(text, "NUL in the socket path");
  if (path.find(',') != std::string_view::npos) {
    return Invalid(text, "gRPC clients treat a comma in a socket path as a separator");
  }
  return Address{.is_unix = true, .path = std::string(path), .host = {}, .port = 0};
}

}  // namespace

std::string Address::GrpcTarget() const {
  if (!is_unix) return ToString();
  std::string target(kUnixScheme);
  for (const char c : path) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '/' || c == '.' || c == '-' ||
        c == '_' || c == '~') {
      target += c;
    } else {
      const std::string hex = absl::BytesToHexString(absl::string_view(&c, 1));
      absl::StrAppend(&target, "%", absl::AsciiStrToUpper(hex));
    }
  }
  return target;
}

std::string Address::ToString() const {
  if (is_unix) return absl::StrCat(path.starts_with('/') ? "unix://" : "unix:", path);
  const bool ipv6 = host.find(':') != std::string::npos;
  return absl::StrCat(ipv6 ? "[" : "", host, ipv6 ? "]" : "", ":", port);
}

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  if (text.starts_with(kUnixScheme)) return ParseUnix(text);
  if (text.find("://") != std::string_view::npos) {
    return Invalid(text, text.starts_with("https://")
                             ? "not a URL: give host:port; TLS is chosen by the --tls options"
                             : "not a URL: give host:port or unix:///path");
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return Invalid(text, "expected unix:///path or host:port");
  }
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return Invalid(text, "write IPv6 addresses in brackets: [::1]:port");
  }
  if (host.empty()) return Invalid(text, "no host; use 0.0.0.0 or [::] for all addresses");
  for (const char c : host) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
        std::string_view(".-_:%").find(c) == std::string_view::npos) {
      return Invalid(text, "invalid character in the host name");
    }
  }
  uint32_t number = 0;
  // SimpleAtoi accepts signs and spaces; a port has neither.
  if (port.empty() || port.find_first_not_of("0123456789") != std::string_view::npos ||
      !absl::SimpleAtoi(AbslView(port), &number) || number > 65535) {
    return Invalid(text, "the port is not a number from 0 to 65535");
  }
  return Address{.is_unix = false,
                 .path = {},
                 .host = std::string(host),
                 .port = static_cast<uint16_t>(number)};
}

absl::Status ProbeTcpAddress(const Address& address) {
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const std::string port = absl::StrCat(address.port);
  if (const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list);
      error != 0) {
    return absl::UnavailableError(
        absl::StrCat("listen: ", address.ToString(), ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  // One bindable address is enough, as for gRPC; a port in use is an error even if it is free on
  // another address of the host.
  int failure = 0;
  bool bound = false;
  for (const addrinfo* info = list; info != nullptr; info = info->ai_next) {
    const int fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC, info->ai_protocol);
    if (fd < 0) {
      failure = errno;
      continue;
    }
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen) == 0) {
      bound = true;
    } else {
      failure = errno;
    }
    close(fd);
    if (failure == EADDRINUSE) {
      return absl::FailedPreconditionError(
          absl::StrCat("listen: ", address.ToString(), ": the address is in use"));
    }
  }
  if (bound) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("listen: ", address.ToString(), ": ", ErrnoText(failure)));
}

std::string PeerAddressOf(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof storage;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  char text[INET6_ADDRSTRLEN] = {};
  if (storage.ss_family == AF_INET) {
    sockaddr_in address = {};
    std::memcpy(&address, &storage, sizeof address);
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  } else if (storage.ss_family == AF_INET6) {
    sockaddr_in6 address = {};
    std::memcpy(&address, &storage, sizeof address);
    if (IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
      constexpr size_t kPrefix = 12;
      inet_ntop(AF_INET, address.sin6_addr.s6_addr + kPrefix, text, sizeof text);
    } else {
      inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof text);
    }
  }
  return text;
}

}  // namespace cbt::net
