// Who sends a request: what the API server says about its user, if it is the API server that says
// it.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_FRONT_PROXY_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_FRONT_PROXY_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/typed_objects.h"
#include "cbt/kube/watch.h"
#include "ops/event_log.h"
#include "programs/revisions/http_server/http_message.h"
#include "programs/revisions/http_server/peer_certificate.h"

namespace cbt::kube::aggregated {

// How the API server shows itself, and in which headers it says who the user is.
struct FrontProxy {
  http_server::ClientAuthorities authorities;
  std::vector<std::string> allowed_names;  // empty: any
  // In lower case.
  std::vector<std::string> username_headers;
  std::vector<std::string> uid_headers;
  std::vector<std::string> group_headers;
  std::vector<std::string> extra_prefixes;

  // Reads kube-system/extension-apiserver-authentication. Errors: INVALID_ARGUMENT with the key:
  // without an authority or a header for names no caller can be recognised.
  static absl::StatusOr<FrontProxy> Read(const ConfigMap& config);

  // Whether the proxy has shown these certificates (Request::peer_certificates). Errors:
  // UNAUTHENTICATED.
  absl::Status Recognise(const std::vector<std::string>& certificates) const;

  // The user of a request that came over the proxy. Errors: UNAUTHENTICATED for a client that has
  // not the proxy's certificate, whatever headers it sends, and for one without a user's name.
  absl::StatusOr<UserInfo> UserOf(const http_server::Request& request) const;
};

// The API server's proxy as the ConfigMap describes it at the moment. Thread safe.
class FrontProxyWatch {
 public:
  // Starts a watch; `client` must live until the end. Errors: those of ObjectCache::Create().
  static absl::StatusOr<std::unique_ptr<FrontProxyWatch>> Create(Client& client,
                                                                 ops::EventLog& log);

  // Errors: UNAVAILABLE before the ConfigMap was read, or if it can't be used: what was usable
  // before is forgotten, since it may have been revoked.
  absl::StatusOr<std::shared_ptr<const FrontProxy>> Current() const;

 private:
  explicit FrontProxyWatch(ops::EventLog& log) : log_(log) {}
  void Take(const Object& object);
  void Drop();

  ops::EventLog& log_;
  mutable std::mutex mutex_;
  std::shared_ptr<const FrontProxy> current_;
  std::unique_ptr<ObjectCache> cache_;  // last: its handlers use the others
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_FRONT_PROXY_H_
