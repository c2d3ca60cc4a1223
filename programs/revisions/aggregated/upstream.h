// Asks the HTTPS services of drivers for pages.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_UPSTREAM_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_UPSTREAM_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "programs/revisions/aggregated/api/delta_page.h"
#include "programs/revisions/aggregated/api/driver_discovery.h"

namespace cbt::kube::aggregated {

// Keeps a client, and with it connections, for each service that was asked lately. Thread safe;
// functions wait for the service, so they must not run in a callback of a client.
class Upstream {
 public:
  // Services whose connections are kept.
  static constexpr size_t kMaxServices = 64;

  // The files of the certificate that services ask for, and its key.
  Upstream(std::string certificate_file, std::string key_file)
      : certificate_file_(std::move(certificate_file)), key_file_(std::move(key_file)) {}

  // Whole pages only: OK if all of it has come and makes sense. Each block goes to `take` as it
  // comes, and nothing of the answer is kept. `take` runs in a thread of the client.
  // Errors: the service's (UNAVAILABLE, DEADLINE_EXCEEDED, ABORTED, ...), DATA_LOSS for a page that
  //         is cut or wrong.
  absl::Status ReadPage(const DriverDiscovery& service, const DeltaPageRequest& request,
                        std::chrono::milliseconds timeout, PageReader& reader,
                        const std::function<void(const PageBlock&)>& take);

  // Ends all calls that are under way; further ones end at once. CANCELLED.
  void Stop();

  // OK if the service says that it is ready.
  absl::Status Check(const DriverDiscovery& service, std::chrono::milliseconds timeout);

 private:
  using ClientPtr = std::shared_ptr<Client>;

  absl::StatusOr<ClientPtr> ClientOf(const DriverDiscovery& service);

  const std::string certificate_file_;
  const std::string key_file_;
  struct Entry {
    std::string server;
    std::string ca;
    ClientPtr client;
  };
  std::mutex mutex_;
  bool stopped_ = false;
  std::list<Entry> clients_;  // the one used longest ago first
  std::list<Call> calls_;     // pages under way
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_UPSTREAM_H_
