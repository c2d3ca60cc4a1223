// Which secrets does the plugin need for a snapshot? Those that its class names.
#ifndef CBT_PROGRAMS_SIDECAR_CLASS_SECRETS_H_
#define CBT_PROGRAMS_SIDECAR_CLASS_SECRETS_H_

#include <chrono>
#include <string>

#include "cbt/kube/client.h"
#include "cbt/kube/typed_objects.h"
#include "cbt/rpc/access.h"
#include "ops/event_log.h"
#include "programs/cluster/objects.h"

namespace cbt::kube::sidecar {

// For snapshots that an ObjectResolver has resolved. A snapshot without a class has the default
// class of the driver. The secret is read anew each time. Every failure is UNAVAILABLE, with its
// reason in the log only. Thread safe.
class ClassSecrets final : public rpc::SecretProvider {
 public:
  // All must outlive the object, which must live until the answers of `live` and of the client have
  // come.
  ClassSecrets(Client& client, cluster::Objects& watched, cluster::Objects& live,
               std::chrono::milliseconds timeout, ops::EventLog& log)
      : client_(client), watched_(watched), live_(live), timeout_(timeout), log_(log) {}

  void GetSecrets(const std::string& name_space, const rpc::ResolvedSnapshots& snapshots,
                  rpc::Done<Secrets> done) override;

 private:
  void Read(const VolumeSnapshotClass& snapshot_class, const BoundSnapshot& snapshot,
            const rpc::Done<Secrets>& done);
  // Logs `why`. The error for the client: UNAVAILABLE if it is that, otherwise FAILED_PRECONDITION
  // with the text.
  absl::Status Failed(const BoundSnapshot& snapshot, const absl::Status& why,
                      absl::string_view for_good);

  Client& client_;
  cluster::Objects& watched_;
  cluster::Objects& live_;
  const std::chrono::milliseconds timeout_;
  ops::EventLog& log_;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_CLASS_SECRETS_H_
