// What servers, relays and clients have in common: how streams are shaped and sent, connections,
// TLS. Part of cbt::rpc.
#ifndef CBT_RPC_OPTIONS_H_
#define CBT_RPC_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "cbt/metadata_type.h"

namespace cbt::rpc {

// How extents are told, on top of what a provider says. Zero: as they come.
struct StreamShape {
  // Forces the style of every answer; blocks of `block_size` then, or of the provider's.
  std::optional<BlockMetadataType> type = {};
  uint64_t block_size = 0;    // bytes; 0: the provider's
  uint64_t alignment = 0;     // bytes: extents are rounded outward to multiples of it
  uint64_t coalesce_gap = 0;  // bytes: extents with at most this between them become one
  uint64_t max_extent = 0;    // bytes: longer extents are cut
};

// How streams are sent. The defaults suit most plugins.
struct StreamOptions {
  StreamShape shape = {};

  // Bytes of one encoded message at most, 4 KiB .. kMaxMessageBytes, whatever max_results asks for.
  size_t message_bytes = size_t{128} << 10;

  // Messages that are ready or on their way at most, for each stream, at least 1; and how many
  // bytes of them (a message counts some hundred more than it has) make the stream wait before it
  // makes the next. Several keep the transport busy while others are prepared. Together with
  // message_bytes this is what a stream can cost whose reader took much and then stalls; one that
  // was slow from the beginning gets a message at a time, or what small ones 4 KiB hold.
  size_t messages_in_flight = 64;
  size_t bytes_in_flight = size_t{384} << 10;

  // Threads on which providers are asked and cursors are read, for all streams together.
  size_t threads = 4;

  // Streams that may be open at once; a further one gets RESOURCE_EXHAUSTED.
  size_t max_streams = 1024;

  // A stream whose client takes no message for this long is cancelled. Keepalive can't see such
  // clients: they still answer pings.
  std::chrono::milliseconds stall_timeout = std::chrono::minutes(5);

  // A stream that is open for longer is ended with DEADLINE_EXCEEDED; zero: no limit.
  std::chrono::milliseconds total_time{0};
};

// What connections are allowed and held to.
struct ConnectionOptions {
  // Pings find dead peers: after this long without a sign of life, with streams or without, and how
  // long the answer may take.
  std::chrono::milliseconds keepalive_time = std::chrono::seconds(60);
  std::chrono::milliseconds keepalive_timeout = std::chrono::seconds(20);
  // Clients that ping more often than this are hung up on.
  std::chrono::milliseconds min_client_ping = std::chrono::seconds(30);
  // A connection without a stream is closed after this long; zero: never.
  std::chrono::milliseconds idle_time{0};
  // A connection that is as old as this (a tenth more or less) takes no new stream, and is closed
  // as much later again. Who was let in by a certificate is so asked for it again. Zero: an hour
  // where clients need certificates, for ever elsewhere.
  std::chrono::milliseconds max_age{0};
  // Bytes for what the transport reads and keeps of all connections together; when they are used up
  // it ends connections and calls. Zero: no limit.
  size_t memory_quota = size_t{128} << 20;
};

// Clients refuse messages over 4 MiB unless told otherwise; we stay below a quarter of that.
inline constexpr size_t kMaxMessageBytes = (size_t{1} << 20) - 1;

// TLS 1.2 and up. On when a certificate and its key are given, as PEM texts or as files; files are
// looked at every second and take effect for new connections when they change. A client CA makes
// client certificates required. When its file changes, every connection is closed, and who comes
// back must hold a certificate of the new one; new connections are refused for the three seconds in
// which both are about, and for as long as the file can't be read or holds no certificate.
struct TlsOptions {
  std::string certificate = {};
  std::string private_key = {};
  std::string client_ca = {};

  std::string certificate_file = {};
  std::string private_key_file = {};
  std::string client_ca_file = {};
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
