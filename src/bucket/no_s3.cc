// A build without libcurl or expat.
#include "bucket/s3.h"

namespace cbt::bucket {

absl::StatusOr<std::unique_ptr<Bucket>> OpenS3Bucket(S3Place /*place*/, S3Options /*options*/) {
  return absl::UnimplementedError(
      "this build has no S3: build with libcurl and expat (CBT_WITH_S3), or use a directory");
}

}  // namespace cbt::bucket
