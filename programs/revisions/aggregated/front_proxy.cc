#include "programs/revisions/aggregated/front_proxy.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/percent.h"
#include "base/text.h"

namespace cbt::kube::aggregated {
namespace {

constexpr char kConfigNamespace[] = "kube-system";
constexpr char kConfigName[] = "extension-apiserver-authentication";

std::string TextAt(const ConfigMap& config, const std::string& key) {
  const auto found = config.data.find(key);
  return found == config.data.end() ? "" : found->second;
}

// A list of texts in JSON; absent: empty.
absl::StatusOr<std::vector<std::string>> ListAt(const ConfigMap& config, const std::string& key) {
  const std::string text = TextAt(config, key);
  if (text.empty()) return std::vector<std::string>();
  const absl::StatusOr<Object> wrapped = Object::Parse(absl::StrCat("{\"list\":", text, "}"));
  absl::StatusOr<std::vector<std::string>> list =
      wrapped.ok() ? wrapped->Strings({"list"}) : wrapped.status();
  if (!list.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(key, ": expected a list of texts in JSON"));
  }
  return list;
}

absl::StatusOr<std::vector<std::string>> HeadersAt(const ConfigMap& config,
                                                   const std::string& key) {
  absl::StatusOr<std::vector<std::string>> headers = ListAt(config, key);
  if (!headers.ok()) return headers;
  for (std::string& one : *headers) {
    absl::AsciiStrToLower(&one);
    if (one.empty()) return absl::InvalidArgumentError(key + ": a header has no name");
  }
  return headers;
}

// The first that is not empty, in the order of `names`.
std::string FirstOf(const http_server::Request& request, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    for (const auto& [key, value] : request.headers) {
      if (key == name && !value.empty()) return value;
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<FrontProxy> FrontProxy::Read(const ConfigMap& config) {
  const auto authorities = http_server::ClientAuthorities::Read(
      "requestheader-client-ca-file", TextAt(config, "requestheader-client-ca-file"));
  if (!authorities.ok()) return authorities.status();
  absl::StatusOr<std::vector<std::string>> names = ListAt(config, "requestheader-allowed-names");
  if (!names.ok()) return names.status();
  absl::StatusOr<std::vector<std::string>> lists[4];
  const char* const keys[] = {"requestheader-username-headers", "requestheader-uid-headers",
                              "requestheader-group-headers", "requestheader-extra-headers-prefix"};
  for (size_t i = 0; i < 4; ++i) {
    lists[i] = HeadersAt(config, keys[i]);
    if (!lists[i].ok()) return lists[i].status();
  }
  if (lists[0]->empty()) return absl::InvalidArgumentError(absl::StrCat(keys[0], ": it is empty"));
  return FrontProxy{.authorities = *authorities,
                    .allowed_names = *std::move(names),
                    .username_headers = *std::move(lists[0]),
                    .uid_headers = *std::move(lists[1]),
                    .group_headers = *std::move(lists[2]),
                    .extra_prefixes = *std::move(lists[3])};
}

absl::Status FrontProxy::Recognise(const std::vector<std::string>& certificates) const {
  const absl::StatusOr<std::string> client = authorities.NameOf(certificates);
  if (!client.ok()) return client.status();
  if (!allowed_names.empty() &&
      std::find(allowed_names.begin(), allowed_names.end(), *client) == allowed_names.end()) {
    return absl::UnauthenticatedError("the client's certificate is not that of the API server");
  }
  return absl::OkStatus();
}

absl::StatusOr<UserInfo> FrontProxy::UserOf(const http_server::Request& request) const {
  if (const absl::Status proxy = Recognise(request.peer_certificates); !proxy.ok()) return proxy;
  UserInfo user = {.username = FirstOf(request, username_headers),
                   .uid = FirstOf(request, uid_headers)};
  if (user.username.empty()) return absl::UnauthenticatedError("the request names no user");
  for (const auto& [key, value] : request.headers) {
    // All questions about the user go as JSON.
    if (std::find(group_headers.begin(), group_headers.end(), key) != group_headers.end()) {
      user.groups.push_back(value);
    }
    for (const std::string& prefix : extra_prefixes) {
      if (!key.starts_with(prefix)) continue;
      const std::optional<std::string> name =
          PercentDecode(key.substr(prefix.size()), BrokenEscapes::kRefused);
      // Without it the user might be taken for one with other rights.
      if (!name.has_value()) return absl::UnauthenticatedError("an extra header can't be read");
      user.extra[*name].push_back(value);
    }
  }
  for (const std::string* text : {&user.username, &user.uid}) {
    if (!IsUtf8(*text)) return absl::UnauthenticatedError("the user's name can't be read");
  }
  return user;
}

absl::StatusOr<std::unique_ptr<FrontProxyWatch>> FrontProxyWatch::Create(Client& client,
                                                                         ops::EventLog& log) {
  std::unique_ptr<FrontProxyWatch> made(new FrontProxyWatch(log));
  FrontProxyWatch* const watch = made.get();
  CacheOptions options;
  options.name_space = kConfigNamespace;
  options.field_selector = absl::StrCat("metadata.name=", kConfigName);
  options.handlers = {
      .added = [watch](const ObjectPtr& object) { watch->Take(*object); },
      .updated = [watch](const ObjectPtr&, const ObjectPtr& now) { watch->Take(*now); },
      .deleted = [watch](const ObjectPtr&) { watch->Drop(); }};
  auto cache = ObjectCache::Create(client, kConfigMaps, std::move(options));
  if (!cache.ok()) return cache.status();
  made->cache_ = *std::move(cache);
  return made;
}

void FrontProxyWatch::Take(const Object& object) {
  if (object.name() != kConfigName) return;
  const absl::StatusOr<ConfigMap> config = ConfigMap::Decode(object);
  absl::StatusOr<FrontProxy> proxy =
      config.ok() ? FrontProxy::Read(*config) : absl::StatusOr<FrontProxy>(config.status());
  if (!proxy.ok()) {
    log_.Failed("extension-apiserver-authentication not usable", proxy.status());
    return Drop();
  }
  auto taken = std::make_shared<const FrontProxy>(*std::move(proxy));
  const std::lock_guard lock(mutex_);
  current_ = std::move(taken);
}

void FrontProxyWatch::Drop() {
  const std::lock_guard lock(mutex_);
  current_ = nullptr;
}

absl::StatusOr<std::shared_ptr<const FrontProxy>> FrontProxyWatch::Current() const {
  const std::lock_guard lock(mutex_);
  if (current_ == nullptr) {
    return absl::UnavailableError(
        "callers can't be recognised: kube-system/extension-apiserver-authentication is not read");
  }
  return current_;
}

}  // namespace cbt::kube::aggregated
