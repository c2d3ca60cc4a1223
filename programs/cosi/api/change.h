// Changes of objects that others change too.
#ifndef CBT_PROGRAMS_COSI_API_CHANGE_H_
#define CBT_PROGRAMS_COSI_API_CHANGE_H_

#include <functional>
#include <string_view>

#include "absl/status/statusor.h"
#include "cbt/kube/client.h"

namespace cbt::kube::cosi {

// Which part is written.
enum class Part : unsigned char { kObject, kStatus };

// Changes a copy of the object; false: there is nothing to write.
using Edit = std::function<bool(Object& object)>;

// Writes what `edit` makes of `seen`. If somebody else has written since it was read, reads it
// again and asks `edit` once more. Returns what is stored. Blocks.
// Errors: NOT_FOUND also if another object has the name by now; ABORTED if others write all the
//         time; those of the API server.
absl::StatusOr<Object> Change(Client& client, const Resource& resource, const Object& seen,
                              Part part, const Edit& edit);

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_API_CHANGE_H_
