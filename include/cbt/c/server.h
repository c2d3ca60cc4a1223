// gRPC servers for callers that bring no gRPC library: a service on a socket, and a relay of
// another server's answers. Both run in threads of their own.
//
// snippet: tests/consumer/snippets/c.c#server
//   cbt_server_options options = CBT_INIT(cbt_server_options);
//   options.listen = "unix:///csi/csi.sock";
//   cbt_server* server = NULL;
//   if (cbt_server_start(service, &options, &server, &error) != CBT_OK) return failed(error);
//   wait_for_signal();
//   if (cbt_server_shutdown(server, 5000, &error) != CBT_OK) return failed(error);
//   cbt_server_free(server);
#ifndef CBT_C_SERVER_H_
#define CBT_C_SERVER_H_

#include "cbt/c/base.h"
#include "cbt/c/stream.h"
#include "cbt/c/wire.h"

#ifdef __cplusplus
extern "C" {
#endif

// The gRPC contracts (docs/reference/services.md).
enum {
  CBT_CONTRACT_CSI = 0,         // csi.v1.SnapshotMetadata: what a storage plugin serves
  CBT_CONTRACT_KUBERNETES = 1,  // what a sidecar serves to backup applications
  CBT_CONTRACT_SESSION = 2,     // the proposal's first revision
  CBT_CONTRACT_PAGED = 3        // the proposal's paged revision
};

// A server or relay that runs. Any number of threads may use one, but none in a callback that it
// calls. In a forked child every call fails with FAILED_PRECONDITION, and freeing it leaves the
// parent's alone.
typedef struct cbt_server cbt_server;

enum { CBT_LOG_DEBUG = 1, CBT_LOG_INFO = 2, CBT_LOG_WARNING = 3, CBT_LOG_ERROR = 4 };

typedef struct cbt_server_options {
  uint64_t struct_size;
  // `unix:///path`, or `host:port` (port 0: any free one, see cbt_server_address_borrowed()).
  // Required. A Unix socket gets mode 0660; a stale one is replaced.
  const char* listen;
  // Paths of PEM files. A certificate and its key: TLS 1.2 or newer. A client CA: clients need a
  // certificate. The files are reread when they change.
  const char* tls_certificate_file;
  const char* tls_key_file;
  const char* tls_client_ca_file;
  // Threads that call the provider and read its cursors, 0: 4, at most 1024. Streams at once, 0:
  // 1024; further ones get RESOURCE_EXHAUSTED. Connections at once, 0: 6000; a further one replaces
  // one without a call, or is closed.
  uint64_t threads;
  uint64_t max_streams;
  uint64_t max_connections;
  // A stream is ended after this long (milliseconds) without a message taken by its client, 0: five
  // minutes; and after this long in all, 0: never.
  uint64_t stall_ms;
  uint64_t stream_ms;
  // Receives log records of `log_level` (0: CBT_LOG_WARNING) and above; may be NULL. Called from
  // any thread; must not block, nor call the library. `event` is a short phrase; the texts are
  // valid during the call, and hold no secrets. They may hold names from outside: escape them.
  void (*log)(void* user, int32_t level, const char* event, const cbt_metadata* fields,
              uint64_t count);
  int32_t log_level;
  // Not 0: grpc.reflection is not served.
  int32_t no_reflection;
  void* user;  // passed to `log`
  // Called once when the server is freed; may be NULL.
  void (*release)(void* user);
} cbt_server_options;

// Serves csi.v1.SnapshotMetadata for the service, csi.v1.Identity if the service has a plugin name,
// grpc.health.v1, and reflection. The server keeps the service: its handle may be freed. The
// provider is called from several threads at once. If this call fails, `release` is not called.
// Errors: INVALID_ARGUMENT for an option, FAILED_PRECONDITION if the address is in use, UNAVAILABLE
//         if listening fails, RESOURCE_EXHAUSTED.
CBT_API cbt_code cbt_server_start(const cbt_service* service, const cbt_server_options* options,
                                  cbt_server** server, cbt_error** error) CBT_NOTHROW;

typedef struct cbt_relay_options {
  uint64_t struct_size;
  // The plugin whose answers are relayed, which speaks csi.v1.SnapshotMetadata: `unix:///path` or
  // `host:port`. Required. It need not run yet.
  const char* plugin;
  // Not 0: TLS to the plugin, with PEM texts; without a CA the system's roots are used.
  int32_t plugin_tls;
  // What the relay itself serves: CBT_CONTRACT_CSI or CBT_CONTRACT_KUBERNETES, which needs
  // tokens_file. Without a snapshots_file, a snapshot's handle is "<namespace>/<name>". The files
  // are described in cbt/rpc/access.h, and reread when they change.
  int32_t contract;
  const char* plugin_ca;
  const char* plugin_certificate;
  const char* plugin_key;
  const char* tokens_file;
  const char* snapshots_file;
  const char* secrets_file;
  // Not 0: the base of a request is a name, as in an earlier draft of the Kubernetes contract.
  int32_t base_is_name;
  // Not 0: tuples are forwarded without being checked.
  int32_t unchecked;
  // Not 0: a plugin that ends with OK without a message has broken the contract. 0: it has nothing
  // to report.
  int32_t require_message;
  int32_t reserved;  // 0
  // A stream ends with DEADLINE_EXCEEDED if the plugin sends nothing for this long (milliseconds),
  // 0: 30 minutes.
  uint64_t plugin_stall_ms;
} cbt_relay_options;

// Relays requests to a plugin, and its answers back, which are checked on the way. The plugin's
// error texts go to `log` only. `options` are the server's.
// Errors: as cbt_server_start(); NOT_FOUND and PERMISSION_DENIED for a file.
CBT_API cbt_code cbt_relay_start(const cbt_relay_options* relay, const cbt_server_options* options,
                                 cbt_server** server, cbt_error** error) CBT_NOTHROW;

// The address that clients connect to, with the port in use; valid until the server is freed. NULL
// for NULL.
CBT_API const char* cbt_server_address_borrowed(const cbt_server* server) CBT_NOTHROW;

// Streams that are open now. 0 for NULL and in a forked child.
CBT_API uint64_t cbt_server_open_streams(const cbt_server* server) CBT_NOTHROW;

// Drains: new streams are refused with UNAVAILABLE at once, open ones end with it after `grace_ms`
// (milliseconds, at most a day). Returns when no stream is open, at the latest some seconds after
// the grace. Can be called again, to shorten the grace.
CBT_API cbt_code cbt_server_shutdown(cbt_server* server, uint64_t grace_ms,
                                     cbt_error** error) CBT_NOTHROW;

// Shuts down without grace. When this returns, the server has stopped calling the provider, its
// cursors and `log`. Free servers before the program ends.
CBT_API void cbt_server_free(cbt_server* server) CBT_NOTHROW;

#ifdef __cplusplus
}
#endif

#endif  // CBT_C_SERVER_H_
