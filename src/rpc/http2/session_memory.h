// Memory of an HTTP/2 session.
#ifndef CBT_RPC_HTTP2_SESSION_MEMORY_H_
#define CBT_RPC_HTTP2_SESSION_MEMORY_H_

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <memory>

#include "net/memory.h"

namespace cbt::rpc::http2 {

// nghttp2's allocations for one session, counted. The large ones, whose pages it hardly touches,
// come directly from the system, so that an idle connection keeps no used memory. Outlives the
// session.
//
// After a failed allocation the session may only be deleted, and no memory is released before this
// object is destroyed: nghttp2 may still refer to freed memory (a stream to its DATA, if the queue
// of streams can't grow).
class SessionMemory {
 public:
  explicit SessionMemory(std::shared_ptr<net::MemoryAccount> account) noexcept;
  ~SessionMemory();
  SessionMemory(const SessionMemory&) = delete;
  SessionMemory& operator=(const SessionMemory&) = delete;

  nghttp2_mem* functions() noexcept { return &functions_; }
  size_t used() const noexcept { return used_; }

 private:
  struct Header;
  static Header* HeaderOf(void* data) noexcept;
  void Release(Header* header) noexcept;
  static void* Malloc(size_t bytes, void* self);
  static void Free(void* data, void* self);
  static void* Calloc(size_t count, size_t bytes, void* self);
  static void* Realloc(void* data, size_t bytes, void* self);

  const std::shared_ptr<net::MemoryAccount> account_;
  size_t used_ = 0;
  Header* first_ = nullptr;
  bool failed_ = false;
  nghttp2_mem functions_;
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_SESSION_MEMORY_H_
