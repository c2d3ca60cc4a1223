// Objects by key, in a directory or in S3.
#ifndef CBT_BUCKET_BUCKET_H_
#define CBT_BUCKET_BUCKET_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::bucket {

struct ObjectInfo {
  std::string key;
  uint64_t size = 0;
};

// A place for objects. Thread-safe; every call waits for its answer. Errors name the bucket and the
// key: NOT_FOUND no such object; PERMISSION_DENIED, UNAUTHENTICATED; UNAVAILABLE the
// place can't be reached, also after repeated attempts; DATA_LOSS it answers other bytes than it
// was given; RESOURCE_EXHAUSTED no space, or an answer past its bound; INVALID_ARGUMENT a key that
// CheckKey() refuses; CANCELLED.
class Bucket {
 public:
  virtual ~Bucket() = default;

  // "directory /backups" or "bucket NAME at HOST", for messages.
  virtual const std::string& name() const = 0;

  // Stores an object and replaces what has this key. When this returns OK, it is durable and whole;
  // after an error the old object, the new one or none is there, never a part.
  virtual absl::Status Put(const std::string& key, std::span<const uint8_t> bytes) = 0;

  // As Put(), of `size` bytes that `read` fills in: `out` with the bytes at `offset`. It may be
  // called by several threads at once. What it returns ends the call. Memory: a part for each
  // connection, so that objects of any size can be put.
  using PartReader = std::function<absl::Status(uint64_t offset, std::span<uint8_t> out)>;
  virtual absl::Status PutParts(const std::string& key, uint64_t size, const PartReader& read) = 0;

  // The bytes [offset, offset + length) of an object, length > 0.
  // Errors: OUT_OF_RANGE if it ends before.
  virtual absl::StatusOr<std::vector<uint8_t>> GetRange(const std::string& key, uint64_t offset,
                                                        uint64_t length) = 0;

  // The same into `out`, which is not empty. What it holds after an error is undefined.
  virtual absl::Status ReadRange(const std::string& key, uint64_t offset, std::span<uint8_t> out) {
    const absl::StatusOr<std::vector<uint8_t>> bytes = GetRange(key, offset, out.size());
    if (bytes.ok()) std::copy(bytes->begin(), bytes->end(), out.begin());
    return bytes.status();
  }

  // Whether a request costs no round trip: many small ones are as good as few large ones.
  virtual bool is_local() const { return false; }

  // The whole object. Errors: RESOURCE_EXHAUSTED if it has more than `max_bytes`.
  virtual absl::StatusOr<std::vector<uint8_t>> Get(const std::string& key, uint64_t max_bytes) = 0;

  // The size of an object in bytes.
  virtual absl::StatusOr<uint64_t> Size(const std::string& key) = 0;

  // Calls `use` for each object whose key begins with `prefix`, in no promised order. Ends at its
  // first error. OK only if the list was complete.
  virtual absl::Status List(const std::string& prefix,
                            const std::function<absl::Status(const ObjectInfo&)>& use) = 0;

  // Removes an object; OK if it is missing.
  virtual absl::Status Delete(const std::string& key) = 0;
};

// OK for a key that every kind of bucket can hold: 1 to 1024 bytes of UTF-8 without control
// characters, of segments between slashes that are neither empty, "." nor "..", have 200 bytes at
// most and don't begin with a dot and end in ".partial".
absl::Status CheckKey(std::string_view key);

// The files below a directory. It must exist; directories in it are created as needed. Names and bytes are
// synced before Put() returns.
// Errors: NOT_FOUND, INVALID_ARGUMENT for anything but a directory.
absl::StatusOr<std::unique_ptr<Bucket>> OpenDirectoryBucket(const std::string& path);

}  // namespace cbt::bucket

#endif  // CBT_BUCKET_BUCKET_H_
