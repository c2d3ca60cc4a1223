#include "programs/cluster/secret_template.h"

#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "programs/cluster/object_name.h"

namespace cbt::kube::cluster {
namespace {

constexpr char kNameParameter[] = "csi.storage.k8s.io/snapshotter-secret-name";
constexpr char kNamespaceParameter[] = "csi.storage.k8s.io/snapshotter-secret-namespace";

absl::Status Invalid(std::string_view parameter, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(AbslView(parameter), ": ", AbslView(why)));
}

// Replaces each ${token}. A dollar sign without one of the tokens is an error: no name holds one.
absl::StatusOr<std::string> Fill(std::string_view parameter, std::string_view text,
                                 const std::map<std::string_view, std::string_view>& tokens) {
  std::string filled;
  while (!text.empty()) {
    const size_t dollar = text.find('$');
    filled += text.substr(0, dollar);
    if (dollar == std::string_view::npos) break;
    text.remove_prefix(dollar + 1);
    const size_t end = text.find('}');
    if (!text.starts_with('{') || end == std::string_view::npos) {
      return Invalid(parameter, "expected ${...} after the dollar sign");
    }
    const auto token = tokens.find(text.substr(1, end - 1));
    if (token == tokens.end()) return Invalid(parameter, "unknown token in the template");
    filled += token->second;
    text.remove_prefix(end + 1);
  }
  return filled;
}

}  // namespace

absl::StatusOr<std::optional<SecretName>> SecretOf(const VolumeSnapshotClass& snapshot_class,
                                                   const TemplateValues& values) {
  const auto name = snapshot_class.parameters.find(kNameParameter);
  const auto name_space = snapshot_class.parameters.find(kNamespaceParameter);
  const auto end = snapshot_class.parameters.end();
  if (name == end && name_space == end) return std::nullopt;
  if (name == end || name->second.empty()) return Invalid(kNameParameter, "missing or empty");
  if (name_space == end || name_space->second.empty()) {
    return Invalid(kNamespaceParameter, "missing or empty");
  }
  std::map<std::string_view, std::string_view> tokens = {
      {"volumesnapshot.namespace", values.snapshot_namespace},
      {"volumesnapshotcontent.name", values.content_name}};
  absl::StatusOr<std::string> filled_namespace =
      Fill(kNamespaceParameter, name_space->second, tokens);
  if (!filled_namespace.ok()) return filled_namespace.status();
  // The author of a snapshot must not choose the namespace of the secret.
  tokens["volumesnapshot.name"] = values.snapshot_name;
  absl::StatusOr<std::string> filled_name = Fill(kNameParameter, name->second, tokens);
  if (!filled_name.ok()) return filled_name.status();
  if (!IsNamespaceName(*filled_namespace)) {
    return Invalid(kNamespaceParameter, "the result is not a namespace");
  }
  if (!IsObjectName(*filled_name)) return Invalid(kNameParameter, "the result is not a name");
  return SecretName{.name_space = *std::move(filled_namespace), .name = *std::move(filled_name)};
}

}  // namespace cbt::kube::cluster
