// The data of an overlay, for a copy of what it holds.
#ifndef CBT_SOURCE_OVERLAY_OVERLAY_INPUT_H_
#define CBT_SOURCE_OVERLAY_OVERLAY_INPUT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "cbt/source/copy_ranges.h"
#include "cbt/source/qcow2.h"

namespace cbt {

// Reads what the file of `image` itself holds, which MakeQcow2LayerCursor() reports; anything else
// is an error to read. Compressed clusters are those of zstd.
// Errors: FAILED_PRECONDITION for an image without a backing file, which is no increment;
//         UNIMPLEMENTED for encrypted images; those of FindQcow2Tables() and LoadClusterCodec().
absl::StatusOr<std::unique_ptr<CopyInput>> MakeOverlayInput(
    std::shared_ptr<const Qcow2Image> image);

// OK if `base`, read as it is, can be what `image` lies above.
// Errors: FAILED_PRECONDITION if it begins like an image of the format that the overlay says its
//         base has, or of any format if it says none.
absl::Status CheckOverlayBase(const Qcow2Image& image, const Image& base);

}  // namespace cbt

#endif  // CBT_SOURCE_OVERLAY_OVERLAY_INPUT_H_
