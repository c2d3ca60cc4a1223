// libcurl, loaded when the first bucket of S3 is opened.
#ifndef CBT_BUCKET_LIBCURL_H_
#define CBT_BUCKET_LIBCURL_H_

#include <curl/curl.h>

#include "absl/status/status.h"

namespace cbt::bucket {

// The functions in use: a further one needs a line here.
#define CBT_BUCKET_CURL_FUNCTIONS(F) \
  F(easy_cleanup)                    \
  F(easy_getinfo)                    \
  F(easy_init)                       \
  F(easy_reset)                      \
  F(easy_setopt)                     \
  F(easy_strerror)                   \
  F(global_init)                     \
  F(multi_add_handle)                \
  F(multi_cleanup)                   \
  F(multi_info_read)                 \
  F(multi_init)                      \
  F(multi_perform)                   \
  F(multi_poll)                      \
  F(multi_remove_handle)             \
  F(multi_wakeup)                    \
  F(slist_append)                    \
  F(slist_free_all)

// Each has its C name without `curl_`, and the type of its declaration in curl.h.
struct LibCurl {
#define CBT_BUCKET_POINTER(function) decltype(&::curl_##function) function = nullptr;
  CBT_BUCKET_CURL_FUNCTIONS(CBT_BUCKET_POINTER)
#undef CBT_BUCKET_POINTER
};

// Loads and initialises libcurl unless that has been done. Thread-safe.
// Errors: FAILED_PRECONDITION that names its package; UNIMPLEMENTED if it can't be initialised.
absl::Status LoadLibCurl();

// After LoadLibCurl() was OK.
const LibCurl& Curl() noexcept;

}  // namespace cbt::bucket

#endif  // CBT_BUCKET_LIBCURL_H_
