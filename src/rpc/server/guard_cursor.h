// Checks a provider's cursor against the rules of cbt/cursor.h before anything is sent.
#ifndef CBT_RPC_SERVER_GUARD_CURSOR_H_
#define CBT_RPC_SERVER_GUARD_CURSOR_H_

#include <memory>

#include "cbt/cursor.h"

namespace cbt::rpc {

// Returns `input` with every extent checked: positive length, ascending, no overlaps (also across
// batches), inside the capacity. A full-size last block may reach past the capacity, and is cut
// there. Errors of Next(): INTERNAL that names the offending extent; those of `input`.
std::unique_ptr<ExtentCursor> MakeGuardCursor(std::unique_ptr<ExtentCursor> input);

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_GUARD_CURSOR_H_
