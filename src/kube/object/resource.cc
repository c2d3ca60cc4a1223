#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/percent.h"
#include "base/text.h"
#include "cbt/kube/object.h"

namespace cbt::kube {
namespace {

// Appends "/segment". A proxy or a server that cleans up paths must find nothing to clean.
absl::Status AppendSegment(std::string_view what, std::string_view segment, std::string& path) {
  const bool control = std::any_of(segment.begin(), segment.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (segment.empty() || segment == "." || segment == ".." || control ||
      segment.find_first_of("/%\\?#") != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a possible ", AbslView(what), " of a Kubernetes object"));
  }
  absl::StrAppend(&path, "/", PercentEncode(segment, PercentPlain::kUnreserved));
  return absl::OkStatus();
}

}  // namespace

std::string Resource::ApiVersion() const {
  return group.empty() ? std::string(version)
                       : absl::StrCat(AbslView(group), "/", AbslView(version));
}

absl::StatusOr<std::string> ResourcePath(const Resource& resource, std::string_view name_space,
                                         std::string_view name, std::string_view subresource) {
  std::string path = resource.group.empty() ? "/api" : "/apis";
  absl::Status status;
  const auto append = [&](std::string_view what, std::string_view segment) {
    if (status.ok()) status = AppendSegment(what, segment, path);
  };
  if (!resource.group.empty()) append("group", resource.group);
  append("version", resource.version);
  if (!resource.namespaced && !name_space.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(AbslView(resource.plural), " have no namespaces, and one was given"));
  }
  if (!name_space.empty()) {
    path += "/namespaces";
    append("namespace", name_space);
  } else if (resource.namespaced && !name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a name among ", AbslView(resource.plural), " needs a namespace"));
  }
  append("resource", resource.plural);
  if (!name.empty()) append("name", name);
  if (!subresource.empty()) {
    if (name.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("subresource ", AbslView(subresource), " of ",
                                                     AbslView(resource.plural), " needs a name"));
    }
    append("subresource", subresource);
  }
  if (!status.ok()) return status;
  return path;
}

}  // namespace cbt::kube
