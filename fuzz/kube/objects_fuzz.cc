// Untrusted bytes through every decoder of cbt::kube: objects and their structs, answers with lists
// and errors, what credential plugins print, kubeconfig files, times. An error, or a value that
// stays the same when it is written and read again. The last byte chooses the decoder.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cbt/kube/status.h"
#include "cbt/kube/typed_objects.h"
#include "fuzz/support/check.h"
#include "kube/client/answer.h"
#include "kube/client/exec_plugin.h"
#include "kube/client/kubeconfig.h"

namespace {

using namespace cbt::kube;  // NOLINT(google-build-using-namespace)

// What is decoded is decoded alike from what is encoded.
template <typename T>
void Decode(const Object& object) {
  const absl::StatusOr<T> value = T::Decode(object);
  if (!value.ok()) {
    CBT_FUZZ_CHECK(value.status().code() == absl::StatusCode::kInvalidArgument);
    return;
  }
  const Object encoded = value->Encode();
  const absl::StatusOr<T> again = T::Decode(encoded);
  CBT_FUZZ_CHECK(again.ok());
  CBT_FUZZ_CHECK(again->Encode() == encoded);
}

void TryObject(std::string_view text) {
  const absl::StatusOr<Object> object = Object::Parse(text);
  if (!object.ok()) return;
  const std::string json = object->ToJson();
  const absl::StatusOr<Object> again = Object::Parse(json);
  CBT_FUZZ_CHECK(again.ok());
  CBT_FUZZ_CHECK(again->ToJson() == json);
  const Object copy = *object;
  CBT_FUZZ_CHECK(copy.ToJson() == json);
  Decode<TokenReview>(*object);
  Decode<SubjectAccessReview>(*object);
  Decode<SelfSubjectReview>(*object);
  Decode<TokenRequest>(*object);
  Decode<VolumeSnapshot>(*object);
  Decode<VolumeSnapshotContent>(*object);
  Decode<VolumeSnapshotClass>(*object);
  Decode<SnapshotMetadataService>(*object);
  Decode<SecretObject>(*object);
  Decode<ConfigMap>(*object);
  Decode<Lease>(*object);
  // Nothing is granted unless the server has said so in these words.
  const absl::StatusOr<SubjectAccessReview> access = SubjectAccessReview::Decode(*object);
  if (access.ok() && access->Allowed()) {
    CBT_FUZZ_CHECK(object->Bool({"status", "allowed"}).value_or(false));
    CBT_FUZZ_CHECK(!object->Bool({"status", "denied"}).value_or(true));
  }
  Object changed = *object;
  changed.SetString({"status", "x", "y"}, "z");
  CBT_FUZZ_CHECK(changed.String({"status", "x", "y"}).value_or("") == "z" ||
                 !object->Child({"status"}).ok() || !object->Child({"status", "x"}).ok());
}

void TryAnswer(std::string_view text) {
  Answer answer;
  answer.http_code = 200;
  answer.body.Append(text);
  const Expected expected{.what = "GET /x", .api_version = "v1", .kind = "ConfigMap"};
  const absl::StatusOr<Object> object = ObjectOf(answer, expected);
  if (object.ok()) {
    CBT_FUZZ_CHECK(object->kind() == "ConfigMap");
    CBT_FUZZ_CHECK(object->api_version() == "v1");
  } else {
    CBT_FUZZ_CHECK(absl::IsUnavailable(object.status()));
  }
  const absl::StatusOr<ObjectList> list = ListOf(answer, expected);
  if (list.ok()) {
    // Only lists become lists.
    CBT_FUZZ_CHECK(text.find("ConfigMapList") != std::string_view::npos ||
                   text.find('\\') != std::string_view::npos);
    for (const Object& item : list->items) {
      CBT_FUZZ_CHECK(item.kind() == "ConfigMap");
      CBT_FUZZ_CHECK(!item.name().empty());
    }
  } else {
    CBT_FUZZ_CHECK(absl::IsUnavailable(list.status()));
  }
  for (const int code : {404, 409, 429, 500}) {
    answer.http_code = code;
    const absl::Status status = ErrorOf(answer, "GET /x");
    CBT_FUZZ_CHECK(!status.ok());
    CBT_FUZZ_CHECK(HttpCodeOf(status) == code);
    CBT_FUZZ_CHECK(!status.message().empty() && status.message().size() < 2000);
  }
}

void TryKubeconfig(std::string_view text) {
  const absl::StatusOr<Config> config = ParseKubeconfig({{"/dir/config", text}}, "");
  if (config.ok()) {
    CBT_FUZZ_CHECK(!config->server.empty());
    CBT_FUZZ_CHECK(!config->insecure_skip_tls_verify ||
                   (config->ca.empty() && config->ca_file.empty()));
  } else {
    CBT_FUZZ_CHECK(config.status().message().find("/dir/config") != std::string::npos);
  }
}

void TryTime(std::string_view text) {
  const absl::StatusOr<Time> time = ParseTime(text);
  if (!time.ok()) return;
  const std::string written = FormatMicroTime(*time);
  const absl::StatusOr<Time> again = ParseTime(written);
  // An offset may lead out of the years that have four digits.
  CBT_FUZZ_CHECK(again.ok() ? *again == *time
                            : text.starts_with("0000") || text.starts_with("9999"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size - 1);
  switch (data[size - 1] % 5) {
    case 0:
      TryObject(text);
      break;
    case 1:
      TryAnswer(text);
      break;
    case 2:
      TryKubeconfig(text);
      break;
    case 3:
      (void)ParseExecCredential({.api_version = "client.authentication.k8s.io/v1"}, text);
      break;
    default:
      TryTime(text);
  }
  return 0;
}
