// Untrusted bytes through what the components of COSI decode: a driver's answers, its credentials,
// kubelet's requests, and the objects of the API server. The last byte chooses the decoder.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fuzz/support/check.h"
#include "programs/cosi/api/names.h"
#include "programs/cosi/api/objects.h"
#include "programs/cosi/node/csi_messages.h"
#include "programs/cosi/sidecar/credentials.h"
#include "programs/cosi/sidecar/messages.h"

namespace {

using namespace cbt::kube;        // NOLINT(google-build-using-namespace)
using namespace cbt::kube::cosi;  // NOLINT(google-build-using-namespace)

void TryAnswers(std::span<const uint8_t> bytes) {
  const absl::StatusOr<std::string> name = DecodeInfo(bytes);
  // A name that is taken is a label's value as it is.
  if (name.ok()) CBT_FUZZ_CHECK(LabelValue(*name) == *name);
  const absl::StatusOr<std::string> id = DecodeCreate(bytes);
  if (id.ok()) CBT_FUZZ_CHECK(!id->empty());
  const absl::StatusOr<GrantAnswer> granted = DecodeGrant(bytes);
  if (!granted.ok()) CBT_FUZZ_CHECK(granted.status().code() == absl::StatusCode::kInternal);
}

void TryRequests(std::span<const uint8_t> bytes) {
  const absl::StatusOr<PublishRequest> publish = DecodePublish(bytes);
  if (publish.ok()) {
    CBT_FUZZ_CHECK(!publish->volume_id.empty() && !publish->target_path.empty());
    CBT_FUZZ_CHECK(publish->is_mount);
  }
  const absl::StatusOr<UnpublishRequest> unpublish = DecodeUnpublish(bytes);
  if (unpublish.ok()) CBT_FUZZ_CHECK(!unpublish->target_path.empty());
}

// What applications read is JSON whatever the driver says.
void TryCredentials(std::string_view text) {
  const Object protocol = *Object::Parse(R"({"s3":{"region":"eu"}})");
  const cbt::Secrets data = SecretData("id", protocol, cbt::Secret(text));
  CBT_FUZZ_CHECK(Object::Parse(data.Get("BucketInfo").value_or("")).ok());
}

void TryObjects(std::string_view text) {
  const absl::StatusOr<Object> object = Object::Parse(text);
  if (!object.ok()) return;
  const absl::StatusOr<Bucket> bucket = Bucket::Decode(*object);
  if (bucket.ok()) {
    const absl::StatusOr<Bucket> again = Bucket::Decode(bucket->Encode());
    CBT_FUZZ_CHECK(again.ok());
    CBT_FUZZ_CHECK(again->provisioner == bucket->provisioner);
    CBT_FUZZ_CHECK(again->deletion_policy == bucket->deletion_policy);
    CBT_FUZZ_CHECK(again->allowed_namespaces == bucket->allowed_namespaces);
    EncodeCreate("name", bucket->protocol, bucket->parameters).status().IgnoreError();
  }
  const absl::StatusOr<BucketAccess> access = BucketAccess::Decode(*object);
  if (access.ok()) {
    const absl::StatusOr<BucketAccess> again = BucketAccess::Decode(access->Encode());
    CBT_FUZZ_CHECK(again.ok() && again->bucket_name == access->bucket_name);
    AccessorFinalizer(access->meta);
  }
  BucketRequest::Decode(*object).status().IgnoreError();
  BucketClass::Decode(*object).status().IgnoreError();
  BucketAccessRequest::Decode(*object).status().IgnoreError();
  BucketAccessClass::Decode(*object).status().IgnoreError();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> bytes(data, size - 1);
  const std::string_view text(reinterpret_cast<const char*>(data), size - 1);
  switch (data[size - 1] % 4) {
    case 0:
      TryAnswers(bytes);
      break;
    case 1:
      TryRequests(bytes);
      break;
    case 2:
      TryCredentials(text);
      break;
    default:
      TryObjects(text);
  }
  return 0;
}
