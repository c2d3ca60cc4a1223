// What keys can do with a bucket: it is tried.
#ifndef CBT_PROGRAMS_COSI_CONFORM_TRIED_KEYS_H_
#define CBT_PROGRAMS_COSI_CONFORM_TRIED_KEYS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bucket/bucket.h"
#include "programs/cosi/contract/messages.h"

namespace cbt::cosi {

class TriedKeys {
 public:
  // Errors: INVALID_ARGUMENT for an answer whose keys or endpoint are none.
  static absl::StatusOr<TriedKeys> Open(const S3Keys& keys, const S3Info& info,
                                        const std::string& bucket_id, const std::string& ca_file);

  // Each is tried again until it is as wanted, or `settle_time` is over: then its last result, or
  // FAILED_PRECONDITION if the store allowed what it should refuse.
  absl::Status Writes(bool wanted, std::chrono::milliseconds settle_time) const;
  absl::Status Reads(bool wanted, std::chrono::milliseconds settle_time) const;
  absl::Status Lists(bool wanted, std::chrono::milliseconds settle_time) const;
  absl::Status Deletes(bool wanted, std::chrono::milliseconds settle_time) const;

 private:
  explicit TriedKeys(std::unique_ptr<bucket::Bucket> opened) : bucket_(std::move(opened)) {}

  std::unique_ptr<bucket::Bucket> bucket_;
};

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_CONFORM_TRIED_KEYS_H_
