// libcurl, loaded when it is needed first.
#ifndef CBT_BASE_CURL_LIBCURL_H_
#define CBT_BASE_CURL_LIBCURL_H_

#include <curl/curl.h>

#include "absl/status/status.h"
#include "base/system_library.h"

namespace cbt {

// The functions in use: a further one needs a line here.
#define CBT_CURL_FUNCTIONS(F) \
  F(easy_cleanup)             \
  F(easy_getinfo)             \
  F(easy_init)                \
  F(easy_reset)               \
  F(easy_setopt)              \
  F(easy_strerror)            \
  F(free)                     \
  F(getdate)                  \
  F(global_init)              \
  F(multi_add_handle)         \
  F(multi_cleanup)            \
  F(multi_info_read)          \
  F(multi_init)               \
  F(multi_perform)            \
  F(multi_poll)               \
  F(multi_remove_handle)      \
  F(multi_setopt)             \
  F(multi_wakeup)             \
  F(slist_append)             \
  F(slist_free_all)           \
  F(url)                      \
  F(url_cleanup)              \
  F(url_get)                  \
  F(url_set)

// Each has its C name without `curl_`, and the type of its declaration in curl.h.
struct LibCurl {
#define CBT_POINTER(function) decltype(&::curl_##function) function = nullptr;
  CBT_CURL_FUNCTIONS(CBT_POINTER)
#undef CBT_POINTER
};

namespace internal {

inline constinit LibCurl curl_functions;
// The flavour that uses OpenSSL: others have no PEM certificates from memory.
inline constinit SystemLibrary curl_library(
    "libcurl.so.4", "Kubernetes clients and buckets of S3",
    "libcurl4 (Debian, Ubuntu) or libcurl (Fedora, Alpine)");

inline absl::Status StartCurl() {
  if (curl_functions.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) return absl::OkStatus();
  return absl::UnimplementedError("libcurl can't be started");
}

}  // namespace internal

// Loads and initialises libcurl unless that has been done. Thread-safe.
// Errors: FAILED_PRECONDITION that names its package; UNIMPLEMENTED if it can't be initialised.
inline absl::Status LoadLibCurl() {
  static constexpr SystemFunction kFunctions[] = {
#define CBT_FUNCTION(function) {"curl_" #function, &internal::curl_functions.function},
      CBT_CURL_FUNCTIONS(CBT_FUNCTION)
#undef CBT_FUNCTION
  };
  return internal::curl_library.Load(kFunctions, internal::StartCurl);
}

// After LoadLibCurl() was OK.
inline const LibCurl& Curl() noexcept { return internal::curl_functions; }

}  // namespace cbt

#endif  // CBT_BASE_CURL_LIBCURL_H_
