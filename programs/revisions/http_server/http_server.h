// A server of JSON over HTTPS: HTTP/1.1 in TLS, for the few callers of a webhook or an API.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SERVER_HTTP_SERVER_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SERVER_HTTP_SERVER_H_

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "ops/event_log.h"
#include "programs/revisions/http_server/http_message.h"
#include "programs/revisions/http_server/server_options.h"

namespace cbt::kube::http_server {

// One thread serves all connections; handlers answer whenever they can. Connections, headers,
// bodies and every wait are limited. Thread safe.
class HttpServer {
 public:
  // Errors: INVALID_ARGUMENT for options that can't work, those of reading the certificate,
  //         UNAVAILABLE if the address can't be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const ServerOptions& options,
                                                           Handler handler, ops::EventLog& log);

  // Calls Shutdown() without grace unless it was called before.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const noexcept;
  const std::string& address() const noexcept;  // "host:port"
  size_t connections() const noexcept;

  // Takes no further connection, closes those without a request, and lets the others answer theirs
  // for up to `grace`. The handler is not called after this has returned.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::kube::http_server

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SERVER_HTTP_SERVER_H_
