// An HTTP/2 connection, of a server or a client.
#ifndef CBT_RPC_HTTP2_CONNECTION_H_
#define CBT_RPC_HTTP2_CONNECTION_H_

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "net/address.h"
#include "net/event_loop.h"
#include "net/memory.h"
#include "net/socket_stream.h"
#include "rpc/http2/connection_limits.h"
#include "rpc/http2/header_block.h"
#include "rpc/http2/output_queue.h"
#include "rpc/http2/request_rules.h"
#include "rpc/http2/session_memory.h"
#include "rpc/http2/stream.h"

namespace cbt::rpc::http2 {

// The cause of a connection's end, for operators.
enum class EndCause {
  kOther,      // the peer left, or a shutdown
  kHandshake,  // TLS or HTTP/2: failed, or took too long
  kFlood,      // too many resets, pings, headers or other frames
  kStall,      // the peer did not read
  kSilence,    // the peer did not answer a ping
  kAge,
  kIdle,
  kMemory,
  kRoom,  // see Connection::MakeRoom()
};

// Receives a connection's events, in its loop. Outlives the connection.
class ConnectionListener {
 public:
  virtual ~ConnectionListener() = default;

  // The handshake has completed and the peer's SETTINGS have arrived. Streams may be opened before.
  virtual void OnReady(Connection& /*connection*/) noexcept {}

  // Servers: the stream of a new request, whose OnHeaders() comes next with the same headers. Null
  // refuses it: REFUSED_STREAM.
  virtual Stream* OnRequest(Connection& /*connection*/, const HeaderBlock& /*headers*/) noexcept {
    return nullptr;
  }

  // The peer takes no new streams. Streams that it has not processed are closed as unprocessed.
  virtual void OnGoaway(Connection& /*connection*/, uint32_t /*code*/,
                        std::string_view /*text*/) noexcept {}

  // The answer to Connection::Ping().
  virtual void OnPong(Connection& /*connection*/) noexcept {}

  // Whether connections may read on; otherwise they wait for the loop's next turn.
  virtual bool MayRead() noexcept { return true; }

  // After events that may have changed what the connection holds.
  virtual void OnHeld(Connection& /*connection*/) noexcept {}

  // The connection's first stream is served, or its last one no longer is: see SetServed().
  virtual void OnServed(Connection& /*connection*/) noexcept {}

  // The last event; every stream has had its OnClosed(). OK after a shutdown by either side. The
  // connection may be destroyed here.
  virtual void OnClosed(Connection& connection, const absl::Status& reason) noexcept = 0;
};

// Used in its loop only. Functions do not throw or block, and unless noted none calls the listener
// or a stream before it returns. Out of memory, the connection ends. After the end functions do
// nothing.
class Connection final : private net::Watch {
 public:
  // `socket` is connected; its TLS handshake has not begun. Events start in the loop's next turn.
  // `loop`, and `chunks` of the loop, outlive the connection. Errors: RESOURCE_EXHAUSTED without
  // memory, UNAVAILABLE if the system refuses.
  static absl::StatusOr<std::unique_ptr<Connection>> Create(
      net::EventLoop& loop, net::ReadChunks& chunks, std::unique_ptr<net::SocketStream> socket,
      const ConnectionSettings& settings, ConnectionListener& listener);

  // Detaches open streams without an event. Not within an event, except the listener's OnClosed().
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Clients: sends a request, then `message`, then END_STREAM unless `more`. A stream over the
  // peer's limit waits. After GOAWAY it is closed as unprocessed in this turn.
  void Open(Stream& stream, std::span<const Header> headers, absl::Cord message,
            bool more = false) noexcept;

  // Servers: the response's headers, once. `end`: nothing follows.
  void SendHeaders(Stream& stream, std::span<const Header> headers, bool end) noexcept;

  // Sends `message` from its own memory, without a copy; ends with OnSent(). One at a time, after
  // the headers.
  void Send(Stream& stream, absl::Cord message) noexcept;

  // Ends this side of the stream after the message passed to Send().
  void SendEnd(Stream& stream) noexcept;
  void SendTrailers(Stream& stream, std::span<const Header> trailers) noexcept;

  // Sends RST_STREAM, drops unsent data, and detaches the stream: it gets no more events.
  void Reset(Stream& stream, uint32_t code) noexcept;

  // `bytes` of the data from OnData() are no longer held; the peer may send as many again.
  void Consume(Stream& stream, size_t bytes) noexcept;

  // A ping; see OnPong(). One at a time.
  void Ping() noexcept;

  // Takes no new streams, and ends once the open ones have. A server notifies the peer at once; a
  // client only at the end, because the peer may refuse streams that still wait for its limit.
  void Shutdown() noexcept;

  // Sends GOAWAY with the code and text, and ends soon, whatever is open.
  void Terminate(uint32_t code, std::string_view text, const absl::Status& reason) noexcept;

  // Ends at the end of this turn, without a frame.
  void Close(const absl::Status& reason, EndCause cause = EndCause::kOther) noexcept;

  // Ends as soon as that is possible without waiting for the peer, which gets GOAWAY if it reads.
  void MakeRoom() noexcept;

  // Servers: whether a handler works on the stream's request, as opposed to waiting for its rest or
  // for the peer to read the end of the answer. A stream that is closed no longer counts.
  void SetServed(Stream& stream, bool served) noexcept;
  bool serves() const noexcept { return served_count_ > 0; }

