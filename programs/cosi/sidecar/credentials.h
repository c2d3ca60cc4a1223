// What an application gets to see: the data of a Secret, and the files of a mount.
#ifndef CBT_PROGRAMS_COSI_SIDECAR_CREDENTIALS_H_
#define CBT_PROGRAMS_COSI_SIDECAR_CREDENTIALS_H_

#include <map>
#include <string>
#include <string_view>

#include "cbt/kube/object.h"
#include "cbt/secrets.h"

namespace cbt::kube::cosi {

// Both forms that applications know (issue 46 of the retired specification): BucketInfo, the JSON
// document of v0.2, and COSI_* keys, which become variables of an environment. `credentials` is what the
// driver returned: for S3 a JSON object with endpoint, region, accessKeyID and accessSecretKey.
// What is not such an object is passed on as it came, under the key "credentials". Keys of an
// account that needs none are left out (C15).
Secrets SecretData(const std::string& bucket_id, const Object& protocol, const Secret& credentials);

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_SIDECAR_CREDENTIALS_H_
