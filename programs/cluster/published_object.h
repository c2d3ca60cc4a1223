// The objects in which clients find where the driver's service is.
#ifndef CBT_PROGRAMS_CLUSTER_PUBLISHED_OBJECT_H_
#define CBT_PROGRAMS_CLUSTER_PUBLISHED_OBJECT_H_

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "cbt/kube/object.h"
#include "programs/cluster/driver.h"
#include "programs/cluster/objects.h"

namespace cbt::kube::cluster {

// The audience that a publishing sidecar publishes: the configured one, or else the driver's name.
std::string PublishedAudience(const std::string& configured, const std::string& driver);

class PublishedObject {
 public:
  virtual ~PublishedObject() = default;
  virtual Resource resource() const = 0;
  // As it should be. `authorities`: PEM of those that clients trust.
  virtual Object Make(const std::string& driver, const std::string& authorities) const = 0;
  // Whether the cluster has it so; nothing: not known.
  virtual std::optional<bool> IsCurrent(const std::string& driver,
                                        const std::string& authorities) const = 0;
};

// The SnapshotMetadataService that has the driver's name.
class PublishedService final : public PublishedObject {
 public:
  // `watched` and `plugin` must outlive the object. `audience`: see PublishedAudience().
  PublishedService(Objects& watched, const Driver& plugin, std::string address,
                   std::string audience)
      : watched_(watched),
        plugin_(plugin),
        address_(std::move(address)),
        audience_(std::move(audience)) {}

  Resource resource() const override { return kSnapshotMetadataServices; }
  Object Make(const std::string& driver, const std::string& authorities) const override;
  std::optional<bool> IsCurrent(const std::string& driver,
                                const std::string& authorities) const override;

 private:
  Objects& watched_;
  const Driver& plugin_;
  const std::string address_;
  const std::string audience_;
  // When the object was last found to say that bases are needed, where they are not: a CRD of an
  // earlier version drops the field, and writing it anew would not help. One thread.
  mutable std::optional<std::chrono::steady_clock::time_point> offered_;
};

// The SnapshotServicesConfiguration of the proposal's first revision. It is not watched.
class PublishedConfiguration final : public PublishedObject {
 public:
  // `name`: of the object; empty: the driver's. `name_space`: where data of sessions belongs.
  PublishedConfiguration(std::string address, std::string name, std::string name_space)
      : address_(std::move(address)), name_(std::move(name)), name_space_(std::move(name_space)) {}

  Resource resource() const override;
  Object Make(const std::string& driver, const std::string& authorities) const override;
  std::optional<bool> IsCurrent(const std::string&, const std::string&) const override {
    return std::nullopt;
  }

 private:
  const std::string address_;
  const std::string name_;
  const std::string name_space_;
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_PUBLISHED_OBJECT_H_
