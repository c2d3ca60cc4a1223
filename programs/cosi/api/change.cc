#include "programs/cosi/api/change.h"

#include <chrono>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "cbt/kube/status.h"

namespace cbt::kube::cosi {
namespace {

constexpr int kTries = 8;
constexpr std::chrono::milliseconds kPause{5};

}  // namespace

absl::StatusOr<Object> Change(Client& client, const Resource& resource, const Object& seen,
                              Part part, const Edit& edit) {
  Object object = seen;
  WriteOptions options;
  if (part == Part::kStatus) options.subresource = "status";
  for (int tries = 0;; ++tries) {
    if (!edit(object)) return object;
    absl::StatusOr<Object> stored = client.Update(resource, object, options);
    if (stored.ok() || !IsConflict(stored.status()) || tries == kTries) return stored;
    std::this_thread::sleep_for(kPause * tries);
    absl::StatusOr<Object> now = client.Get(resource, seen.name_space(), seen.name());
    if (!now.ok()) return now.status();
    if (now->uid() != seen.uid()) return absl::NotFoundError("another object has its name by now");
    object = *std::move(now);
  }
}

}  // namespace cbt::kube::cosi
