// What an operator must see of a sidecar, as Events: `kubectl describe` shows them, a log only where
// it is read.
#ifndef CBT_PROGRAMS_SIDECAR_OPERATOR_EVENTS_H_
#define CBT_PROGRAMS_SIDECAR_OPERATOR_EVENTS_H_

#include <optional>
#include <shared_mutex>
#include <span>
#include <string_view>

#include "cbt/kube/client.h"
#include "cbt/rpc/telemetry.h"
#include "ops/event_log.h"
#include "programs/cluster/driver.h"
#include "programs/cluster/events.h"
#include "programs/cluster/objects.h"

namespace cbt::kube::sidecar {

// A log sink that passes records on, and makes Events of those that only an operator can mend: about
// the driver's SnapshotMetadataService, or the VolumeSnapshotClass whose secret can't be read. Events
// name nothing that a client has asked for. Thread safe.
class OperatorEvents final : public rpc::LogSink {
 public:
  // `next` may be null, and must outlive the object, as must what Start() is given, except for the
  // clients of Stop().
  explicit OperatorEvents(rpc::LogSink* next) : next_(next), log_(next) {}

  // From now on. `watched` answers at once, and holds the objects that the Events are about.
  void Start(Client& client, const cluster::Driver& driver, cluster::Objects& watched);
  // The client is not used any more. Its answers may still come.
  void Stop();

  bool Wants(rpc::LogLevel level) const noexcept override;
  void Write(rpc::LogLevel level, std::string_view event,
             std::span<const rpc::LogField> fields) noexcept override;

 private:
  void Send(std::string_view event, std::span<const rpc::LogField> fields);
  cluster::Subject Service() const;

  rpc::LogSink* const next_;
  ops::EventLog log_;  // without this sink
  std::optional<cluster::Events> events_;

  mutable std::shared_mutex mutex_;
  bool started_ = false;
  const cluster::Driver* driver_ = nullptr;
  cluster::Objects* watched_ = nullptr;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_OPERATOR_EVENTS_H_
