// Options shared by servers, relays and clients: contracts, shape and sending of streams,
// connections, TLS. Part of cbt::rpc.
#ifndef CBT_RPC_OPTIONS_H_
#define CBT_RPC_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cbt/extent.h"
#include "cbt/units.h"
#include "cbt/version.h"

namespace cbt::rpc {

// The gRPC contracts that the client, the server and the relay support.
enum class Api {
  kCsi,         // csi.v1.SnapshotMetadata: what a storage plugin serves
  kKubernetes,  // snapshotmetadata.SnapshotMetadata: what a sidecar serves to backup applications
  kSession,     // the proposal's first revision: GetAllocated and GetDelta with session tokens
  kPaged,       // the proposal's paged revision: unary ListSnapshotDeltas with page tokens
};

// "csi", "kubernetes", "session" or "paged".
std::string_view ApiName(Api api) noexcept;
std::optional<Api> ParseApi(std::string_view name) noexcept;

// How a provider's extents are reshaped before they are sent. Zero: unchanged.
struct StreamShape {
  // Forces the style of every answer; blocks have `block_size`, or the provider's block size.
  std::optional<BlockMetadataType> type = {};
  uint64_t block_size = 0;    // bytes; 0: the provider's
  uint64_t alignment = 0;     // bytes: extents are rounded outward to multiples of it
  uint64_t coalesce_gap = 0;  // bytes: extents with at most this between them become one
  uint64_t max_extent = 0;    // bytes: longer extents are cut
};

// How streams are sent. The defaults suit most plugins.
struct StreamOptions {
  StreamShape shape = {};

  // Most bytes of one encoded message, 4 KiB .. kMaxMessageBytes, whatever max_results is.
  size_t message_bytes = 128 * kKiB;

  // Most messages queued or being sent per stream, at least 1, and the number of queued bytes (each
  // message counts some hundred bytes extra) at which the stream stops producing. Several messages
  // keep the transport busy while others are prepared. Together with message_bytes, these bound the
  // memory of a stream whose reader was fast and then stalls. A reader that is slow from the start
  // gets one message at a time, or 4 KiB of small ones.
  size_t messages_in_flight = 64;
  size_t bytes_in_flight = 384 * kKiB;

  // Threads that call providers and read cursors, for all streams together.
  size_t threads = 4;

  // Most streams open at once; further ones get RESOURCE_EXHAUSTED.
  size_t max_streams = 1024;

  // A stream whose client takes no message for this long is cancelled. Keepalive does not detect
  // these clients: they still answer pings.
  std::chrono::milliseconds stall_timeout = std::chrono::minutes(5);

  // A stream open for longer than this ends with DEADLINE_EXCEEDED; zero: no limit.
  std::chrono::milliseconds total_time{0};
};

// Limits and keepalive of connections.
struct ConnectionOptions {
  // Pings detect dead peers: how long a connection is silent before a ping, with or without
  // streams, and how long the answer may take.
  std::chrono::milliseconds keepalive_time = std::chrono::seconds(60);
  std::chrono::milliseconds keepalive_timeout = std::chrono::seconds(20);
  // Clients that ping more often than this are disconnected.
  std::chrono::milliseconds min_client_ping = std::chrono::seconds(30);
  // Connections at once. A further one replaces the one that has been without a call for longest;
  // without such a one it is closed.
  size_t max_connections = 6'000;
  // For the handshakes of TLS and HTTP/2; a client that takes longer is disconnected.
  std::chrono::milliseconds handshake_time = std::chrono::seconds(20);
  // A connection without a stream is closed after this long; zero: never.
  std::chrono::milliseconds idle_time{0};
  // A connection of this age (plus or minus a tenth) takes no new streams, and is closed after the
  // same time again. This makes clients show their certificate again. Zero: one hour if clients
  // need certificates, otherwise no limit.
  std::chrono::milliseconds max_age{0};
  // Memory in bytes that the transport may use for all connections together, TLS included; an idle
  // connection takes up to 42 KiB. When it is used up, connections without a call make room: those
  // in their handshake beyond a quarter of it, then the largest, then those without a call for
  // longest. If that does not suffice, calls are refused and the largest connections ended. Zero:
  // no limit.
  size_t memory_quota = 256 * kMiB;
};

// gRPC clients refuse messages over 4 MiB by default; this is below a quarter of that.
inline constexpr size_t kMaxMessageBytes = kMiB - 1;

enum class TlsVersion { k12, k13 };

// TLS 1.2 or newer. Enabled by a certificate and its key, as PEM texts or as files; files are
// checked every second, and changes apply to new connections. A client CA makes client certificates
// mandatory. When its file changes, every connection is closed, and clients that reconnect need a
// certificate of the new CA. New connections are refused during the three seconds of the
// change-over, and as long as the file can't be read or holds no certificate.
struct TlsOptions {
  std::string certificate = {};
  std::string private_key = {};
  std::string client_ca = {};

  std::string certificate_file = {};
  std::string private_key_file = {};
  std::string client_ca_file = {};

  // The oldest version that clients may speak.
  TlsVersion min_version = TlsVersion::k12;
  // Ciphers of TLS 1.2 by OpenSSL's names, separated by colons; empty: ECDHE with AES-GCM or
  // ChaCha20, the only kind that HTTP/2 allows and that is accepted here. TLS 1.3 has its own.
  std::string ciphers = {};
  // Groups for the key exchange by OpenSSL's names, separated by colons, the preferred ones first;
  // empty: OpenSSL's default.
  std::string groups = {};
};

// PEM texts; TLS is on when `enabled`. Without a CA the system's roots are used.
struct ClientTlsOptions {
  bool enabled = false;
  std::string ca = {};
  std::string certificate = {};
  std::string private_key = {};
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_OPTIONS_H_
