// An object that is changed, and a server that is not there.
#include <cstdio>

#include "cbt/kube/client.h"
#include "cbt/kube/typed_objects.h"

int main() {
  auto object = cbt::kube::Object::Parse(R"({"kind":"ConfigMap","extra":[1.5]})");
  if (!object.ok()) return 1;
  object->SetString({"data", "key"}, "value");
  std::printf("%s\n", object->ToJson().c_str());
  cbt::kube::Config config;
  config.server = "https://127.0.0.1:1";
  auto client = cbt::kube::Client::Create(std::move(config), {.max_retries = 0});
  if (!client.ok()) return 1;
  const auto map = (*client)->Get<cbt::kube::ConfigMap>("ns", "name");
  std::printf("%s\n", absl::StatusCodeToString(map.status().code()).c_str());
  return 0;
}
