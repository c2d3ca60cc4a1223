// Where the HTTPS service of a driver is: the object of the proposal's second revision.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_API_DRIVER_DISCOVERY_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_API_DRIVER_DISCOVERY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/object.h"

namespace cbt::kube::aggregated {

// Another version than that of VolumeSnapshotDelta: the API server hands a whole version of a group
// to an aggregated server, and would not serve a definition in it.
inline constexpr Resource kDriverDiscoveries{"cbt.storage.k8s.io", "v1alpha2", "driverdiscoveries",
                                             "DriverDiscovery", false};

inline constexpr uint64_t kDefaultBlockSize = 4096;
// A power of two from 512 to 64 MiB. Errors: INVALID_ARGUMENT.
absl::Status CheckBlockSize(uint64_t block_size);

// A Service of the cluster.
struct ServiceReference {
  std::string name_space = {};
  std::string name = {};
  int64_t port = 443;
  std::string path = {};
  friend bool operator==(const ServiceReference&, const ServiceReference&) = default;
};

// What a client connects to.
struct Endpoint {
  std::string server = {};  // "https://host:port"
  std::string path = {};    // "" or "/path"
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

struct DriverDiscovery {
  static constexpr Resource kResource = kDriverDiscoveries;

  ObjectMeta meta = {};
  std::string driver = {};
  // Exactly one of the two.
  std::string url = {};
  std::optional<ServiceReference> service = {};
  std::string ca = {};  // PEM; empty: the system's authorities
  // The size in bytes of the blocks that offsets count. Never changes: numbers that a client has
  // kept would mean other places.
  uint64_t block_size = kDefaultBlockSize;

  // Errors: INVALID_ARGUMENT with the field: no driver's name, neither a URL nor a Service, both, a
  //         URL that is not https, a port or a block size that can't be.
  static absl::StatusOr<DriverDiscovery> Decode(const Object& object);
  Object Encode() const;

  Endpoint endpoint() const;
};

// "https://host[:port][/path]", without user, query and fragment.
// Errors: INVALID_ARGUMENT.
absl::StatusOr<Endpoint> ParseHttpsUrl(std::string_view url);

// The condition Reachable in the status.
struct Reachability {
  bool reachable = false;
  std::string reason = {};  // "Answers", in CamelCase
  std::string message = {};
};
// Writes it to an object that was read, and leaves all else as it is; `now` becomes the time of the
// transition if it is one. False: nothing has changed.
bool SetReachability(Object& object, const Reachability& is, Time now);

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_API_DRIVER_DISCOVERY_H_
