// What `qemu-img map --output=json` prints. Part of cbt::source; needs RapidJSON.
// Format: https://www.qemu.org/docs/master/tools/qemu-img.html#cmdoption-qemu-img-commands-arg-map
#ifndef CBT_SOURCE_QEMU_MAP_H_
#define CBT_SOURCE_QEMU_MAP_H_

#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/source/byte_stream.h"
#include "cbt/source/import.h"

namespace cbt {

// kAllocated: what does not read as zeros for sure. kDelta: what the topmost image of the chain has
// by itself, data, zeros and discarded ranges alike, so what an overlay changed of its backing
// file. The entries must cover the volume without a gap. Its size is the end of the last one unless
// `options.capacity` says where in its last 512 bytes the volume ends.
// Errors: see cbt/import.h; INVALID_ARGUMENT for a delta whose topmost image has entries that
//         are neither data nor zeros, as maps over an NBD dirty bitmap (x-dirty-bitmap) do. Cost:
//         one pass.
absl::StatusOr<ChangeMap> ReadQemuMap(ByteStream& stream, const ImportOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_QEMU_MAP_H_
