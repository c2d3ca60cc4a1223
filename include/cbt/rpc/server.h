// A gRPC server for the contracts of cbt/rpc/api.h, and csi.v1.Identity, over a SnapshotProvider.
// Part of cbt::rpc.
//
//   MyProvider provider;
//   auto server = cbt::rpc::Server::Start(provider, {.listen = "unix:///csi/csi.sock",
//                                                    .plugin_name = "block.example.com"});
//   if (!server.ok()) return Fail(server.status());
//   WaitForSignal();
//   (*server)->Shutdown();
//
// The library registers its methods by name with gRPC's raw callback interface and brings no
// generated classes, so a plugin can link its own generated CSI code beside it.
// grpc.health.v1 is served beside them.
#ifndef CBT_RPC_SERVER_H_
#define CBT_RPC_SERVER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/provider.h"
#include "cbt/rpc/access.h"
#include "cbt/rpc/api.h"
#include "cbt/rpc/session_store.h"
#include "cbt/rpc/telemetry.h"

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

struct ServerOptions {
  // `unix:///path`, or `host:port` (port 0: any free one, see Server::port()).
  std::string listen = {};

  // The contracts that are served, each at most once.
  std::vector<Api> apis = {Api::kCsi};

  // csi.v1.Identity: the plugin's name (a domain name of at most 63 characters) and version.
  std::string plugin_name = "libcbt.example.com";
  std::string vendor_version = {};  // the library's version if empty

  // For Api::kKubernetes, which needs the first three; for Api::kSession, which asks the last two
  // if they are there.
  AccessControl access = {};
  // What field 3 of the Kubernetes delta request holds: the handle of the base snapshot, as the API
  // is deployed, or its name, as an earlier text had it.
  bool base_is_handle = true;
  // For Api::kSession.
  SessionStore* sessions = nullptr;
  // For Api::kPaged: what page tokens are sealed with. Servers that are to take each other's
  // tokens, and one that is to take its own after a restart, have the same. If empty it is derived
  // from the plugin's name: that finds mistakes, and nobody who wants to cheat.
  std::string page_token_key = {};

  TlsOptions tls = {};
  StreamOptions stream = {};
  ConnectionOptions connection = {};

  // Tell clients what the services look like (grpc.reflection.v1 and v1alpha).
  bool reflection = true;

  Telemetry telemetry = {};
};

// A running server.
class Server {
 public:
  // Starts to serve `provider`, which must outlive the server.
  //
  // A Unix socket is created with mode 0660. A socket file that nobody listens on is replaced, one
  // that somebody listens on is refused, and so is a path that is no socket. `<path>.lock` holds a
  // lock as long as the server runs, so that two servers that start at the same time can't both
  // win. Errors: INVALID_ARGUMENT for options out of range, FAILED_PRECONDITION when the address is
  // in use, UNAVAILABLE when listening fails, RESOURCE_EXHAUSTED when the system has no more memory
  // or threads.
  static absl::StatusOr<std::unique_ptr<Server>> Start(SnapshotProvider& provider,
                                                       const ServerOptions& options);

  // Shutdown() with no grace if it was not called before.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The TCP port in use; 0 for a Unix socket.
  int port() const noexcept;

  // The address in the form clients take.
  const std::string& address() const noexcept;

  // Drains: new streams are refused with UNAVAILABLE at once, open ones go on for up to `grace` and
  // are then ended with UNAVAILABLE. Returns when no stream is open any more, at the latest a few
  // seconds after the grace. Safe to call from any thread, more than once.
  void Shutdown(std::chrono::milliseconds grace = std::chrono::seconds(5));

  // Streams that are open now.
  size_t open_streams() const noexcept;

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_H_
