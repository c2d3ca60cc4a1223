// VolumeSnapshotDelta of cbt.storage.k8s.io/v1alpha1: a question that is asked by creating it.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_VOLUME_SNAPSHOT_DELTA_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_VOLUME_SNAPSHOT_DELTA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/object.h"
#include "programs/revisions/aggregated/api/delta_page.h"
#include "rpc/contract/delta_status.h"

namespace cbt::kube::aggregated {

inline constexpr Resource kVolumeSnapshotDeltas{
    "cbt.storage.k8s.io", "v1alpha1", "volumesnapshotdeltas", "VolumeSnapshotDelta", true};

// The version of the data that a page was read from. A request that has it (one that was made from
// an answer) fails if the data is another one by now.
inline constexpr std::string_view kSourceVersionAnnotation = "cbt.storage.k8s.io/source-version";
// In bytes; the last block may reach past it.
inline constexpr std::string_view kVolumeSizeAnnotation = "cbt.storage.k8s.io/volume-size-bytes";

// A request, as it was sent to a namespace.
struct VolumeSnapshotDelta {
  std::string name_space = {};
  std::optional<std::string> base = {};  // unset: everything that is allocated in the target
  std::string target = {};
  // The Secret of the same namespace that the driver needs; empty: that of the snapshot's class.
  std::string secret = {};
  uint64_t limit = 0;   // blocks; 0: the server's default
  uint64_t offset = 0;  // index of a block
  std::string source_version = {};
  Object object = {};  // as it was sent, without a status

  // `name_space`: of the request's path. Errors: INVALID_ARGUMENT, naming the field: another type
  // of object, another namespace, a name that can't be one, a field that is not known.
  static absl::StatusOr<VolumeSnapshotDelta> Parse(std::string_view json,
                                                   std::string_view name_space);
};

// Makes the answer, block by block: nothing is held but its text.
class DeltaAnswer {
 public:
  // `limit`: of the page. The request must outlive the object.
  DeltaAnswer(const VolumeSnapshotDelta& request, uint64_t limit, uint64_t block_size)
      : request_(request), status_(limit, request.offset, block_size) {}

  void Add(const PageBlock& block);
  // Forgets all blocks: the page is read again.
  void Clear() { status_.Clear(); }

  // The object as JSON. Completed or Continue; `source_version` as of the annotation.
  std::string Finish(const PageHead& head, const PageEnd& end, std::string_view source_version);
  // Failed, with no blocks: the same page is asked for again.
  std::string Fail(const absl::Status& error);

 private:
  const VolumeSnapshotDelta& request_;
  rpc::DeltaStatus status_;
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_VOLUME_SNAPSHOT_DELTA_H_
