// The messages of cosi.v1alpha1.Provisioner as a sidecar sends and checks them (C32 to C36, S10).
// Protocols and credentials pass as they are, also those that our own driver does not know.
#ifndef CBT_PROGRAMS_COSI_SIDECAR_MESSAGES_H_
#define CBT_PROGRAMS_COSI_SIDECAR_MESSAGES_H_

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/kube/object.h"
#include "cbt/secrets.h"
#include "programs/cosi/contract/messages.h"

namespace cbt::kube::cosi {

using Parameters = cbt::cosi::Parameters;

// `protocol`: spec.protocol of a Bucket. Errors: INVALID_ARGUMENT for one that has no message.
absl::StatusOr<std::string> EncodeCreate(const std::string& name, const Object& protocol,
                                         const Parameters& parameters);
std::string EncodeDelete(const std::string& bucket_id);
std::string EncodeGrant(const std::string& bucket_id, const std::string& account_name,
                        const std::string& policy, const Parameters& parameters);
std::string EncodeRevoke(const std::string& bucket_id, const std::string& account_id);

// Errors of what follows: INTERNAL, without the driver's bytes.

// 1 to 63 letters, digits, "-" and ".", with a letter or digit at both ends.
absl::StatusOr<std::string> DecodeInfo(std::span<const uint8_t> answer);
// The bucket's ID.
absl::StatusOr<std::string> DecodeCreate(std::span<const uint8_t> answer);

struct GrantAnswer {
  std::string account_id = {};
  Secret credentials = {};  // empty: the account needs none
};
absl::StatusOr<GrantAnswer> DecodeGrant(std::span<const uint8_t> answer);

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_SIDECAR_MESSAGES_H_
