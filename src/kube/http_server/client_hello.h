// The first bytes of a connection, before OpenSSL keeps memory for what they announce.
#ifndef CBT_KUBE_HTTP_SERVER_CLIENT_HELLO_H_
#define CBT_KUBE_HTTP_SERVER_CLIENT_HELLO_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace cbt::kube::http_server {

// The head of the first record of TLS, and that of the message in it.
using HelloHead = std::array<uint8_t, 9>;

// OpenSSL takes hellos of up to 128 KiB, and memory for all of one before it has come. Those of
// clients have 200 bytes to 2 KiB.
inline constexpr size_t kMaxHello = size_t{16} * 1024;

// Whether a client hello of a sensible length begins so.
inline bool IsHello(const HelloHead& head) {
  constexpr uint8_t kHandshake = 22;
  constexpr uint8_t kClientHello = 1;
  constexpr size_t kMessageHead = 4;
  const size_t record = (size_t{head[3]} << 8) | head[4];
  const size_t message = (size_t{head[6]} << 16) | (size_t{head[7]} << 8) | head[8];
  return head[0] == kHandshake && head[1] == 3 && record >= kMessageHead &&
         head[5] == kClientHello && message <= kMaxHello;
}

}  // namespace cbt::kube::http_server

#endif  // CBT_KUBE_HTTP_SERVER_CLIENT_HELLO_H_
