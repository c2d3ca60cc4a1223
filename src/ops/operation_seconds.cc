#include "ops/operation_seconds.h"

#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <array>
#include <cstddef>
#include <new>

namespace cbt::ops {
namespace {

constexpr std::array<std::string_view, 17> kGoCodeNames = {
    "OK",       "Canceled",       "Unknown",          "InvalidArgument",   "DeadlineExceeded",
    "NotFound", "AlreadyExists",  "PermissionDenied", "ResourceExhausted", "FailedPrecondition",
    "Aborted",  "OutOfRange",     "Unimplemented",    "Internal",          "Unavailable",
    "DataLoss", "Unauthenticated"};

}  // namespace

std::string_view GoCodeName(absl::StatusCode code) noexcept {
  const auto number = static_cast<size_t>(code);
  if (number >= kGoCodeNames.size()) return "unknown-non-grpc";
  return kGoCodeNames[number];
}

class OperationSeconds::Core {
 public:
  Core(const std::string& name, const std::string& help)
      : seconds_(prometheus::BuildHistogram().Name(name).Help(help).Register(registry_)) {}

  void Observe(const std::string& driver, std::string_view method, absl::StatusCode code,
               std::chrono::nanoseconds time) {
    const prometheus::Histogram::BucketBoundaries buckets = {0.1, 0.25, 0.5, 1,   2.5, 5,  10,
                                                             15,  25,   50,  120, 300, 600};
    seconds_
        .Add({{"driver_name", driver},
              {"method_name", std::string(method)},
              {"grpc_status_code", std::string(GoCodeName(code))}},
             buckets)
        .Observe(std::chrono::duration<double>(time).count());
  }

  std::string Text() const { return prometheus::TextSerializer().Serialize(registry_.Collect()); }

 private:
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Histogram>& seconds_;
};

OperationSeconds::OperationSeconds(const std::string& name, const std::string& help)
    : core_(std::make_unique<Core>(name, help)) {}

OperationSeconds::~OperationSeconds() = default;

void OperationSeconds::Observe(const std::string& driver, std::string_view method,
                               absl::StatusCode code, std::chrono::nanoseconds time) noexcept try {
  core_->Observe(driver, method, code, time);
} catch (const std::bad_alloc&) {
  return;
}

std::string OperationSeconds::Text() const { return core_->Text(); }

}  // namespace cbt::ops
