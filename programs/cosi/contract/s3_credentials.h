// The credentials of the proposal's Grant for S3: JSON of strings, "endpoint", "region",
// "accessKeyID" and "accessSecretKey".
#ifndef CBT_PROGRAMS_COSI_CONTRACT_S3_CREDENTIALS_H_
#define CBT_PROGRAMS_COSI_CONTRACT_S3_CREDENTIALS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "programs/cosi/contract/messages.h"

namespace cbt::cosi {

// Requires keys. Holds the secret key in clear: the caller wipes it.
std::string WriteS3Credentials(const GrantAnswer& access);

// Sets the keys and one bucket, whose ID the message does not say.
// Errors: INVALID_ARGUMENT without a text from there.
absl::Status ReadS3Credentials(std::string_view json, GrantAnswer& access);

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_CONTRACT_S3_CREDENTIALS_H_
