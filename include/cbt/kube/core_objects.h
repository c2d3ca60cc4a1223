// Secrets, config maps and leases. Part of cbt::kube.
#ifndef CBT_KUBE_CORE_OBJECTS_H_
#define CBT_KUBE_CORE_OBJECTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/kube/object.h"
#include "cbt/kube/resource.h"
#include "cbt/secrets.h"
#include "cbt/version.h"

namespace cbt::kube {

struct SecretObject {
  static constexpr Resource kResource = kSecrets;

  ObjectMeta meta = {};
  std::string type = {};  // "Opaque", "kubernetes.io/tls"
  Secrets data = {};      // decoded

  static absl::StatusOr<SecretObject> Decode(const Object& object);
  Object Encode() const;
};

struct ConfigMap {
  static constexpr Resource kResource = kConfigMaps;

  ObjectMeta meta = {};
  std::map<std::string, std::string> data = {};

  static absl::StatusOr<ConfigMap> Decode(const Object& object);
  Object Encode() const;
};

// Who leads, and until when unless it says so again.
struct Lease {
  static constexpr Resource kResource = kLeases;

  ObjectMeta meta = {};
  std::string holder = {};  // empty: none
  std::optional<int64_t> duration_seconds = {};
  std::optional<Time> acquire_time = {};
  std::optional<Time> renew_time = {};
  int64_t transitions = 0;

  static absl::StatusOr<Lease> Decode(const Object& object);
  Object Encode() const;
  // Writes these fields to an object that was read, and leaves all others as they are.
  void WriteTo(Object& object) const;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_CORE_OBJECTS_H_
