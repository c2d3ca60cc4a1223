#include "ops/metric_set.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/labels.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace cbt::ops {

class MetricSet::Core {
 public:
  struct ReadGauge {
    prometheus::Gauge& gauge;
    std::function<double()> read;
  };
  struct ReadCounter {
    prometheus::Counter& counter;
    std::function<double()> read;
  };

  std::string Text() {
    const std::lock_guard lock(mutex);
    for (const ReadGauge& one : gauges) one.gauge.Set(one.read());
    for (const ReadCounter& one : counters) {
      one.counter.Increment(std::max(0.0, one.read() - one.counter.Value()));
    }
    return prometheus::TextSerializer().Serialize(registry.Collect());
  }

  prometheus::Registry registry;
  std::mutex mutex;
  std::vector<ReadGauge> gauges;
  std::vector<ReadCounter> counters;
};

void MetricSet::Counter::operator++() noexcept { counter_->Increment(); }

MetricSet::Counter::operator uint64_t() const noexcept {
  return static_cast<uint64_t>(counter_->Value());
}

MetricSet::MetricSet() : core_(std::make_unique<Core>()) {}

MetricSet::~MetricSet() = default;

MetricSet::Counter MetricSet::AddCounter(const std::string& name, const std::string& help,
                                         const std::string& label, const std::string& value) {
  // A family of the same name is the same one.
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(core_->registry);
  if (label.empty()) return Counter(family.Add({}));
  return Counter(family.Add({{label, value}}));
}

void MetricSet::AddCounter(const std::string& name, const std::string& help,
                           std::function<double()> read) {
  auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(core_->registry);
  const std::lock_guard lock(core_->mutex);
  core_->counters.push_back({.counter = family.Add({}), .read = std::move(read)});
}

void MetricSet::AddGauge(const std::string& name, const std::string& help,
                         std::function<double()> read, const std::string& label,
                         const std::string& value) {
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(core_->registry);
  const std::lock_guard lock(core_->mutex);
  prometheus::Labels labels;
  if (!label.empty()) labels.emplace(label, value);
  core_->gauges.push_back({.gauge = family.Add(labels), .read = std::move(read)});
}

std::string MetricSet::Text() const { return core_->Text(); }

}  // namespace cbt::ops
