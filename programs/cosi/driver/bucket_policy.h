// A bucket's policy, statement by statement. Those of accounts are the driver's: their Sid is the
// account, or the account with "#2" and so on. All others are kept as they are.
#ifndef CBT_PROGRAMS_COSI_DRIVER_BUCKET_POLICY_H_
#define CBT_PROGRAMS_COSI_DRIVER_BUCKET_POLICY_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/kube/object.h"
#include "programs/cosi/driver/access_rules.h"

namespace cbt::cosi {

// S3's limit: a policy of one statement for each account has room for some 40 of them.
inline constexpr size_t kMaxPolicyBytes = 20 * 1024;

// The statements by which an account may do what the rules say with a bucket. Who wrote an object
// owns it, and an owner may read it whatever the bucket's policy allows; so rules that do not read
// deny it, too.
std::vector<kube::Object> StatementsFor(const AccessRules& rules, const std::string& account,
                                        const std::string& bucket);

// The statement that remains of an account without access that goes on to exist: it denies what the
// account owns there.
std::vector<kube::Object> DenialFor(const std::string& account, const std::string& bucket);

class BucketPolicy {
 public:
  // Empty text: no policy. Errors: FAILED_PRECONDITION for a policy that can't be read, which must
  // not be replaced then.
  static absl::StatusOr<BucketPolicy> Parse(std::string_view text);

  // The statements of the account.
  std::vector<kube::Object> Of(const std::string& account) const;
  // Replaces them.
  void Set(const std::string& account, const std::vector<kube::Object>& statements);
  // No statement is left: the bucket needs no policy.
  bool empty() const noexcept { return statements_.empty(); }
  std::string ToJson() const;

 private:
  kube::Object rest_;  // without the statements
  std::vector<kube::Object> statements_;
};

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_BUCKET_POLICY_H_
