// Kubeconfig files: YAML, merged, and the one context out of them.
#include "kube/client/kubeconfig.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "base/watched_file.h"
#include "base/wipe.h"
#include "cbt/kube/config.h"

namespace cbt::kube {
namespace {

// A place in a file: a node and what leads to it.
class Place {
 public:
  Place(std::string file, std::string path, YAML::Node node)
      : file_(std::move(file)), path_(std::move(path)), node_(std::move(node)) {}

  const YAML::Node& node() const noexcept { return node_; }
  const std::string& file() const noexcept { return file_; }
  bool IsAbsent() const { return !node_.IsDefined() || node_.IsNull(); }

  absl::Status Error(std::string_view why) const {
    const YAML::Mark mark = node_.IsDefined() ? node_.Mark() : YAML::Mark::null_mark();
    const std::string line = mark.is_null() ? "" : absl::StrCat(":", mark.line + 1);
    return absl::InvalidArgumentError(
        absl::StrCat(file_, line, path_.empty() ? "" : ": ", path_, ": ", AbslView(why)));
  }

  // The member `key`, absent if not there. Twice is an error: programs disagree on which
  // counts.
  absl::StatusOr<Place> Member(const std::string& key) const {
    const std::string path = path_.empty() ? key : absl::StrCat(path_, ".", key);
    Place found(file_, path, YAML::Node(YAML::NodeType::Undefined));
    if (IsAbsent()) return found;
    if (!node_.IsMap()) return Error("expected a map");
    int count = 0;
    for (const auto& member : node_) {
      if (!member.first.IsScalar() || member.first.Scalar() != key) continue;
      found = Place(file_, path, member.second);
      if (++count > 1) return found.Error("given twice");
    }
    return found;
  }

  absl::StatusOr<std::vector<Place>> Elements() const {
    std::vector<Place> elements;
    if (IsAbsent()) return elements;
    if (!node_.IsSequence()) return Error("expected a list");
    for (size_t i = 0; i < node_.size(); ++i) {
      elements.emplace_back(file_, absl::StrCat(path_, "[", i, "]"), node_[i]);
    }
    return elements;
  }

  absl::StatusOr<std::string> Text() const {
    if (IsAbsent()) return std::string();
    if (!node_.IsScalar()) return Error("expected a text");
    return node_.Scalar();
  }

 private:
  std::string file_;
  std::string path_;
  YAML::Node node_;
};

// Reads members of one map and keeps the first error.
class MapReader {
 public:
  explicit MapReader(Place map) : map_(std::move(map)) {}

  const absl::Status& status() const noexcept { return status_; }
  const Place& map() const noexcept { return map_; }

  std::optional<Place> Member(const std::string& key) {
    absl::StatusOr<Place> member = map_.Member(key);
    if (!member.ok()) {
      status_.Update(member.status());
      return std::nullopt;
    }
    if (member->IsAbsent()) return std::nullopt;
    return *std::move(member);
  }

  std::string Text(const std::string& key) {
    const std::optional<Place> member = Member(key);
    return member ? TextOf(*member) : std::string();
  }

  bool Bool(const std::string& key) {
    const std::optional<Place> member = Member(key);
    if (!member) return false;
    const std::string text = TextOf(*member);
    if (status_.ok() && text != "true" && text != "false") {
      status_.Update(member->Error("expected true or false"));
    }
    return text == "true";
  }

  // A path, relative to the directory of the file.
  std::string File(const std::string& key) {
    const std::string path = Text(key);
    if (path.empty() || path.front() == '/') return path;
    return std::filesystem::path(map_.file()).parent_path() / path;
  }

  // base64.
  std::string Data(const std::string& key) {
    const std::optional<Place> member = Member(key);
    if (!member) return {};
    std::string bytes;
    if (!absl::Base64Unescape(TextOf(*member), &bytes)) {
      status_.Update(member->Error("expected base64"));
    }
    return bytes;
  }

  Secret SecretText(const std::string& key) {
    std::string text = Text(key);
    const Wiper wiper(text);
    return Secret(text);
  }

  std::vector<std::string> Texts(const std::string& key) {
    std::vector<std::string> texts;
    for (const Place& element : Elements(key)) texts.push_back(TextOf(element));
    return texts;
  }

  std::vector<Place> Elements(const std::string& key) {
    const std::optional<Place> member = Member(key);
    if (!member) return {};
    absl::StatusOr<std::vector<Place>> elements = member->Elements();
    if (elements.ok()) return *std::move(elements);
    status_.Update(elements.status());
    return {};
  }

  // OK only if every member was of the right kind.
  void Fail(const std::string& key, std::string_view why) {
    absl::StatusOr<Place> member = map_.Member(key);
    status_.Update(member.ok() ? member->Error(why) : member.status());
  }
  void Update(const absl::Status& status) { status_.Update(status); }

