#include "cbt/ops/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <chrono>
#include <exception>
#include <mutex>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cbt::ops {
namespace {

using rpc::StreamKind;
using rpc::StreamReport;

// By the last one.
constexpr size_t kApis = static_cast<size_t>(rpc::Api::kPaged) + 1;

const prometheus::Histogram::BucketBoundaries& Seconds() {
  static const prometheus::Histogram::BucketBoundaries boundaries = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800};
  return boundaries;
}

prometheus::Labels LabelsOf(const StreamKind& kind) {
  return {{"api", std::string(rpc::ApiName(kind.api))},
          {"method", kind.delta ? "delta" : "allocated"}};
}

double InSeconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

class PrometheusMetrics final : public Metrics {
 public:
  PrometheusMetrics()
      : registry_(std::make_shared<prometheus::Registry>()),
        streams_(Counter("cbt_streams_total", "Streams and pages that ended")),
        in_flight_(prometheus::BuildGauge()
                       .Name("cbt_streams_in_flight")
                       .Help("Streams and pages that are open")
                       .Register(*registry_)),
        resumes_(Counter("cbt_stream_resumes_total", "Streams that began past offset 0")),
        tuples_(Counter("cbt_stream_tuples_total", "Tuples sent")),
        reported_(Counter("cbt_stream_reported_bytes_total", "Bytes of volumes reported")),
        wire_(Counter("cbt_stream_wire_bytes_total", "Bytes of messages sent")),
        first_(Histogram("cbt_stream_first_message_seconds", "Time to the first message")),
        total_(Histogram("cbt_stream_seconds", "Time from a stream's begin to its end")) {}

  // May throw.
  void Listen(const std::string& address) {
    exposer_ = std::make_unique<prometheus::Exposer>(address, 1);
    exposer_->RegisterCollectable(registry_);
    const std::vector<int> ports = exposer_->GetListeningPorts();
    if (!ports.empty()) port_ = ports.front();
  }

  std::string Text() const override {
    return prometheus::TextSerializer().Serialize(registry_->Collect());
  }
  int port() const noexcept override { return port_; }

  void OnOpen(const StreamKind& kind) noexcept override {
    const std::lock_guard lock(mutex_);
    Series& series = SeriesOf(kind);
    ++series.open;
    if (!Have(kind, series)) return;
    series.in_flight->Set(series.open);
    if (kind.resumed) series.resumes->Increment();
  }

  void OnClose(const StreamReport& report) noexcept override {
    const std::lock_guard lock(mutex_);
    Series& series = SeriesOf(report.kind);
    --series.open;
    if (!Have(report.kind, series)) return;
    series.in_flight->Set(series.open);
    series.tuples->Increment(static_cast<double>(report.tuples));
    series.reported->Increment(static_cast<double>(report.reported_bytes));
    series.wire->Increment(static_cast<double>(report.wire_bytes));
    if (report.messages > 0) series.first->Observe(InSeconds(report.to_first_message));
    series.total->Observe(InSeconds(report.total));
    CountEnd(report);
  }

 private:
  // What is told of one kind of streams. The pointers are null until there was memory for them.
  struct Series {
    // Counted here, so that the gauge is right again after a time without memory.
    double open = 0;
    prometheus::Gauge* in_flight = nullptr;
    prometheus::Counter* resumes = nullptr;
    prometheus::Counter* tuples = nullptr;
    prometheus::Counter* reported = nullptr;
    prometheus::Counter* wire = nullptr;
    prometheus::Histogram* first = nullptr;
    prometheus::Histogram* total = nullptr;
  };

  // Requires the lock.
  Series& SeriesOf(const StreamKind& kind) noexcept {
    return series_.at(static_cast<size_t>(kind.api)).at(kind.delta ? 1 : 0);
  }

  // False, and nothing is counted, where there is no memory. Requires the lock.
  bool Have(const StreamKind& kind, Series& series) noexcept try {
    // The one that is made last.
    if (series.total != nullptr) return true;
    const prometheus::Labels labels = LabelsOf(kind);
    series.in_flight = &in_flight_.Add(labels);
    series.resumes = &resumes_.Add(labels);
    series.tuples = &tuples_.Add(labels);
    series.reported = &reported_.Add(labels);
    series.wire = &wire_.Add(labels);
    series.first = &first_.Add(labels, Seconds());
    series.total = &total_.Add(labels, Seconds());
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }

  void CountEnd(const StreamReport& report) noexcept try {
    prometheus::Labels labels = LabelsOf(report.kind);
    labels["code"] = absl::StatusCodeToString(report.code);
    streams_.Add(labels).Increment();
  } catch (const std::bad_alloc&) {
    return;
  }

  prometheus::Family<prometheus::Counter>& Counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_);
  }
  prometheus::Family<prometheus::Histogram>& Histogram(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_);
  }

  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& streams_;
  prometheus::Family<prometheus::Gauge>& in_flight_;
  prometheus::Family<prometheus::Counter>& resumes_;
  prometheus::Family<prometheus::Counter>& tuples_;
  prometheus::Family<prometheus::Counter>& reported_;
  prometheus::Family<prometheus::Counter>& wire_;
  prometheus::Family<prometheus::Histogram>& first_;
  prometheus::Family<prometheus::Histogram>& total_;
  std::mutex mutex_;
  std::array<std::array<Series, 2>, kApis> series_;  // by contract; allocated and delta
  std::unique_ptr<prometheus::Exposer> exposer_;
  int port_ = 0;
};

}  // namespace

std::unique_ptr<Metrics> Metrics::Create() { return std::make_unique<PrometheusMetrics>(); }

absl::StatusOr<std::unique_ptr<Metrics>> Metrics::Serve(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size() ||
      address.find_first_not_of("0123456789", colon + 1) != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("metrics: '", address, "': expected host:port"));
  }
  auto metrics = std::make_unique<PrometheusMetrics>();
  try {
    metrics->Listen(address);
  } catch (const std::exception&) {
    return absl::UnavailableError(absl::StrCat("metrics: ", address, ": can't listen there"));
  }
  return metrics;
}

}  // namespace cbt::ops
