#include "net/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace cbt::net {

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
