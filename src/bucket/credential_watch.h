// Where credentials are read again from.
#ifndef CBT_BUCKET_CREDENTIAL_WATCH_H_
#define CBT_BUCKET_CREDENTIAL_WATCH_H_

#include <string>

#include "absl/status/statusor.h"
#include "bucket/s3.h"

namespace cbt::bucket {

// S3PlaceFromCosi() without the watch.
absl::StatusOr<S3Place> ReadS3CosiPlace(const std::string& path);

}  // namespace cbt::bucket

#endif  // CBT_BUCKET_CREDENTIAL_WATCH_H_
