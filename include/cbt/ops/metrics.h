// Prometheus metrics of servers and relays. Part of cbt::ops.
//
//   auto metrics = cbt::ops::Metrics::Serve("127.0.0.1:9100");
//   options.telemetry.observer = metrics->get();
//
// Labels are the contract, the method and the status code: never a snapshot's name, so their number
// has a bound.
//
//   cbt_streams_total{api,method,code}          streams and pages that ended
//   cbt_streams_in_flight{api,method}           that are open now
//   cbt_stream_resumes_total{api,method}        that began past offset 0
//   cbt_stream_tuples_total{api,method}         tuples sent
//   cbt_stream_reported_bytes_total{api,method} bytes of volumes reported by them
//   cbt_stream_wire_bytes_total{api,method}     bytes of messages sent
//   cbt_stream_first_message_seconds{api,method}  histogram: time to the first message
//   cbt_stream_seconds{api,method}                histogram: time from begin to end
#ifndef CBT_OPS_METRICS_H_
#define CBT_OPS_METRICS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/rpc/telemetry.h"

namespace cbt::ops {

// Thread safe. Must outlive the servers that observe with it.
class Metrics : public rpc::StreamObserver {
 public:
  // Metrics that only Text() shows.
  static std::unique_ptr<Metrics> Create();
  // As above, and serves them at http://`address`/metrics; `address` is host:port, port 0 any free
  // one. Errors: INVALID_ARGUMENT for an address of another form, UNAVAILABLE when listening fails.
  static absl::StatusOr<std::unique_ptr<Metrics>> Serve(const std::string& address);

  // What a scrape gets.
  virtual std::string Text() const = 0;
  // The port in use; 0 without Serve().
  virtual int port() const noexcept = 0;
};

}  // namespace cbt::ops

#endif  // CBT_OPS_METRICS_H_
