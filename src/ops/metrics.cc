#include "cbt/ops/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/certificate_end.h"
#include "ops/http_page.h"
#include "ops/metric_set.h"

namespace cbt::ops {
namespace {

using rpc::StreamKind;
using rpc::StreamReport;

// From the last enumerator.
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

// 0 if the system does not report it.
double ResidentBytes() noexcept {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/self/statm", "re"),
                                                   &std::fclose);
  // The total size, then the resident size, in pages.
  std::array<char, 128> line = {};
  if (file == nullptr || std::fgets(line.data(), line.size(), file.get()) == nullptr) return 0;
  char* resident = nullptr;
  std::strtoull(line.data(), &resident, 10);
  return static_cast<double>(std::strtoull(resident, nullptr, 10)) *
         static_cast<double>(sysconf(_SC_PAGESIZE));
}

// The start of the process in seconds since 1970; 0 if the system does not report it.
double StartTime() noexcept {
  const auto read = [](const char* path, std::array<char, 4096>& text) {
    const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path, "re"), &std::fclose);
    if (file == nullptr) return false;
    text[std::fread(text.data(), 1, text.size() - 1, file.get())] = '\0';
    return true;
  };
  // Field 22, in clock ticks since the boot. The name of the program, in parentheses, may hold
  // blanks.
  std::array<char, 4096> text = {};
  if (!read("/proc/self/stat", text)) return 0;
  const char* at = std::strrchr(text.data(), ')');
  for (int field = 2; at != nullptr && field < 22; ++field) at = std::strchr(at + 1, ' ');
  if (at == nullptr) return 0;
  const double ticks = static_cast<double>(std::strtoull(at, nullptr, 10));
  timespec uptime = {};
  if (clock_gettime(CLOCK_BOOTTIME, &uptime) != 0) return 0;
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now - static_cast<double>(uptime.tv_sec) - static_cast<double>(uptime.tv_nsec) / 1e9 +
         ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

class PrometheusMetrics final : public Metrics {
 public:
  PrometheusMetrics()
      : registry_(std::make_shared<prometheus::Registry>()),
        streams_(Counter("cbt_streams_total", "Streams and pages that ended")),
        ends_(Counter("cbt_stream_ends_total", "Streams and pages that ended, by cause")),
        events_(Counter("cbt_server_events_total", "Server events that are not part of a stream")),
        connections_(Gauge("cbt_server_connections", "Connections of clients")),
        waiting_(Gauge("cbt_server_waiting_calls", "Calls whose request has not fully arrived")),
        small_calls_(
            Gauge("cbt_server_small_calls", "Open calls of Identity and of health checks")),
        watches_(Gauge("cbt_server_health_watches", "Open health watches")),
        overdue_(Gauge("cbt_server_overdue_calls",
                       "Cancelled calls that the transport has not released")),
        held_(Gauge("cbt_server_memory_bytes", "Memory that connections hold")),
        accepted_(Total("cbt_server_connections_accepted_total", "Connections that were accepted")),
        received_(Total("cbt_server_received_bytes_total", "Bytes of HTTP/2 received")),
        sent_(Total("cbt_server_sent_bytes_total", "Bytes of HTTP/2 sent")),
        resets_(Total("cbt_server_resets_total", "Streams that clients have reset")),
        memory_(Gauge("process_resident_memory_bytes", "Resident memory of the process")),
        in_flight_(prometheus::BuildGauge()
                       .Name("cbt_streams_in_flight")
                       .Help("Streams and pages that are open")
                       .Register(*registry_)),
        resumes_(Counter("cbt_stream_resumes_total", "Streams that began past offset 0")),
        tuples_(Counter("cbt_stream_tuples_total", "Tuples sent")),
        reported_(Counter("cbt_stream_reported_bytes_total", "Bytes of volumes reported")),
        wire_(Counter("cbt_stream_wire_bytes_total", "Bytes of messages sent")),
        first_(Histogram("cbt_stream_first_message_seconds", "Time to the first message")),
        total_(Histogram("cbt_stream_seconds", "Total time of streams")) {
    Gauge("process_start_time_seconds", "Start of the process, in seconds since 1970")
        .Set(StartTime());
  }

  // May throw.
  void Listen(const std::string& host, const std::string& port) {
    page_ = std::make_unique<HttpPage>(host, port,
                                       [this](std::string_view path) -> std::optional<HttpAnswer> {
                                         if (path != "/metrics") return std::nullopt;
                                         return HttpAnswer{.text = Text()};
                                       });
  }

