// What an image claims to be, by everything that says so.
#ifndef CBT_SOURCE_SIGNATURE_SIGNATURES_H_
#define CBT_SOURCE_SIGNATURE_SIGNATURES_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/source/image.h"

namespace cbt {

// The mark of a file system, a RAID or volume manager, an encryption or a partition table.
struct FoundSignature {
  std::string type;     // as blkid(8) and wipefs(8) call it
  uint64_t offset = 0;  // of its magic bytes in the image
};

// Every signature that libblkid recognises in `image`, those with a wrong checksum included. A
// partition table counts if it has partitions; GPT counts from either end of the image, with
// sectors of 512 and of 4096 bytes, also without its protective MBR. In images of up to 1440 KiB,
// members of RAIDs and volume groups are not looked for.
// Errors: UNIMPLEMENTED when built without libblkid; UNAVAILABLE, RESOURCE_EXHAUSTED.
// Cost:   a few hundred small reads at both ends of the image.
absl::StatusOr<std::vector<FoundSignature>> FindSignatures(const Image& image);

// A magic number proves little about an image: whatever is written to a volume later may leave it
// in place, with metadata that is sound in itself and no longer true. So a source whose evidence is
// a magic number asks whether anything else claims the same bytes.
struct ClaimedFormat {
  std::string_view name;                          // in messages
  std::initializer_list<std::string_view> types;  // its own, as in FoundSignature
  uint64_t offset = 0;                            // of its magic bytes
  uint64_t end = UINT64_MAX;  // signatures from here on are part of the contents
  std::string_view remedy;    // how to say that it is what it seems to be
};

// Errors: FAILED_PRECONDITION naming the others and their places, or if libblkid doesn't recognise
//         the format itself (`types` not empty), for it may not look at such a device at all; those
//         of FindSignatures().
absl::Status CheckOnlySignature(const Image& image, const ClaimedFormat& format);

}  // namespace cbt

#endif  // CBT_SOURCE_SIGNATURE_SIGNATURES_H_
