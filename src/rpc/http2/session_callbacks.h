// nghttp2's callbacks for a connection's session.
#ifndef CBT_RPC_HTTP2_SESSION_CALLBACKS_H_
#define CBT_RPC_HTTP2_SESSION_CALLBACKS_H_

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>

#include "cbt/units.h"

namespace cbt::rpc::http2 {

class Connection;
class Stream;

// The largest frame sent; larger ones are not faster.
inline constexpr uint32_t kMaxSentFrameBytes = 256 * kKiB;

// A connection with this much unsent output takes no more from its streams.
inline constexpr size_t kMaxUnsentBytes = 256 * kKiB;

// The first byte of pings, which identifies the sender.
inline constexpr uint8_t kKeepalivePing = 1;
inline constexpr uint8_t kDrainPing = 2;
inline constexpr uint8_t kUserPing = 3;

// None of them throws: without memory they return an error that ends the session.
struct SessionCallbacks {
  // The same for all sessions; null without memory.
  static const nghttp2_session_callbacks* All() noexcept;

  // A session for a connection, which has submitted its settings; null without memory. The caller
  // deletes it.
  static nghttp2_session* NewSession(Connection& self) noexcept;

  // For submitting: pulls the message from the stream.
  static nghttp2_data_provider Provider() noexcept;

  static Connection& Self(void* user) noexcept { return *static_cast<Connection*>(user); }
  static Stream* StreamOf(nghttp2_session* session, int32_t id) noexcept;

  // Receiving.
  static int OnBeginFrame(nghttp2_session*, const nghttp2_frame_hd* head, void* user);
  static void CountEmptyFrame(Connection& self);
  static int OnUnknownFrame(nghttp2_session*, void** payload, const nghttp2_frame_hd*, void* user);
  static int OnBeginHeaders(nghttp2_session*, const nghttp2_frame*, void* user);
  static int OnHeader(nghttp2_session*, const nghttp2_frame*, const uint8_t* name,
                      size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t,
                      void* user);
  static int OnFrame(nghttp2_session* session, const nghttp2_frame* frame, void* user);
  static int OnHeaders(nghttp2_session* session, const nghttp2_frame& frame, Connection& self);
  static int ResetMalformed(nghttp2_session* session, int32_t id) noexcept;
  static int OnRemoteEnd(nghttp2_session* session, int32_t id) noexcept;
  static int OnPing(const nghttp2_frame& frame, Connection& self);
  static int OnDataChunk(nghttp2_session* session, uint8_t, int32_t id, const uint8_t* data,
                         size_t bytes, void* user);
  static int OnStreamClose(nghttp2_session* session, int32_t id, uint32_t code, void* user);

  // Sending.
  static int OnFrameSent(nghttp2_session* session, const nghttp2_frame* frame, void* user);
  static ssize_t ReadLength(nghttp2_session* session, uint8_t, int32_t id, int32_t, int32_t,
                            uint32_t max_frame_bytes, void* user);
  static ssize_t ReadData(nghttp2_session* session, int32_t id, uint8_t*, size_t bytes,
                          uint32_t* flags, nghttp2_data_source*, void* user);
  static int SendData(nghttp2_session* session, nghttp2_frame* frame, const uint8_t* head,
                      size_t bytes, nghttp2_data_source*, void* user);
};

// A field in nghttp2's form; nghttp2 copies the bytes.
nghttp2_nv NameValue(const char* name, size_t name_bytes, const char* value,
                     size_t value_bytes) noexcept;

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_SESSION_CALLBACKS_H_
