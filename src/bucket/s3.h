// Objects in a bucket of S3's protocol.
#ifndef CBT_BUCKET_S3_H_
#define CBT_BUCKET_S3_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bucket/bucket.h"
#include "cbt/secrets.h"

namespace cbt::bucket {

enum class Addressing {
  kPath,     // https://HOST/BUCKET/KEY
  kVirtual,  // https://BUCKET.HOST/KEY
};

struct S3Credentials {
  std::string access_key = {};
  Secret secret_key = {};
  Secret session_token = {};  // empty: none
};

// Credentials that may be replaced while a bucket is in use. Thread-safe.
class S3CredentialSource {
 public:
  struct Current {
    // The newest that could be read; null: none so far.
    std::shared_ptr<const S3Credentials> credentials = nullptr;
    // Why newer ones can't be read. What is there may be half written, so the last ones stay.
    absl::Status trouble = {};
  };

  virtual ~S3CredentialSource() = default;
  virtual Current Get() = 0;
};

// A bucket and who asks. Holds secrets: it moves and is not copied.
struct S3Place {
  std::string endpoint = {};  // "https://HOST[:PORT]"; http:// sends data, but no secret, in clear
  std::string region = "us-east-1";
  std::string bucket = {};
  Addressing addressing = Addressing::kPath;
  std::string ca_file = {};  // PEM; empty: the system's
  std::string ca_text = {};  // PEM, instead of a file
  S3Credentials credentials = {};
  // Asked before every request, instead of `credentials`; null: these stay.
  std::shared_ptr<S3CredentialSource> watched = nullptr;
};

struct S3Options {
  // The most requests at a time; further callers wait. Each keeps a connection. An answer of 503
  // (SlowDown) halves the number, answers without one raise it again. 1 to 256.
  size_t connections = 8;

  // Attempts at a request before its error is returned. Between two of them passes a random time up
  // to `first_wait`, doubled each time up to `longest_wait`; what the server asks for
  // (Retry-After) is kept up to `longest_wait`.
  int attempts = 8;
  std::chrono::milliseconds first_wait{200};
  std::chrono::milliseconds longest_wait{20'000};

  // A connection over which nothing comes for so long is given up.
  std::chrono::milliseconds connect_timeout{15'000};
  std::chrono::milliseconds stall_timeout{30'000};

  // PutParts() sends parts of this size, or larger ones where 10,000 of them would not do. S3 takes
  // none below 5 MiB but the last. Memory: `connections` of them.
  uint64_t part_bytes = 16 << 20;

  // ETags are MD5 sums of what was sent, unless the server says that it encrypts with a key of its
  // own (aws:kms). Stores that make other ETags need false; the SHA-256 that the server compares
  // remains.
  bool etag_is_md5 = true;

  // Ends every call with CANCELLED.
  std::stop_token stop = {};

  // The clock of signatures; null: the system's.
  std::function<std::time_t()> clock = nullptr;
};

// Sends nothing.
// Errors: INVALID_ARGUMENT; FAILED_PRECONDITION that names the package, if libcurl is missing;
//         UNIMPLEMENTED if this build has no S3.
absl::StatusOr<std::unique_ptr<Bucket>> OpenS3Bucket(S3Place place, S3Options options = {});

// Credentials from AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN.
// Errors: NOT_FOUND if the first two are not set.
absl::StatusOr<S3Credentials> S3CredentialsFromEnvironment();

// From a file of AWS's form ("[default]", "aws_access_key_id = ...").
// Errors: those of the file; NOT_FOUND without such a profile; INVALID_ARGUMENT without both keys.
absl::StatusOr<S3Credentials> S3CredentialsFromFile(const std::string& path,
                                                    const std::string& profile = "default");

// The same file, read again when it has changed: one call of stat() for each request.
std::shared_ptr<S3CredentialSource> WatchS3CredentialFile(std::string path,
                                                          std::string profile = "default");

// The credentials of a mount of COSI's, read again when it has changed.
std::shared_ptr<S3CredentialSource> WatchS3CosiCredentials(std::string path);

// A bucket as COSI mounts it into a Pod: a directory with the file BucketInfo (JSON of v1alpha1), or
// with the files COSI_S3_BUCKET_ID and so on (v1alpha2), or the path of the JSON itself. Its
// credentials are watched.
// Errors: NOT_FOUND; INVALID_ARGUMENT that names what is missing; UNIMPLEMENTED for JSON in a build
//         without RapidJSON.
absl::StatusOr<S3Place> S3PlaceFromCosi(const std::string& path);

}  // namespace cbt::bucket

#endif  // CBT_BUCKET_S3_H_
