// The handles of bytes, cursors and maps.
#ifndef CBT_C_HANDLES_H_
#define CBT_C_HANDLES_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c/border.h"
#include "cbt/batch.h"
#include "cbt/c/cursor.h"
#include "cbt/c/map.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "cbt/lifetime.h"

struct cbt_bytes : cbt::c::Handle {
  explicit cbt_bytes(cbt::SharedBytes kept) : Handle(&kKind<cbt_bytes>), bytes(std::move(kept)) {}
  const cbt::SharedBytes bytes;
};

namespace cbt::c {

// Of the remote streams that a cursor is made of: whether each was proven back to its source, once
// it is complete. A server must not prove more than it was given.
using Proofs = std::vector<std::function<bool()>>;

}  // namespace cbt::c

struct cbt_cursor : cbt::c::Exclusive {
  explicit cbt_cursor(std::unique_ptr<cbt::ExtentCursor> made, cbt::c::Proofs of = {})
      : Exclusive(&kKind<cbt_cursor>), cursor(std::move(made)), proofs(std::move(of)) {}

  // What lies in `batch` from `taken` on was fetched and not returned.
  size_t waiting() const noexcept { return batch.has_value() ? batch->size() - taken : 0; }

  std::unique_ptr<cbt::ExtentCursor> cursor;
  cbt::c::Proofs proofs;
  size_t batch_capacity = cbt::ExtentBatch::kDefaultCapacity;
  std::optional<cbt::ExtentBatch> batch;  // from the first call on
  size_t taken = 0;
  bool complete = false;  // the cursor is
  // A call that reads the cursor itself has failed, and left it anywhere in its answer: what was not
  // returned before is not known any more.
  bool adrift = false;
};

namespace cbt::c {

absl::Status IsAdrift(std::string_view name);

// Gives `made` to the caller.
absl::Status Return(absl::StatusOr<std::unique_ptr<ExtentCursor>> made, cbt_cursor** cursor,
                    Proofs proofs = {});

// Takes the cursor out of its handle, and frees that. Adds its proofs to `proofs`.
// Errors: INVALID_ARGUMENT for NULL, FAILED_PRECONDITION if another call uses it: it is not
//         consumed then.
absl::StatusOr<std::unique_ptr<ExtentCursor>> Consume(cbt_cursor* handle, std::string_view name,
                                                      Proofs& proofs);

}  // namespace cbt::c

struct cbt_map : cbt::c::Handle {
  explicit cbt_map(cbt::ChangeMap made) : Handle(&kKind<cbt_map>), map(std::move(made)) {}
  cbt::ChangeMap map;
};

namespace cbt::c {

// Gives `made` to the caller.
absl::Status Return(absl::StatusOr<ChangeMap> made, cbt_map** map);

}  // namespace cbt::c

#endif  // CBT_C_HANDLES_H_
