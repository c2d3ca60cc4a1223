// The aggregated API server of the proposal's second revision, with its discovery controller.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_AGGREGATED_API_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_AGGREGATED_API_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "programs/revisions/aggregated/options.h"

namespace cbt::kube::aggregated {

// A running server. Any number of them serve the same cluster; they share nothing. Thread safe.
class AggregatedApi {
 public:
  // The API server need not be there yet.
  // Errors: INVALID_ARGUMENT for options that can't work, those of HttpServer::Start() and
  //         Client::Create(), UNAVAILABLE if the HTTP endpoint can't listen.
  static absl::StatusOr<std::unique_ptr<AggregatedApi>> Start(Options options);

  // Calls Shutdown() without grace unless it was called before.
  ~AggregatedApi();
  AggregatedApi(const AggregatedApi&) = delete;
  AggregatedApi& operator=(const AggregatedApi&) = delete;

  // Callers can be recognised, and the objects in the cluster are known.
  bool ready() const;
  const std::string& address() const noexcept;
  int http_port() const noexcept;  // or 0

  // Not ready from the beginning on; requests under way are answered for up to `grace`.
  void Shutdown(std::chrono::milliseconds grace);

 private:
  class Impl;
  explicit AggregatedApi(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_AGGREGATED_API_H_
