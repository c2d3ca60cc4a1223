// Checks a COSI driver rule by rule, with buckets and accounts that it makes: idempotency, codes,
// and keys, which are tried. The command is `cbtctl conform --cosi`.
#ifndef CBT_PROGRAMS_COSI_CONFORM_CONFORMANCE_H_
#define CBT_PROGRAMS_COSI_CONFORM_CONFORMANCE_H_

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/rpc/conformance.h"
#include "programs/cosi/contract/messages.h"

namespace cbt::cosi {

struct ConformanceOptions {
  std::string address = {};           // unix:///path
  Parameters bucket_parameters = {};  // of a class whose buckets can be made and deleted
  Parameters access_parameters = {};  // of an access class
  std::string ca_file = {};           // of the store's certificate; empty: the system's
  std::chrono::milliseconds call_timeout = std::chrono::seconds(60);
  // Stores may take so long until a change of access counts everywhere.
  std::chrono::milliseconds settle_time = std::chrono::seconds(10);
  // Called with each report as soon as it is made; its method is the revision.
  std::function<void(const rpc::RuleReport& report)> on_report = {};
};

// Every revision that the driver serves. What it made is removed, as far as the driver does so.
// Errors: INVALID_ARGUMENT for an address that can't be one; UNAVAILABLE if nothing answers there;
//         UNIMPLEMENTED if it serves no revision.
absl::StatusOr<std::vector<rpc::RuleReport>> CheckCosiDriver(const ConformanceOptions& options);

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_CONFORM_CONFORMANCE_H_