  std::string Text() const override {
    memory_.Set(ResidentBytes());
    return prometheus::TextSerializer().Serialize(registry_->Collect()) + certificates_.Text();
  }
  void AddCertificate(const std::string& file) override { AddCertificateEnd(certificates_, file); }
  int port() const noexcept override { return page_ == nullptr ? 0 : page_->port(); }

  void OnState(const rpc::ServerState& state) noexcept override {
    connections_.Set(static_cast<double>(state.connections));
    waiting_.Set(static_cast<double>(state.waiting));
    small_calls_.Set(static_cast<double>(state.small_calls));
    watches_.Set(static_cast<double>(state.health_watches));
    overdue_.Set(static_cast<double>(state.overdue));
    held_.Set(static_cast<double>(state.memory));
    Raise(accepted_, state.accepted);
    Raise(received_, state.received);
    Raise(sent_, state.sent);
    Raise(resets_, state.resets);
  }

  void OnEvent(rpc::ServerEvent event) noexcept override try {
    events_.Add({{"event", std::string(rpc::ServerEventName(event))}}).Increment();
  } catch (const std::bad_alloc&) {
    return;
  }

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
  // The metrics of one kind of streams. The pointers are null until there is memory for them.
  struct Series {
    // Counted here, so that the gauge is right again after running out of memory.
    double open = 0;
    prometheus::Gauge* in_flight = nullptr;
    prometheus::Counter* resumes = nullptr;
    prometheus::Counter* tuples = nullptr;
    prometheus::Counter* reported = nullptr;
    prometheus::Counter* wire = nullptr;
    prometheus::Histogram* first = nullptr;
    prometheus::Histogram* total = nullptr;
  };

  // Brings a counter up to a sum.
  static void Raise(prometheus::Counter& counter, uint64_t sum) {
    const double more = static_cast<double>(sum) - counter.Value();
    if (more > 0) counter.Increment(more);
  }

  // Requires the lock.
  Series& SeriesOf(const StreamKind& kind) noexcept {
    return series_.at(static_cast<size_t>(kind.api)).at(kind.delta ? 1 : 0);
  }

  // False, and nothing is counted, if there is no memory. Requires the lock.
  bool Have(const StreamKind& kind, Series& series) noexcept try {
    // Created last.
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
    labels.erase("code");
    labels["reason"] = std::string(rpc::EndReasonName(report.reason));
    ends_.Add(labels).Increment();
  } catch (const std::bad_alloc&) {
    return;
  }

  prometheus::Family<prometheus::Counter>& Counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(*registry_);
  }
  prometheus::Counter& Total(const char* name, const char* help) {
    return Counter(name, help).Add({});
  }
  prometheus::Gauge& Gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(*registry_).Add({});
  }
  prometheus::Family<prometheus::Histogram>& Histogram(const char* name, const char* help) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(*registry_);
  }

  const std::shared_ptr<prometheus::Registry> registry_;
  prometheus::Family<prometheus::Counter>& streams_;
  prometheus::Family<prometheus::Counter>& ends_;
  prometheus::Family<prometheus::Counter>& events_;
  prometheus::Gauge& connections_;
  prometheus::Gauge& waiting_;
  prometheus::Gauge& small_calls_;
  prometheus::Gauge& watches_;
  prometheus::Gauge& overdue_;
  prometheus::Gauge& held_;
  prometheus::Counter& accepted_;
  prometheus::Counter& received_;
  prometheus::Counter& sent_;
  prometheus::Counter& resets_;
  prometheus::Gauge& memory_;
  prometheus::Family<prometheus::Gauge>& in_flight_;
  prometheus::Family<prometheus::Counter>& resumes_;
  prometheus::Family<prometheus::Counter>& tuples_;
  prometheus::Family<prometheus::Counter>& reported_;
  prometheus::Family<prometheus::Counter>& wire_;
  prometheus::Family<prometheus::Histogram>& first_;
  prometheus::Family<prometheus::Histogram>& total_;
  MetricSet certificates_;
  std::mutex mutex_;
  std::array<std::array<Series, 2>, kApis> series_;  // by contract; allocated and delta
  // Created last: it may call Text() at once.
  std::unique_ptr<HttpPage> page_;
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
    metrics->Listen(address.substr(0, colon), address.substr(colon + 1));
  } catch (const std::exception&) {
    return absl::UnavailableError(
        absl::StrCat("metrics: ", address, ": can't listen on this address"));
  }
  return metrics;
}

}  // namespace cbt::ops
