// Where a server of JSON over HTTPS listens, and its limits.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SERVER_SERVER_OPTIONS_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SERVER_SERVER_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "cbt/units.h"

namespace cbt::kube::http_server {

struct ServerOptions {
  // "host:port", IPv6 hosts in brackets; an empty host for every address, port 0 for any.
  std::string listen = {};
  // PEM. Read again when they change; new connections get what is new.
  std::string certificate_file = {};
  std::string private_key_file = {};
  // Clients are asked for a certificate; see Request::peer_certificates.
  bool ask_for_certificate = false;

  // Whether the client that has shown these certificates (Request::peer_certificates, not empty) is
  // one that the server is made for. Such clients have a pool of memory of their own, and lose no
  // connection to others. Called on the server's thread after each handshake; must not block. Null:
  // no client is known.
  std::function<bool(const std::vector<std::string>& certificates)> is_known = {};

  // At once. A further one replaces, of the address that has most connections, the oldest that has
  // no whole request; without such a one, it is closed.
  size_t max_connections = 256;
  // Of the request's line and headers: 431 beyond it.
  size_t max_header_bytes = 16 * kKiB;
  // Of one body: 413 beyond it.
  size_t max_body_bytes = 4 * kMiB;
  // Of all bodies that have arrived, in part or whole, until the handler drops their requests; the
  // same again for known clients. One address may hold half of it. Where it does not suffice, the
  // largest unfinished body of the address that holds most is dropped with its connection, if that
  // address holds more than the one in need; otherwise that one gets 503.
  size_t max_memory = 64 * kMiB;

  // For the handshake of TLS, for a request from its first byte to its last, for the handler (504
  // beyond it), for the client to take the answer; and how long a connection may be silent between
  // requests.
  std::chrono::milliseconds handshake_time = std::chrono::seconds(10);
  std::chrono::milliseconds request_time = std::chrono::seconds(10);
  std::chrono::milliseconds handler_time = std::chrono::seconds(30);
  std::chrono::milliseconds answer_time = std::chrono::seconds(10);
  std::chrono::milliseconds idle_time = std::chrono::minutes(2);
};

}  // namespace cbt::kube::http_server

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SERVER_SERVER_OPTIONS_H_
