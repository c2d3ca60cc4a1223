// Prometheus metrics of servers and relays. Part of cbt::ops.
//
//   auto metrics = cbt::ops::Metrics::Serve("127.0.0.1:9100");
//   options.telemetry.observer = metrics->get();
//
// Labels are the contract, the method and the status code: never a snapshot's name, so their number
// has a bound.
//
//   cbt_streams_total{api,method,code}          streams and pages that ended
//   cbt_stream_ends_total{api,method,reason}    the same by cause (cbt::rpc::EndReasonName())
//   cbt_streams_in_flight{api,method}           that are open now
//   cbt_stream_resumes_total{api,method}        that began past offset 0
//   cbt_stream_tuples_total{api,method}         tuples sent
//   cbt_stream_reported_bytes_total{api,method} bytes of volumes reported by them
//   cbt_stream_wire_bytes_total{api,method}     bytes of messages sent
//   cbt_stream_first_message_seconds{api,method}  histogram: time to the first message
//   cbt_stream_seconds{api,method}                histogram: time from begin to end
//   cbt_server_connections                      connections of clients
//   cbt_server_waiting_calls                    calls whose request has not come whole
//   cbt_server_small_calls                      open calls of Identity and of health checks
//   cbt_server_health_watches                   open health watches
//   cbt_server_overdue_calls                    cancelled calls that the transport still keeps
//   cbt_server_events_total{event}              what else happens (cbt::rpc::ServerEventName())
//   process_resident_memory_bytes               memory of the process
//
// cbt_server_* are those of one server: give each of several its own metrics.
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
  // As above, and serves them, in one thread and to few clients at a time, at
  // http://`address`/metrics; `address` is host:port, port 0 any free one. Errors: INVALID_ARGUMENT
  // for an address of another form, UNAVAILABLE when listening fails.
  static absl::StatusOr<std::unique_ptr<Metrics>> Serve(const std::string& address);

  // What a scrape gets.
  virtual std::string Text() const = 0;
  // The port in use; 0 without Serve().
  virtual int port() const noexcept = 0;
};

}  // namespace cbt::ops

#endif  // CBT_OPS_METRICS_H_
