// Prometheus metrics of servers and relays. Part of cbt::ops.
//
// snippet: tests/consumer/snippets/ops.cc#metrics
//   auto metrics = cbt::ops::Metrics::Serve("127.0.0.1:9100");
//   if (!metrics.ok()) return metrics.status();
//   options.service.telemetry.observer = metrics->get();
//
// Labels never hold a snapshot's name, so the number of series is bounded.
//
//   cbt_streams_total{api,method,code}          streams and pages that ended
//   cbt_stream_ends_total{api,method,reason}    the same by cause (cbt::rpc::EndReasonName())
//   cbt_streams_in_flight{api,method}           streams and pages that are open
//   cbt_stream_resumes_total{api,method}        streams that began past offset 0
//   cbt_stream_tuples_total{api,method}         tuples sent
//   cbt_stream_reported_bytes_total{api,method} bytes of volumes that these tuples report
//   cbt_stream_wire_bytes_total{api,method}     bytes of messages sent
//   cbt_stream_first_message_seconds{api,method}  histogram: time to the first message
//   cbt_stream_seconds{api,method}                histogram: total time
//   cbt_server_connections                      connections of clients
//   cbt_server_waiting_calls                    calls whose request has not fully arrived
//   cbt_server_small_calls                      open calls of Identity and of health checks
//   cbt_server_health_watches                   open health watches
//   cbt_server_overdue_calls                    cancelled calls that the transport has not released
//   cbt_server_memory_bytes                     memory that connections hold
//   cbt_server_connections_accepted_total       connections that were accepted
//   cbt_server_received_bytes_total             bytes of HTTP/2, without TLS
//   cbt_server_sent_bytes_total                 the same, to clients
//   cbt_server_resets_total                     streams that clients have reset
//   cbt_server_events_total{event}              other events (cbt::rpc::ServerEventName())
//   cbt_certificate_expiry_timestamp_seconds{file}  see AddCertificate(); in seconds since 1970
//   process_resident_memory_bytes               memory of the process
//   process_start_time_seconds                  its start, in seconds since 1970
//
// cbt_server_* describe one server: give each server its own Metrics.
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
  // Metrics that are not served; see Text().
  static std::unique_ptr<Metrics> Create();
  // As above, and serves them at http://`address`/metrics, in one thread and to few clients at a
  // time. `address` is host:port; port 0 takes any free one. Errors: INVALID_ARGUMENT for a
  // malformed address, UNAVAILABLE if listening fails.
  static absl::StatusOr<std::unique_ptr<Metrics>> Serve(const std::string& address);

  // From now on cbt_certificate_expiry_timestamp_seconds{file} says when the first certificate of
  // the file (PEM) ends. Nothing for an empty name.
  virtual void AddCertificate(const std::string& file) = 0;

  // The text that a scrape returns.
  virtual std::string Text() const = 0;
  // The port in use; 0 without Serve().
  virtual int port() const noexcept = 0;
};

}  // namespace cbt::ops

#endif  // CBT_OPS_METRICS_H_
