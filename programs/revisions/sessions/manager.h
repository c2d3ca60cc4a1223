// The session manager of the proposal's first revision: a webhook, and a controller of requests.
#ifndef CBT_PROGRAMS_REVISIONS_SESSIONS_MANAGER_H_
#define CBT_PROGRAMS_REVISIONS_SESSIONS_MANAGER_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "programs/revisions/sessions/options.h"

namespace cbt::kube::sessions {

// A running manager. Thread safe.
class Manager {
 public:
  // The API server need not be there yet.
  // Errors: INVALID_ARGUMENT for options that can't work, those of HttpServer::Start() and
  //         Client::Create(), UNAVAILABLE if the HTTP endpoint can't listen.
  static absl::StatusOr<std::unique_ptr<Manager>> Start(Options options);

  // Calls Shutdown() without grace unless it was called before.
  ~Manager();
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  // The webhook answers, and the requests in the cluster are known.
  bool ready() const;
  // Of the webhook.
  const std::string& address() const noexcept;
  int port() const noexcept;
  int http_port() const noexcept;  // or 0

  // Reviews under way are answered for up to `grace`; the lease is released.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit Manager(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::kube::sessions

#endif  // CBT_PROGRAMS_REVISIONS_SESSIONS_MANAGER_H_