 private:
  std::string TextOf(const Place& place) {
    absl::StatusOr<std::string> text = place.Text();
    if (text.ok()) return *std::move(text);
    status_.Update(text.status());
    return {};
  }

  const Place map_;
  absl::Status status_;
};

// What the files say together: of one name, the first counts.
struct Merged {
  std::map<std::string, Place> clusters;
  std::map<std::string, Place> users;
  std::map<std::string, Place> contexts;
  std::string current_context;
};

absl::Status AddNamed(MapReader& root, const std::string& list, const std::string& value,
                      std::map<std::string, Place>& to) {
  std::map<std::string, Place> of_this_file;
  for (const Place& element : root.Elements(list)) {
    MapReader reader(element);
    const std::string name = reader.Text("name");
    if (reader.status().ok() && name.empty()) return element.Error("has no name");
    absl::StatusOr<Place> member = element.Member(value);
    if (!reader.status().ok()) return reader.status();
    if (!member.ok()) return member.status();
    if (!of_this_file.emplace(name, *std::move(member)).second) {
      return element.Error("its name is given twice");
    }
  }
  to.merge(of_this_file);
  return root.status();
}

absl::Status AddFile(const std::string& file, std::string_view text, Merged& merged) {
  YAML::Node node;
  try {
    node = YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    // Its text may quote the file, which holds secrets.
    return absl::InvalidArgumentError(
        error.mark.is_null() ? absl::StrCat(file, ": not YAML")
                             : absl::StrCat(file, ":", error.mark.line + 1,
                                            ": not YAML, at column ", error.mark.column + 1));
  }
  MapReader root(Place(file, "", node));
  if (!root.map().IsAbsent() && !node.IsMap()) return root.map().Error("expected a map");
  const std::string kind = root.Text("kind");
  const std::string version = root.Text("apiVersion");
  if (!kind.empty() && kind != "Config") root.Fail("kind", "expected Config");
  if (!version.empty() && version != "v1") root.Fail("apiVersion", "expected v1");
  const std::string current = root.Text("current-context");
  if (!root.status().ok()) return root.status();
  if (merged.current_context.empty()) merged.current_context = current;
  absl::Status status = AddNamed(root, "clusters", "cluster", merged.clusters);
  if (status.ok()) status = AddNamed(root, "users", "user", merged.users);
  if (status.ok()) status = AddNamed(root, "contexts", "context", merged.contexts);
  return status;
}

absl::Status ReadCluster(const Place& place, Config& config) {
  MapReader cluster(place);
  config.server = cluster.Text("server");
  if (config.server.empty()) cluster.Fail("server", "is missing");
  config.ca = cluster.Data("certificate-authority-data");
  if (config.ca.empty()) config.ca_file = cluster.File("certificate-authority");
  config.insecure_skip_tls_verify = cluster.Bool("insecure-skip-tls-verify");
  if (config.insecure_skip_tls_verify && (!config.ca.empty() || !config.ca_file.empty())) {
    cluster.Fail("insecure-skip-tls-verify", "contradicts certificate-authority");
  }
  config.tls_server_name = cluster.Text("tls-server-name");
  config.proxy_url = cluster.Text("proxy-url");
  return cluster.status();
}

absl::StatusOr<ExecPlugin> ReadExec(const Place& place) {
  MapReader exec(place);
  ExecPlugin plugin;
  plugin.command = exec.Text("command");
  if (plugin.command.empty()) exec.Fail("command", "is missing");
  plugin.args = exec.Texts("args");
  for (const Place& element : exec.Elements("env")) {
    MapReader variable(element);
    std::string name = variable.Text("name");
    std::string value = variable.Text("value");
    if (variable.status().ok() && (name.empty() || name.find('=') != std::string::npos)) {
      variable.Fail("name", "expected the name of a variable");
    }
    exec.Update(variable.status());
    plugin.env.emplace_back(std::move(name), std::move(value));
  }
  plugin.api_version = exec.Text("apiVersion");
  constexpr std::string_view kV1 = "client.authentication.k8s.io/v1";
  constexpr std::string_view kV1Beta1 = "client.authentication.k8s.io/v1beta1";
  if (plugin.api_version != kV1 && plugin.api_version != kV1Beta1) {
    exec.Fail("apiVersion", "expected client.authentication.k8s.io/v1 or .../v1beta1");
  }
  plugin.provide_cluster_info = exec.Bool("provideClusterInfo");
  plugin.install_hint = exec.Text("installHint");
  const std::string mode = exec.Text("interactiveMode");
  if (mode == "Always") {
    plugin.interactive = ExecPlugin::Interactive::kAlways;
  } else if (mode == "IfAvailable" || (mode.empty() && plugin.api_version == kV1Beta1)) {
    plugin.interactive = ExecPlugin::Interactive::kIfAvailable;
  } else if (mode != "Never") {
    exec.Fail("interactiveMode", "expected Never, IfAvailable or Always");
  }
  plugin.directory = std::filesystem::path(place.file()).parent_path();
  if (!exec.status().ok()) return exec.status();
  return plugin;
}

absl::Status ReadUser(const Place& place, Config& config) {
  MapReader user(place);
  config.client_certificate = user.Data("client-certificate-data");
  if (config.client_certificate.empty()) {
    config.client_certificate_file = user.File("client-certificate");
  }
  std::string key = user.Data("client-key-data");
  const Wiper wiper(key);
  config.client_key = Secret(key);
  if (key.empty()) config.client_key_file = user.File("client-key");
  config.token = user.SecretText("token");
  config.token_file = user.File("tokenFile");
  config.username = user.Text("username");
  config.password = user.SecretText("password");
  config.as.user = user.Text("as");
  config.as.uid = user.Text("as-uid");
  config.as.groups = user.Texts("as-groups");
  if (const std::optional<Place> extra = user.Member("as-user-extra")) {
    if (!extra->node().IsMap()) return extra->Error("expected a map");
    MapReader values(*extra);
    for (const auto& member : extra->node()) {
      if (!member.first.IsScalar()) return extra->Error("expected texts as keys");
      config.as.extra[member.first.Scalar()] = values.Texts(member.first.Scalar());
    }
    user.Update(values.status());
  }
  if (user.Member("auth-provider")) {
    user.Fail("auth-provider", "is not supported: Kubernetes has replaced it by exec");
  }
  if (const std::optional<Place> exec = user.Member("exec")) {
    absl::StatusOr<ExecPlugin> plugin = ReadExec(*exec);
    user.Update(plugin.status());
    if (plugin.ok()) config.exec = *std::move(plugin);
  }
  return user.status();
}

std::string ListOf(const std::vector<std::string>& files) {
  std::string text;
  for (const std::string& file : files) absl::StrAppend(&text, text.empty() ? "" : ", ", file);
  return text;
}

absl::StatusOr<Config> Choose(const Merged& merged, const std::string& wanted,
                              const std::string& files) {
  const std::string& name = wanted.empty() ? merged.current_context : wanted;
  if (name.empty()) {
    return absl::InvalidArgumentError(files + ": no current-context, and no other one was named");
  }
  const auto context = merged.contexts.find(name);
  if (context == merged.contexts.end()) {
    return absl::InvalidArgumentError(absl::StrCat(files, ": there is no context ", name));
  }
  MapReader reader(context->second);
  const std::string cluster_name = reader.Text("cluster");
  const std::string user_name = reader.Text("user");
  Config config;
  if (std::string name_space = reader.Text("namespace"); !name_space.empty()) {
    config.name_space = std::move(name_space);
  }
  const auto cluster = merged.clusters.find(cluster_name);
  if (cluster == merged.clusters.end()) reader.Fail("cluster", "there is no such cluster");
  const auto user = merged.users.find(user_name);
  if (user == merged.users.end() && !user_name.empty()) {
    reader.Fail("user", "there is no such user");
  }
  absl::Status status = reader.status();
  if (status.ok()) status = ReadCluster(cluster->second, config);
  if (status.ok() && user != merged.users.end()) status = ReadUser(user->second, config);
  if (!status.ok()) return status;
  return config;
}

}  // namespace

absl::StatusOr<Config> ParseKubeconfig(
    const std::vector<std::pair<std::string, std::string_view>>& files,
    const std::string& context) {
  std::vector<std::string> names;
  try {
    Merged merged;
    for (const auto& [file, text] : files) {
      names.push_back(file);
      if (absl::Status status = AddFile(file, text, merged); !status.ok()) return status;
    }
    return Choose(merged, context, ListOf(names));
  } catch (const YAML::Exception&) {
    // Types are checked before nodes are read: it does not come here.
    return absl::InvalidArgumentError(ListOf(names) + ": not a kubeconfig file");
  }
}

absl::StatusOr<Config> LoadKubeconfig(const KubeconfigOptions& options) {
  const std::vector<std::string> files =
      options.files.empty() ? DefaultKubeconfigFiles() : options.files;
  std::vector<std::string> texts;
  std::vector<std::string> found;
  absl::Status missing = absl::NotFoundError("no kubeconfig file was named");
  for (const std::string& file : files) {
    absl::StatusOr<std::string> text = ReadSmallFile(file);
    if (absl::IsNotFound(text.status())) {
      missing = text.status();
      continue;
    }
    if (!text.ok()) {
      for (std::string& read : texts) WipeWhole(read);
      return text.status();
    }
    texts.push_back(*std::move(text));
    found.push_back(file);
  }
  if (found.empty()) return missing;
  std::vector<std::pair<std::string, std::string_view>> parts;
  for (size_t i = 0; i < found.size(); ++i) parts.emplace_back(found[i], texts[i]);
  absl::StatusOr<Config> config = ParseKubeconfig(parts, options.context);
  for (std::string& text : texts) WipeWhole(text);
  return config;
}

}  // namespace cbt::kube
