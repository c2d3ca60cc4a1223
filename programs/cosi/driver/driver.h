// A COSI driver: a socket with the methods of three revisions, and pages for probes and metrics.
#ifndef CBT_PROGRAMS_COSI_DRIVER_DRIVER_H_
#define CBT_PROGRAMS_COSI_DRIVER_DRIVER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/rpc/telemetry.h"
#include "ops/http_page.h"
#include "programs/cosi/driver/bucket_store.h"

namespace cbt::cosi {

struct CosiDriverOptions {
  // unix:///path of the socket. A socket that a killed driver left is replaced.
  std::string endpoint = "unix:///var/lib/cosi/cosi.sock";
  std::string driver_name = "cbt.cosi.example.com";
  // Called once; `stop` ends what the store waits for.
  std::function<absl::StatusOr<std::unique_ptr<BucketStore>>(std::stop_token stop)> open_store = {};
  size_t threads = 16;             // calls that wait for the backend at a time
  std::string http_endpoint = {};  // host:port of /metrics, /healthz, /livez and /readyz
  ops::PageAccess page_access = {};
  rpc::LogSink* log = nullptr;  // may be null; must outlive the driver
};

class CosiDriver {
 public:
  // Errors: INVALID_ARGUMENT for options that can't be; those of the store, of the socket and of
  // the pages.
  static absl::StatusOr<std::unique_ptr<CosiDriver>> Start(const CosiDriverOptions& options);
  // Shutdown() without grace.
  ~CosiDriver();
  CosiDriver(const CosiDriver&) = delete;
  CosiDriver& operator=(const CosiDriver&) = delete;

  std::string address() const;
  // Waits for open calls; after `grace`, those still waiting for the backend end with CANCELLED.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit CosiDriver(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_DRIVER_H_
