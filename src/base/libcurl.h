// libcurl, loaded when the first client of an API server or of a bucket is made. Only the rooms that
// have its headers include this; wherever they are linked together, they share one.
#ifndef CBT_BASE_LIBCURL_H_
#define CBT_BASE_LIBCURL_H_

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

namespace libcurl_internal {

inline constinit LibCurl functions;
// The flavour that uses OpenSSL: others have no PEM certificates from memory.
inline constinit SystemLibrary library("libcurl.so.4", "Kubernetes clients and buckets of S3",
                                       "libcurl4 (Debian, Ubuntu) or libcurl (Fedora, Alpine)");

inline absl::Status Start() {
  if (functions.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK) return absl::OkStatus();
  return absl::UnimplementedError("libcurl can't be started");
}

}  // namespace libcurl_internal

// Loads and initialises libcurl unless that has been done. Thread-safe.
// Errors: FAILED_PRECONDITION that names its package; UNIMPLEMENTED if it can't be initialised.
inline absl::Status LoadLibCurl() {
  static constexpr SystemFunction kFunctions[] = {
#define CBT_FUNCTION(function) {"curl_" #function, &libcurl_internal::functions.function},
      CBT_CURL_FUNCTIONS(CBT_FUNCTION)
#undef CBT_FUNCTION
  };
  return libcurl_internal::library.Load(kFunctions, libcurl_internal::Start);
}

// After LoadLibCurl() was OK.
inline const LibCurl& Curl() noexcept { return libcurl_internal::functions; }

}  // namespace cbt

#endif  // CBT_BASE_LIBCURL_H_
