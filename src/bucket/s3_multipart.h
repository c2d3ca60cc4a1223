// Objects that are put in parts.
#ifndef CBT_BUCKET_S3_MULTIPART_H_
#define CBT_BUCKET_S3_MULTIPART_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "bucket/bucket.h"
#include "bucket/s3_client.h"

namespace cbt::bucket {

inline constexpr uint64_t kMaxPartBytes = uint64_t{5} << 30;  // S3's, of one request
inline constexpr uint64_t kMaxParts = 10'000;

// The size of the parts of an object of `size` bytes: `wanted`, or more where S3's number of parts
// would not do.
uint64_t PartBytes(uint64_t size, uint64_t wanted);

// Puts `size` > 0 bytes in several parts at a time, as many as the client has connections. When an
// answer about the end is lost, the object itself is looked at before the end is asked for again.
// After an error the parts are removed, as far as the server can be reached.
// Errors: as Bucket::PutParts().
absl::Status PutMultipart(S3Client& client, const std::string& key, uint64_t size,
                          const Bucket::PartReader& read);

}  // namespace cbt::bucket

#endif  // CBT_BUCKET_S3_MULTIPART_H_
