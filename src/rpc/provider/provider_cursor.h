// A bitmap or extents that a provider in another process sends, as a cursor.
#ifndef CBT_RPC_PROVIDER_PROVIDER_CURSOR_H_
#define CBT_RPC_PROVIDER_PROVIDER_CURSOR_H_

#include <memory>

#include "cbt/cursor.h"
#include "rpc/provider/provider_call.h"

namespace cbt::rpc {

// Reads `call` as its consumer reads, and calls again where it is sought back, or far forward if
// the plugin can start anywhere. `call` was opened with `question`, and has a head of a bitmap or
// of extents.
//
// The coverage reaches the capacity only after the plugin has said its end and the call ended with
// OK. Errors of Next(): those of ProviderCall; INTERNAL that names an extent that is empty, out of
// order, past the capacity or not at a multiple of the granularity, and for bits that are too many;
// DATA_LOSS if an end comes early; ABORTED if the answer changes between two calls.
// Bitmaps may return an extent in adjacent pieces.
std::unique_ptr<ExtentCursor> MakeProviderCursor(std::shared_ptr<const ProviderQuestion> question,
                                                 std::unique_ptr<ProviderCall> call);

}  // namespace cbt::rpc

#endif  // CBT_RPC_PROVIDER_PROVIDER_CURSOR_H_
