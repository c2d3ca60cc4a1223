// The rules for one revision, one after the other.
#ifndef CBT_PROGRAMS_COSI_CONFORM_CHECKER_H_
#define CBT_PROGRAMS_COSI_CONFORM_CHECKER_H_

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "programs/cosi/conform/conformance.h"
#include "programs/cosi/conform/peer.h"
#include "programs/cosi/conform/tried_keys.h"

namespace cbt::cosi {

class Checker {
 public:
  Checker(const Peer& peer, const ConformanceOptions& options) : peer_(peer), options_(options) {}

  void Run();
  std::vector<rpc::RuleReport> Take() { return std::move(reports_); }

 private:
  // What a rule's test says: empty if the driver keeps it.
  struct Finding {
    bool applies = true;
    std::string evidence = {};  // of a failure, or why it does not apply
  };
  static Finding Kept() { return {}; }
  static Finding Broken(std::string why) { return {.evidence = std::move(why)}; }
  static Finding Skipped(std::string why) { return {.applies = false, .evidence = std::move(why)}; }
  // Kept if the status has one of these codes.
  static Finding Expect(const absl::Status& got, std::initializer_list<absl::StatusCode> wanted);
  void Check(const char* id, const char* rule, const std::function<Finding()>& test);

  // Groups of rules. Each makes what it needs.
  void CheckInfo();
  void CheckCreation();
  void CheckRefusals();
  void CheckGrants();
  void CheckModes();
  void CheckRevocation();
  void CheckDeletion();

  bool Is(Revision revision) const { return peer_.revision() == revision; }
  CreateRequest ToCreate(const std::string& name) const;
  GrantRequest ToGrant(const std::string& account, const std::string& bucket_id,
                       AccessMode mode = AccessMode::kReadWrite) const;
  // Made again until the driver is not busy.
  absl::StatusOr<std::string> NewBucket();
  absl::StatusOr<GrantAnswer> Grant(const GrantRequest& request);
  absl::Status Revoke(const std::string& account_id, const std::string& bucket_id);
  absl::Status Delete(const std::string& bucket_id);
  absl::StatusOr<TriedKeys> Keys(const GrantAnswer& answer, const std::string& bucket_id,
                                 size_t number = 0) const;
  absl::StatusOr<TriedKeys> KeysOf(const absl::StatusOr<GrantAnswer>& answer,
                                   const std::string& bucket_id) const {
    if (!answer.ok()) return answer.status();
    return Keys(*answer, bucket_id);
  }
  void CleanUp();

  const Peer& peer_;
  const ConformanceOptions& options_;
  std::vector<rpc::RuleReport> reports_;
  std::set<std::string> buckets_;
  std::set<std::pair<std::string, std::string>> grants_;  // account and bucket
};

// "cbt-PREFIX-" and random digits, with `size` characters.
std::string NewName(std::string_view prefix, size_t size = 40);

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_CONFORM_CHECKER_H_
