// Tokens for a metadata service, made as they are needed.
#ifndef CBT_KUBE_WATCH_TOKEN_SOURCE_H_
#define CBT_KUBE_WATCH_TOKEN_SOURCE_H_

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/typed_objects.h"
#include "cbt/secrets.h"

namespace cbt::kube {

// Keeps a token until four fifths of its life are over, measured with the local clock from when it
// was asked for. Thread-safe.
class TokenSource {
 public:
  TokenSource(std::shared_ptr<Client> client, ServiceAccountName account, std::string audience,
              std::chrono::seconds lifetime)
      : client_(std::move(client)),
        account_(std::move(account)),
        audience_(std::move(audience)),
        lifetime_(lifetime) {}

  absl::StatusOr<Secret> Get();

 private:
  using Clock = std::chrono::steady_clock;

  const std::shared_ptr<Client> client_;
  const ServiceAccountName account_;
  const std::string audience_;
  const std::chrono::seconds lifetime_;

  std::mutex mutex_;
  Secret token_;
  Clock::time_point renew_at_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_WATCH_TOKEN_SOURCE_H_
