// Checks and errors that several calls of the store have in common.
#ifndef CBT_PROGRAMS_DRIVER_STATE_ERRORS_H_
#define CBT_PROGRAMS_DRIVER_STATE_ERRORS_H_

#include <string>

#include "absl/status/status.h"
#include "programs/driver/state/catalog.h"

namespace cbt::driver {

// INVALID_ARGUMENT unless `name` can be that of a volume or of a snapshot.
absl::Status CheckName(const std::string& name);

// The status of a call that removes something: OK too if it does not exist.
absl::Status OkIfNotFound(const absl::Status& absent);

// FAILED_PRECONDITION: the volume is a view.
absl::Status OnlyRead();

// DATA_LOSS: the snapshot was taken and is gone.
absl::Status Lost(const Snapshot& snapshot);

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_STATE_ERRORS_H_
