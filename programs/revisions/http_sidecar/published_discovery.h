// The DriverDiscovery of a sidecar.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PUBLISHED_DISCOVERY_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PUBLISHED_DISCOVERY_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "cbt/kube/watch.h"
#include "programs/cluster/published_object.h"
#include "programs/revisions/aggregated/api/driver_discovery.h"

namespace cbt::kube::http_sidecar {

// Named as the driver. Only the leader publishes: others take the object as it is.
class PublishedDiscovery final : public cluster::PublishedObject {
 public:
  // `model`: all but name, driver and CA. `watched` must outlive the object.
  PublishedDiscovery(aggregated::DriverDiscovery model, const ObjectCache& watched,
                     std::function<bool()> may_publish)
      : model_(std::move(model)), watched_(watched), may_publish_(std::move(may_publish)) {}

  Resource resource() const override { return aggregated::kDriverDiscoveries; }
  Object Make(const std::string& driver, const std::string& authorities) const override {
    aggregated::DriverDiscovery discovery = model_;
    discovery.meta.name = driver;
    discovery.driver = driver;
    discovery.ca = authorities;
    return discovery.Encode();
  }
  std::optional<bool> IsCurrent(const std::string& driver,
                                const std::string& authorities) const override {
    if (!may_publish_()) return true;
    if (!watched_.state().synced) return std::nullopt;
    const auto found = watched_.FindAs<aggregated::DriverDiscovery>("", driver);
    return found.ok() && found->driver == driver && found->url == model_.url &&
           found->service == model_.service && found->ca == authorities &&
           found->block_size == model_.block_size;
  }

 private:
  const aggregated::DriverDiscovery model_;
  const ObjectCache& watched_;
  const std::function<bool()> may_publish_;
};

}  // namespace cbt::kube::http_sidecar

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PUBLISHED_DISCOVERY_H_
