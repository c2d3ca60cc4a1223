// What the driver keeps of an account in its display name: that it made the account, and for which
// buckets. So an account is removed with its last bucket, and one that others made never is.
#ifndef CBT_PROGRAMS_COSI_DRIVER_ACCOUNT_RECORD_H_
#define CBT_PROGRAMS_COSI_DRIVER_ACCOUNT_RECORD_H_

#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace cbt::cosi {

struct AccountRecord {
  std::set<std::string> buckets = {};
  // Buckets that it had, whose policies deny what it owns there.
  std::set<std::string> former = {};

  // "COSI account of DRIVER for BUCKET BUCKET -FORMER".
  std::string ToDisplayName(std::string_view driver) const;
  // Empty if this driver did not write it.
  static std::optional<AccountRecord> FromDisplayName(std::string_view text,
                                                      std::string_view driver);
};

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_ACCOUNT_RECORD_H_
