// Counters and gauges of a program, as text of Prometheus.
#ifndef CBT_OPS_METRIC_SET_H_
#define CBT_OPS_METRIC_SET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace prometheus {
class Counter;
}  // namespace prometheus

namespace cbt::ops {

// Thread safe, but for what adds metrics.
class MetricSet {
 public:
  // Belongs to its set. Thread safe.
  class Counter {
   public:
    void operator++() noexcept;
    operator uint64_t() const noexcept;  // NOLINT(google-explicit-constructor): it is a number

   private:
    friend class MetricSet;
    explicit Counter(prometheus::Counter& counter) : counter_(&counter) {}
    prometheus::Counter* counter_;
  };

  MetricSet();
  ~MetricSet();
  MetricSet(const MetricSet&) = delete;
  MetricSet& operator=(const MetricSet&) = delete;

  // The series NAME{LABEL="VALUE"}; without a label, NAME. Series of one name have the help of the
  // first.
  Counter AddCounter(const std::string& name, const std::string& help,
                     const std::string& label = "", const std::string& value = "");
  // Of a count that is kept elsewhere and never falls. `read` is called by each Text().
  void AddCounter(const std::string& name, const std::string& help, std::function<double()> read);
  // `read` is called by each Text(). Labels as above.
  void AddGauge(const std::string& name, const std::string& help, std::function<double()> read,
                const std::string& label = "", const std::string& value = "");

  // The text that a scrape returns.
  std::string Text() const;

 private:
  class Core;
  const std::unique_ptr<Core> core_;
};

}  // namespace cbt::ops

#endif  // CBT_OPS_METRIC_SET_H_
