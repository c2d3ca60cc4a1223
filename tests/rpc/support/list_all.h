// Lists a whole answer through the library's client.
#ifndef CBT_TESTS_RPC_SUPPORT_LIST_ALL_H_
#define CBT_TESTS_RPC_SUPPORT_LIST_ALL_H_

#include <memory>

#include "absl/status/statusor.h"
#include "cbt/rpc/client.h"
#include "tests/reference/volume.h"
#include "tests/support/cursors.h"

namespace cbt::test {

// Everything that the cursor returns, or its error.
inline absl::StatusOr<reference::Ranges> ListAll(const rpc::ListRequest& request) {
  absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> cursor = rpc::RemoteCursor::Open(request);
  if (!cursor.ok()) return cursor.status();
  return Drain(**cursor);
}

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_LIST_ALL_H_
