// Addresses as users write them, and the address at the other end of a socket.
#ifndef CBT_NET_ADDRESS_H_
#define CBT_NET_ADDRESS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cbt::net {

// `unix:///abs/path`, `unix:path`, or `host:port` with IPv6 hosts in brackets.
struct Address {
  bool is_unix = false;
  std::string path;   // Unix socket
  std::string host;   // without brackets
  uint16_t port = 0;  // 0: any

  // The form for gRPC. Its parser decodes percent signs in socket paths, so they are encoded.
  std::string GrpcTarget() const;

  // The form that users write.
  std::string ToString() const;
};

// Errors: INVALID_ARGUMENT. Resolves no names.
absl::StatusOr<Address> ParseAddress(std::string_view text);

// OK if a server could listen on the TCP address now. gRPC reports only that it failed; this gets
// the reason from the system beforehand.
// Errors: FAILED_PRECONDITION when the port is in use, UNAVAILABLE when the host has no address
//         here or binding is refused.
absl::Status ProbeTcpAddress(const Address& address);

// Without its port, as text; an address of IPv4 looks the same on a socket of IPv6. Empty for a
// Unix socket, and when the peer has gone. Throws std::bad_alloc.
std::string PeerAddressOf(int fd);

}  // namespace cbt::net

#endif  // CBT_NET_ADDRESS_H_
