// The data of a snapshot, as `--data` names it: an image, a block device or an NBD export.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_SNAPSHOT_DATA_H_
#define CBT_PROGRAMS_CBT_COMMANDS_SNAPSHOT_DATA_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/copy_ranges.h"
#include "cbt/source/image.h"
#include "programs/cbt/commands/nbd_options.h"
#include "source/nbd/nbd_data.h"

namespace cbt::cli {

class SnapshotData {
 public:
  // `name`: a path, or the URI of an export. `stop` ends waiting for its server.
  static absl::StatusOr<SnapshotData> Open(const std::string& name, const NbdArguments& nbd,
                                           std::stop_token stop = {});

  uint64_t size() const { return image_ != nullptr ? image_->size() : nbd_->size(); }
  // `reads`: of an export; where its server's word is not enough, all.
  std::unique_ptr<CopyInput> Input(NbdReads reads = NbdReads::kData) const;

  // Whether it begins like qcow2: then its size may not be the volume's.
  absl::StatusOr<bool> BeginsLikeQcow2() const;

  // Where it may hold data. Errors: FAILED_PRECONDITION for devices, and servers that don't say it.
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated() const;

  // OK while nothing was seen to change it; neither devices nor servers show that.
  absl::Status CheckUnchanged() const;

  // A file's permissions.
  absl::StatusOr<std::optional<mode_t>> Permissions() const;

 private:
  std::shared_ptr<const Image> image_ = nullptr;
  std::shared_ptr<NbdData> nbd_ = nullptr;
};

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_SNAPSHOT_DATA_H_
