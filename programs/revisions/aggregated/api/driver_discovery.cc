#include "programs/revisions/aggregated/api/driver_discovery.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "kube/object/field_reader.h"
#include "programs/revisions/aggregated/api/strict_fields.h"

namespace cbt::kube::aggregated {
namespace {

constexpr std::string_view kScheme = "https://";
constexpr std::string_view kReachable = "Reachable";

bool IsVisible(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
}

absl::Status CheckPort(int64_t port) {
  if (port < 1 || port > 65535) {
    return WrongField("spec.clientConfig.service.port", "expected 1 to 65535");
  }
  return absl::OkStatus();
}

absl::Status CheckPath(std::string_view path) {
  if (path.empty()) return absl::OkStatus();
  if (path.front() != '/' || !IsVisible(path) ||
      path.find_first_of("?#") != std::string_view::npos) {
    return WrongField("path", "expected a path that begins with /, without a query");
  }
  return absl::OkStatus();
}

absl::Status ReadService(const Object& object, ServiceReference& service) {
  FieldReader reader(object);
  reader.Read(object.String({"spec", "clientConfig", "service", "namespace"}), service.name_space);
  reader.Read(object.String({"spec", "clientConfig", "service", "name"}), service.name);
  reader.Read(object.OptionalInt({"spec", "clientConfig", "service", "port"}), service.port);
  reader.Text({"spec", "clientConfig", "service", "path"}, service.path);
  if (!reader.ok()) return reader.status();
  // Both become part of a host's name.
  for (const std::string& part : {service.name_space, service.name}) {
    if (part.empty() ||
        part.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != std::string::npos) {
      return WrongField("spec.clientConfig.service", "the namespace or the name can't be one");
    }
  }
  if (absl::Status status = CheckPort(service.port); !status.ok()) return status;
  return CheckPath(service.path);
}

}  // namespace

absl::Status CheckBlockSize(uint64_t block_size) {
  if (block_size < 512 || block_size > 64 * kMiB || (block_size & (block_size - 1)) != 0) {
    return absl::InvalidArgumentError("block size: expected a power of two from 512 to 64 MiB");
  }
  return absl::OkStatus();
}

absl::StatusOr<Endpoint> ParseHttpsUrl(std::string_view url) {
  if (!url.starts_with(kScheme)) return WrongField("url", "expected https://HOST[:PORT][/PATH]");
  const std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view host = rest.substr(0, slash);
  const std::string_view path = rest.substr(slash);
  if (host.empty() || host.front() == ':' || !IsVisible(host) ||
      host.find_first_of("@?#\\") != std::string_view::npos) {
    return WrongField("url", "the host can't be one");
  }
  const size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.back() != ']') {
    int port = 0;
    if (!absl::SimpleAtoi(AbslView(host.substr(colon + 1)), &port) || port < 1 || port > 65535) {
      return WrongField("url", "expected a port from 1 to 65535");
    }
  }
  if (absl::Status status = CheckPath(path); !status.ok()) return WrongField("url", "a bad path");
  return Endpoint{.server = std::string(url.substr(0, kScheme.size() + slash)),
                  .path = std::string(path == "/" ? "" : path)};
}

absl::StatusOr<DriverDiscovery> DriverDiscovery::Decode(const Object& object) {
  DriverDiscovery discovery;
  FieldReader reader(object);
  int64_t block_size = static_cast<int64_t>(kDefaultBlockSize);
  reader.Read(object.Meta(), discovery.meta);
  reader.Read(object.String({"spec", "driverName"}), discovery.driver);
  reader.Text({"spec", "clientConfig", "url"}, discovery.url);
  reader.Read(object.Bytes({"spec", "clientConfig", "caBundle"}), discovery.ca);
  reader.Read(object.OptionalInt({"spec", "blockSizeBytes"}), block_size);
  if (!reader.ok()) return reader.status();
  if (discovery.driver.empty())
    return WrongField("spec.driverName", "expected the name of a driver");
  discovery.block_size = static_cast<uint64_t>(block_size);
  if (const absl::Status status = CheckBlockSize(discovery.block_size); !status.ok()) {
    return WrongField("spec.blockSizeBytes", "expected a power of two from 512 to 64 MiB");
  }
  const bool has_service = object.Has({"spec", "clientConfig", "service"});
  if (has_service == !discovery.url.empty()) {
    return WrongField("spec.clientConfig", "expected either url or service");
  }
  if (!has_service) {
    const absl::StatusOr<Endpoint> endpoint = ParseHttpsUrl(discovery.url);
    if (!endpoint.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec.clientConfig.", endpoint.status().message()));
    }
    return discovery;
  }
  ServiceReference service;
  if (absl::Status status = ReadService(object, service); !status.ok()) return status;
  discovery.service = std::move(service);
  return discovery;
}

Object DriverDiscovery::Encode() const {
  Object object(kResource.ApiVersion(), kResource.kind);
  object.SetMeta(meta);
  object.SetString({"spec", "driverName"}, driver);
  if (service.has_value()) {
    object.SetString({"spec", "clientConfig", "service", "namespace"}, service->name_space);
    object.SetString({"spec", "clientConfig", "service", "name"}, service->name);
    object.SetInt({"spec", "clientConfig", "service", "port"}, service->port);
    if (!service->path.empty()) {
      object.SetString({"spec", "clientConfig", "service", "path"}, service->path);
    }
  } else {
    object.SetString({"spec", "clientConfig", "url"}, url);
  }
  if (!ca.empty()) object.SetBytes({"spec", "clientConfig", "caBundle"}, ca);
  object.SetInt({"spec", "blockSizeBytes"}, static_cast<int64_t>(block_size));
  return object;
}

Endpoint DriverDiscovery::endpoint() const {
  if (service.has_value()) {
    return {.server = absl::StrCat(AbslView(kScheme), service->name, ".", service->name_space,
                                   ".svc:", service->port),
            .path = service->path == "/" ? "" : service->path};
  }
  return ParseHttpsUrl(url).value_or(Endpoint());
}

bool SetReachability(Object& object, const Reachability& is, Time now) {
  const std::string status = is.reachable ? "True" : "False";
  std::vector<Object> conditions =
      object.Children({"status", "conditions"}).value_or(std::vector<Object>());
  Object* condition = nullptr;
  for (Object& one : conditions) {
    if (one.String({"type"}).value_or("") == kReachable) condition = &one;
  }
  if (condition == nullptr) {
    conditions.emplace_back();
    condition = &conditions.back();
    condition->SetString({"type"}, kReachable);
  }
  const absl::StatusOr<ObjectMeta> meta = object.Meta();
  const int64_t generation = meta.ok() ? meta->generation : 0;
  const bool turned = condition->String({"status"}).value_or("") != status;
  if (!turned && condition->String({"reason"}).value_or("") == is.reason &&
      condition->String({"message"}).value_or("") == is.message &&
      condition->Int({"observedGeneration"}).value_or(0) == generation) {
    return false;
  }
  condition->SetString({"status"}, status);
  condition->SetString({"reason"}, is.reason);
  condition->SetString({"message"}, is.message);
  condition->SetInt({"observedGeneration"}, generation);
  if (turned) condition->SetString({"lastTransitionTime"}, FormatTime(now));
  object.SetChildren({"status", "conditions"}, conditions);
  return true;
}

}  // namespace cbt::kube::aggregated
