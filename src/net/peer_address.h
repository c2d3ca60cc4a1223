// The address at the other end of a socket.
#ifndef CBT_NET_PEER_ADDRESS_H_
#define CBT_NET_PEER_ADDRESS_H_

#include <string>

namespace cbt::net {

// Without its port, as text; an address of IPv4 looks the same on a socket of IPv6. Empty for a
// Unix socket, and when the peer has gone. Throws std::bad_alloc.
std::string PeerAddressOf(int fd);

}  // namespace cbt::net

#endif  // CBT_NET_PEER_ADDRESS_H_
