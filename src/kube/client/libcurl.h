// libcurl, loaded when the first client of an API server is made.
#ifndef CBT_KUBE_CLIENT_LIBCURL_H_
#define CBT_KUBE_CLIENT_LIBCURL_H_

#include <curl/curl.h>

#include "absl/status/status.h"

namespace cbt::kube {

// The functions in use: a further one needs a line here.
#define CBT_CURL_FUNCTIONS(F) \
  F(easy_cleanup)             \
  F(easy_getinfo)             \
  F(easy_init)                \
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

// Loads and initialises libcurl unless that has been done. Thread-safe.
// Errors: FAILED_PRECONDITION that names its package; UNIMPLEMENTED if it can't be initialised.
absl::Status LoadLibCurl();

// After LoadLibCurl() was OK.
const LibCurl& Curl() noexcept;

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_LIBCURL_H_
