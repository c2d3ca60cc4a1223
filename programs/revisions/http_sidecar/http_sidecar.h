// The HTTPS service of a driver in the proposal's second revision: JSON in front of a CSI plugin.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_HTTP_SIDECAR_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_HTTP_SIDECAR_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/revisions/http_sidecar/options.h"

namespace cbt::kube::http_sidecar {

// A running sidecar. Thread safe.
class HttpSidecar {
 public:
  // Neither the API server nor the plugin need be there yet; until they are, it is not ready.
  // Errors: INVALID_ARGUMENT for options that can't work, those of HttpServer::Start() and
  //         Client::Create(), UNAVAILABLE if the HTTP endpoint can't listen.
  static absl::StatusOr<std::unique_ptr<HttpSidecar>> Start(Options options);

  // Calls Shutdown() without grace unless it was called before.
  ~HttpSidecar();
  HttpSidecar(const HttpSidecar&) = delete;
  HttpSidecar& operator=(const HttpSidecar&) = delete;

  // The plugin answers, and this process is the one that serves.
  bool ready() const;
  // Why this sidecar can never serve; OK unless that is so.
  absl::Status failure() const;
  const std::string& address() const noexcept;
  int http_port() const noexcept;  // or 0

  // Not ready from the beginning on; pages under way are answered for up to `grace`.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit HttpSidecar(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::kube::http_sidecar

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_HTTP_SIDECAR_H_
