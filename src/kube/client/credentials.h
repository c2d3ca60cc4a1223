// The client's credentials: tokens, certificates, and their sources.
#ifndef CBT_KUBE_CLIENT_CREDENTIALS_H_
#define CBT_KUBE_CLIENT_CREDENTIALS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/config.h"
#include "cbt/secrets.h"
#include "kube/client/exec_plugin.h"
#include "kube/client/latest_file.h"

namespace cbt::kube {

// What one request is sent with.
struct Identity {
  Secret authorization = {};  // a header, "Authorization: Bearer ..."; empty: none
  Secret certificate = {};    // PEM; empty: none
  Secret key = {};
  Secret ca = {};  // PEM of what is trusted; empty: the system's
  uint64_t generation = 0;
};

// The credentials of a configuration, kept current. For one thread, the client's.
class Credentials {
 public:
  using Clock = std::chrono::steady_clock;

  // Reads the files that `config` names. `wake` is called in another thread when Get() may have a
  // new answer. Errors: those of reading them; INVALID_ARGUMENT for contents that can't be used.
  static absl::StatusOr<std::unique_ptr<Credentials>> Create(const Config& config,
                                                             std::function<void()> wake);
  // Kills a plugin that runs.
  ~Credentials();
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  // What to send now; null while a plugin runs. Errors: UNAVAILABLE.
  absl::StatusOr<std::shared_ptr<const Identity>> Get(Clock::time_point now);

  // The server answered 401 to a request with this generation. True if other credentials may be
  // had: then the request is worth one more attempt.
  bool Reject(uint64_t generation);

 private:
  Credentials(const Config& config, std::function<void()> wake);

  // Each sets `changed` if a new identity is needed.
  absl::Status RefreshPem(bool& changed);
  absl::Status RefreshToken(Clock::time_point now, bool& changed);
  // False while the plugin runs.
  absl::StatusOr<bool> RefreshPlugin(Clock::time_point now, bool& changed);
  Identity MakeIdentity() const;

  const Config config_;
  const std::function<void()> wake_;

  std::shared_ptr<const Identity> identity_;
  uint64_t generation_ = 0;

  std::optional<LatestFile> ca_file_;
  std::optional<LatestFile> certificate_file_;
  std::optional<LatestFile> key_file_;

  std::optional<LatestFile> token_file_;
  Clock::time_point token_due_{};
  bool token_rejected_ = false;

  std::optional<PluginCredentials> plugin_;
  std::optional<Clock::time_point> plugin_until_;
  absl::Status plugin_error_;
  Clock::time_point plugin_error_until_{};

  std::mutex mutex_;
  bool running_ = false;                                       // guarded by mutex_
  std::optional<absl::StatusOr<PluginCredentials>> finished_;  // guarded by mutex_
  std::jthread thread_;  // last: it uses the others until it has ended
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_CREDENTIALS_H_
