// libnbd, loaded when the first NBD source is opened.
#ifndef CBT_SOURCE_NBD_LIBNBD_H_
#define CBT_SOURCE_NBD_LIBNBD_H_

#include <libnbd.h>

#include "absl/status/status.h"

namespace cbt {

// The functions in use: a further one needs a line here.
#ifdef LIBNBD_HAVE_NBD_BLOCK_STATUS_64
#define CBT_NBD_BLOCK_STATUS(F) F(aio_block_status_64)
#else
#define CBT_NBD_BLOCK_STATUS(F) F(aio_block_status)
#endif
#define CBT_NBD_FUNCTIONS(F)           \
  F(add_meta_context)                  \
  F(aio_command_completed)             \
  F(aio_connect_uri)                   \
  F(aio_disconnect)                    \
  F(aio_flush)                         \
  F(aio_is_closed)                     \
  F(aio_is_connecting)                 \
  F(aio_is_dead)                       \
  F(aio_is_negotiating)                \
  F(aio_is_ready)                      \
  F(aio_opt_abort)                     \
  F(aio_opt_go)                        \
  F(aio_opt_info)                      \
  F(aio_opt_list_meta_context)         \
  F(aio_pread)                         \
  F(aio_pwrite)                        \
  F(aio_zero)                          \
  F(can_flush)                         \
  F(can_meta_context)                  \
  F(can_multi_conn)                    \
  F(can_zero)                          \
  F(close)                             \
  F(create)                            \
  F(get_block_size)                    \
  F(get_errno)                         \
  F(get_error)                         \
  F(get_size)                          \
  F(get_strict_mode)                   \
  F(get_structured_replies_negotiated) \
  F(is_read_only)                      \
  F(poll)                              \
  F(set_export_name)                   \
  F(set_opt_mode)                      \
  F(set_strict_mode)                   \
  F(set_tls_certificates)              \
  F(set_tls_psk_file)                  \
  F(set_tls_username)                  \
  F(set_uri_allow_local_file)          \
  F(set_uri_allow_transports)          \
  F(supports_tls)                      \
  F(supports_uri)                      \
  CBT_NBD_BLOCK_STATUS(F)

// Each has its C name without `nbd_`, and the type of its declaration in libnbd.h.
struct LibNbd {
#define CBT_POINTER(function) decltype(&::nbd_##function) function = nullptr;
  CBT_NBD_FUNCTIONS(CBT_POINTER)
#undef CBT_POINTER
};

// Loads libnbd unless it is loaded. Thread-safe. Errors: FAILED_PRECONDITION that names its
// package.
absl::Status LoadLibNbd();

// After LoadLibNbd() was OK.
const LibNbd& Nbd() noexcept;

}  // namespace cbt

#endif  // CBT_SOURCE_NBD_LIBNBD_H_
