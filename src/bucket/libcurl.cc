#include "bucket/libcurl.h"

#include "base/system_library.h"

namespace cbt::bucket {
namespace {

constinit LibCurl curl_functions;
// The flavour that uses OpenSSL: others have no PEM certificates from memory.
constinit SystemLibrary curl_library("libcurl.so.4", "buckets of S3",
                                     "libcurl4 (Debian, Ubuntu) or libcurl (Fedora, Alpine)");

absl::Status StartCurl() {
  if (curl_functions.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) return absl::OkStatus();
  return absl::UnimplementedError("libcurl can't be started");
}

}  // namespace

absl::Status LoadLibCurl() {
  static constexpr SystemFunction kFunctions[] = {
#define CBT_BUCKET_FUNCTION(function) {"curl_" #function, &curl_functions.function},
      CBT_BUCKET_CURL_FUNCTIONS(CBT_BUCKET_FUNCTION)
#undef CBT_BUCKET_FUNCTION
  };
  return curl_library.Load(kFunctions, StartCurl);
}

const LibCurl& Curl() noexcept { return curl_functions; }

}  // namespace cbt::bucket
