#ifndef CBT_TESTS_BUCKET_PASSING_BUCKET_H_
#define CBT_TESTS_BUCKET_PASSING_BUCKET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bucket/bucket.h"

namespace cbt::bucket {

// Passes every call on, for buckets that change some.
class PassingBucket : public Bucket {
 public:
  explicit PassingBucket(std::unique_ptr<Bucket> bucket) : bucket_(std::move(bucket)) {}

  const std::string& name() const override { return bucket_->name(); }
  absl::Status Put(const std::string& key, std::span<const uint8_t> bytes) override {
    return bucket_->Put(key, bytes);
  }
  absl::Status PutParts(const std::string& key, uint64_t size, const PartReader& read) override {
    return bucket_->PutParts(key, size, read);
  }
  absl::StatusOr<std::vector<uint8_t>> GetRange(const std::string& key, uint64_t offset,
                                                uint64_t length) override {
    return bucket_->GetRange(key, offset, length);
  }
  absl::StatusOr<std::vector<uint8_t>> Get(const std::string& key, uint64_t max_bytes) override {
    return bucket_->Get(key, max_bytes);
  }
  absl::StatusOr<uint64_t> Size(const std::string& key) override { return bucket_->Size(key); }
  absl::Status List(const std::string& prefix,
                    const std::function<absl::Status(const ObjectInfo&)>& use) override {
    return bucket_->List(prefix, use);
  }
  absl::Status Delete(const std::string& key) override { return bucket_->Delete(key); }

 protected:
  Bucket& passed_to() const noexcept { return *bucket_; }

 private:
  const std::unique_ptr<Bucket> bucket_;
};

}  // namespace cbt::bucket

#endif  // CBT_TESTS_BUCKET_PASSING_BUCKET_H_
