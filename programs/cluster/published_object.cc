#include "programs/cluster/published_object.h"

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/typed_objects.h"
#include "programs/cluster/session_objects.h"

namespace cbt::kube::cluster {

namespace {

constexpr std::chrono::minutes kOfferPause{5};

}  // namespace

std::string PublishedAudience(const std::string& configured, const std::string& driver) {
  return configured.empty() ? driver : configured;
}

Object PublishedService::Make(const std::string& driver, const std::string& authorities) const {
  SnapshotMetadataService service;
  service.meta.name = driver;
  service.audience = PublishedAudience(audience_, driver);
  service.address = address_;
  service.ca = authorities;
  service.requires_base = plugin_.requires_base();
  return service.Encode();
}

std::optional<bool> PublishedService::IsCurrent(const std::string& driver,
                                                const std::string& authorities) const {
  std::optional<bool> current;
  watched_.GetService(driver, [&](const absl::StatusOr<SnapshotMetadataService>& service) {
    if (absl::IsNotFound(service.status())) current = false;
    if (!service.ok()) return;
    current = service->address == address_ && service->ca == authorities &&
              service->audience == PublishedAudience(audience_, driver);
    if (service->requires_base == plugin_.requires_base()) return;
    const auto now = std::chrono::steady_clock::now();
    if (service->requires_base && offered_.has_value() && now - *offered_ < kOfferPause) return;
    offered_ = now;
    current = false;
  });
  return current;
}

Resource PublishedConfiguration::resource() const { return kSnapshotServicesConfigurations; }

Object PublishedConfiguration::Make(const std::string& driver,
                                    const std::string& authorities) const {
  SnapshotServicesConfiguration configuration;
  configuration.meta.name = name_.empty() ? driver : name_;
  configuration.meta.labels[std::string(kDriverLabel)] = driver;
  configuration.address = address_;
  configuration.ca = authorities;
  configuration.driver_namespace = name_space_;
  return configuration.Encode();
}

}  // namespace cbt::kube::cluster