  // The first cause that led to the end.
  EndCause cause() const noexcept { return cause_; }

  bool ready() const noexcept { return ready_; }
  bool draining() const noexcept { return draining_; }
  bool ended() const noexcept { return ended_; }
  // Whether it ended because the two sides do not fit: TLS was refused, or HTTP/2 is not spoken.
  bool mismatched() const noexcept { return mismatched_ || socket_->refused_by_tls(); }
  // Whether Open() may be called: no GOAWAY was sent or received.
  bool CanOpen() const noexcept { return !ended_ && !draining_ && !goaway_received_; }
  // Clients: whether one more stream could be opened and all of them reset at once without the
  // server taking it for a flood.
  bool MayResetOneMore() noexcept;
  size_t streams() const noexcept { return stream_count_; }
  // Bytes held: this object, the socket's, session, output, waiting messages, unconsumed data, and
  // what the streams' users hold.
  size_t memory() const noexcept;
  net::EventLoop& loop() noexcept { return loop_; }
  // For the peer's certificate and similar; null without TLS.
  SSL* ssl() const noexcept { return socket_->ssl(); }
  // The other side's address without its port; empty for a Unix socket. Throws std::bad_alloc.
  std::string PeerAddress() const { return net::PeerAddressOf(socket_->fd()); }

 private:
  friend struct SessionCallbacks;
  struct FreeSession {
    void operator()(nghttp2_session* session) const noexcept { nghttp2_session_del(session); }
  };

  Connection(net::EventLoop& loop, net::ReadChunks& chunks,
             std::unique_ptr<net::SocketStream> socket, const ConnectionSettings& settings,
             ConnectionListener& listener) noexcept;

  void OnReady(uint32_t events) noexcept override;
  void HandleReady(uint32_t events) noexcept;
  void HandleFlush() noexcept;
  void Settle() noexcept;
  void Handshake() noexcept;
  bool StartSession() noexcept;
  void ReadSome() noexcept;
  bool Receive(const char* data, size_t bytes) noexcept;
  void ReadMore() noexcept;
  void Flush() noexcept;
  bool Fill() noexcept;
  bool WriteOut() noexcept;
  bool EndIfDone() noexcept;
  void SetInterest(uint32_t events) noexcept;
  void WantFlush() noexcept;

  bool Check(int result) noexcept;
  void Attach(Stream& stream, int32_t id) noexcept;
  void Detach(Stream& stream) noexcept;
  void CloseStream(Stream& stream, const StreamEnd& end) noexcept;
  void Resume(Stream& stream) noexcept;
  void End(const absl::Status& reason) noexcept;
  void EndOutOfMemory() noexcept;
  void EndLost(std::string_view text) noexcept;
  void FinishEnd() noexcept;
  void EndFor(EndCause cause, const absl::Status& reason) noexcept;
  void NoteCause(EndCause cause) noexcept;

  void OnTime() noexcept;
  void ScheduleTimer() noexcept;
  TimeLimits::State state() const noexcept;
  void SendPing(uint8_t kind) noexcept;
  void OnPingAck(uint8_t kind) noexcept;
  void SendLastGoaway() noexcept;
  void NoteStreamLimit() noexcept;
  void LeaveBarred() noexcept;
  void NoteProtocolError(const nghttp2_frame& goaway) noexcept;

  net::EventLoop& loop_;
  net::ReadChunks& chunks_;
  const ConnectionSettings settings_;
  ConnectionListener& listener_;
  const std::unique_ptr<net::SocketStream> socket_;
  net::MemoryCharge own_;  // this object, the socket's, and the headers
  SessionMemory memory_;
  OutputQueue output_;
  std::unique_ptr<nghttp2_session, FreeSession> session_;
  HeaderBlock headers_;  // of the block being received
  RequestRules rules_;   // servers: for that block
  size_t header_bytes_ = 0;
  Stream* first_stream_ = nullptr;
  size_t stream_count_ = 0;
  size_t served_count_ = 0;
  size_t held_bytes_ = 0;  // of all streams: unsent, and received but not consumed
  PeerGuard guard_;
  RateCounter resets_sent_;
  TimeLimits times_;
  absl::Status reason_;
  EndCause cause_ = EndCause::kOther;
  uint32_t interest_ = 0;
  bool handshaken_ = false;
  bool mismatched_ = false;
  bool received_ = false;  // anything
  bool ready_ = false;
  bool draining_ = false;  // Shutdown() was called
  bool last_goaway_sent_ = false;
  bool terminating_ = false;     // Terminate() was called
  bool goaway_written_ = false;  // after that
  bool goaway_received_ = false;
  bool ended_ = false;
  bool write_blocked_ = false;
  bool read_blocked_ = false;  // until the socket accepts what TLS must write before it reads on
  uint32_t own_resets_ = 0;    // RST_STREAM requested but not sent yet

  net::MemberTimer<Connection, &Connection::OnTime> timer_{*this};
  net::MemberTask<Connection, &Connection::Flush> flush_task_{*this};
  net::MemberTask<Connection, &Connection::ReadMore> read_task_{*this};
  net::MemberTask<Connection, &Connection::FinishEnd> end_task_{*this};
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_CONNECTION_H_
