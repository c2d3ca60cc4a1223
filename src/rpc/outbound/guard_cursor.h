// Holds a provider's cursor to the rules of cbt/cursor.h before anything is sent from it.
#ifndef CBT_RPC_OUTBOUND_GUARD_CURSOR_H_
#define CBT_RPC_OUTBOUND_GUARD_CURSOR_H_

#include <memory>

#include "cbt/cursor.h"

namespace cbt::rpc {

// `input` with every extent checked: positive lengths, ascending, no overlaps (also from one batch
// to the next), inside the capacity. A last block that keeps its size and reaches past the
// capacity, which cursors may do, is cut there. Errors of Next(): INTERNAL that names the offending
// extent; those of `input`.
std::unique_ptr<ExtentCursor> MakeGuardCursor(std::unique_ptr<ExtentCursor> input);

}  // namespace cbt::rpc

#endif  // CBT_RPC_OUTBOUND_GUARD_CURSOR_H_
