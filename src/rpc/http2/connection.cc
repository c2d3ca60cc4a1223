#include "rpc/http2/connection.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "rpc/http2/session_callbacks.h"

namespace cbt::rpc::http2 {
namespace {

using std::chrono::milliseconds;

// A connection's reads and writes per turn, before others get theirs.
constexpr size_t kReadPerTurn = 256 * kKiB;
constexpr size_t kWrittenPerTurn = kMiB;

// Of those who keep lists of connections, and of the heap.
constexpr size_t kListedBytes = 256;

// nghttp2's own servers tolerate 1000 resets and then 33 a second, ours 200 and 100.
constexpr RateLimit kResetsServersTake = {150, 30};

// A status; without text if there is no memory for it.
template <typename... Parts>
absl::Status Unavailable(const Parts&... parts) noexcept {
  try {
    return absl::UnavailableError(absl::StrCat(parts...));
  } catch (const std::bad_alloc&) {
    return absl::Status(absl::StatusCode::kUnavailable, "");
  }
}

// What a server speaks whose first bytes can't be HTTP/2's, if they say it. A record of TLS begins
// with its type, an alert here, and version (RFC 8446, section 5.1).
std::string_view OtherProtocol(std::string_view first) {
  if (first.substr(0, 2) == "\x15\x03") return "TLS, and this connection is plain text";
  if (first.substr(0, 5) == "HTTP/") return "HTTP/1, not HTTP/2";
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Connection>> Connection::Create(
    net::EventLoop& loop, net::ReadChunks& chunks, std::unique_ptr<net::SocketStream> socket,
    const ConnectionSettings& settings, ConnectionListener& listener) {
  std::unique_ptr<Connection> made(
      new (std::nothrow) Connection(loop, chunks, std::move(socket), settings, listener));
  if (made == nullptr) return net::NoMemory();
  // A client may open streams before the handshake has completed.
  if (settings.role == Role::kClient && !made->StartSession()) return net::NoMemory();
  if (absl::Status status = loop.Add(made->socket_->fd(), EPOLLIN, *made); !status.ok()) {
    made->ended_ = true;
    return status;
  }
  made->interest_ = EPOLLIN;
  made->Settle();
  made->ScheduleTimer();
  made->WantFlush();
  return made;
}

Connection::Connection(net::EventLoop& loop, net::ReadChunks& chunks,
                       std::unique_ptr<net::SocketStream> socket,
                       const ConnectionSettings& settings, ConnectionListener& listener) noexcept
    : loop_(loop),
      chunks_(chunks),
      settings_(settings),
      listener_(listener),
      socket_(std::move(socket)),
      own_(chunks.account()),
      memory_(chunks.shared_account()),
      output_(chunks.account()),
      guard_(settings.peer),
      times_(settings_, net::EventLoop::Clock::now()) {}

Connection::~Connection() {
  if (!ended_ && interest_ != 0) loop_.Remove(socket_->fd(), *this);
  ended_ = true;
  while (first_stream_ != nullptr) Detach(*first_stream_);
  loop_.Cancel(timer_);
  loop_.Cancel(flush_task_);
  loop_.Cancel(read_task_);
  loop_.Cancel(end_task_);
}

bool Connection::StartSession() noexcept {
  session_.reset(SessionCallbacks::NewSession(*this));
  return session_ != nullptr;
}

// ---- reading and writing

void Connection::OnReady(uint32_t events) noexcept {
  HandleReady(events);
  Settle();
}

// Charges what the events before have changed.
void Connection::Settle() noexcept {
  if (ended_) return;
  own_.Set(sizeof *this + kListedBytes + socket_->memory() + headers_.bytes());
  listener_.OnHeld(*this);
}

void Connection::HandleReady(uint32_t events) noexcept {
  if (!handshaken_) {
    Handshake();
    if (!handshaken_ || ended_) return;
  }
  const bool writable = (events & EPOLLOUT) != 0;
  if (writable) WantFlush();
  if (writable && std::exchange(read_blocked_, false)) {
    // The peer has read something.
    times_.NoteWrite(loop_.now());
    events |= EPOLLIN;
  }
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) ReadSome();
}

void Connection::Handshake() noexcept {
  const net::SocketStream::Result result = socket_->Handshake();
  switch (result.state) {
    case net::SocketStream::State::kDone:
      break;
    case net::SocketStream::State::kWantRead:
      return SetInterest(EPOLLIN);
    case net::SocketStream::State::kWantWrite:
      return SetInterest(EPOLLOUT);
    case net::SocketStream::State::kEnd:
      return EndFor(EndCause::kHandshake,
                    Unavailable("the peer closed the connection in the handshake"));
    case net::SocketStream::State::kError:
      try {
        return EndFor(EndCause::kHandshake, Unavailable("handshake: ", socket_->ErrorText()));
      } catch (const std::bad_alloc&) {
        return EndOutOfMemory();
      }
  }
  handshaken_ = true;
  if (SSL* const ssl = socket_->ssl(); ssl != nullptr) {
    const unsigned char* name = nullptr;
    unsigned int bytes = 0;
    SSL_get0_alpn_selected(ssl, &name, &bytes);
    if (std::string_view(reinterpret_cast<const char*>(name), bytes) != "h2") {
      mismatched_ = true;
      return EndFor(EndCause::kHandshake,
                    Unavailable("TLS: the peer has not agreed to HTTP/2 (ALPN h2)"));
    }
  }
  if (session_ == nullptr && !StartSession()) return EndOutOfMemory();
  SetInterest(EPOLLIN);
  WantFlush();
  // There is no event for data that the handshake has already read.
  if (socket_->HasBuffered()) loop_.Post(read_task_);
}

void Connection::ReadMore() noexcept {
  if (!ended_ && handshaken_) ReadSome();
  Settle();
}

void Connection::ReadSome() noexcept {
  if (!listener_.MayRead()) return loop_.Post(read_task_);
  for (size_t read = 0; read < kReadPerTurn && !ended_ && !terminating_;) {
    const std::span<char> space = chunks_.Space();
    if (space.empty()) return EndOutOfMemory();
    const net::SocketStream::Result result = socket_->Read(space);
    switch (result.state) {
      case net::SocketStream::State::kDone:
        break;
      case net::SocketStream::State::kWantRead:
        return;
      case net::SocketStream::State::kWantWrite:
        // TLS owes the peer an answer that the peer does not read.
        read_blocked_ = true;
        return WantFlush();
      case net::SocketStream::State::kEnd:
        if (draining_ || goaway_received_) return End(reason_);
        return EndLost("the peer closed the connection");
      case net::SocketStream::State::kError:
        return EndLost({});
    }
    chunks_.Advance(result.bytes);
    read += result.bytes;
    if (settings_.traffic != nullptr) {
      settings_.traffic->received.fetch_add(result.bytes, std::memory_order_relaxed);
    }
    times_.NoteRead(loop_.now());
    if (!received_ && settings_.role == Role::kClient) {
      const std::string_view other = OtherProtocol({space.data(), result.bytes});
      mismatched_ = !other.empty();
      if (mismatched_) {
        return EndFor(EndCause::kHandshake, Unavailable("the server speaks ", AbslView(other)));
      }
    }
    received_ = true;
    if (!Receive(space.data(), result.bytes)) return;
    Settle();
    if (!listener_.MayRead()) break;
    if (result.bytes < space.size() && !socket_->HasBuffered()) return;
  }
  if (!ended_ && !terminating_ && socket_->HasBuffered()) loop_.Post(read_task_);
}

bool Connection::Receive(const char* data, size_t bytes) noexcept {
  const ssize_t taken =
      nghttp2_session_mem_recv(session_.get(), reinterpret_cast<const uint8_t*>(data), bytes);
  WantFlush();
  if (ended_) return false;
  if (taken < 0) {
    if (taken == NGHTTP2_ERR_NOMEM || taken == NGHTTP2_ERR_CALLBACK_FAILURE) {
      if (terminating_) return false;
      EndOutOfMemory();
    } else if (taken == NGHTTP2_ERR_BAD_CLIENT_MAGIC) {
      EndFor(EndCause::kHandshake, Unavailable("the peer does not speak HTTP/2"));
    } else {
      Terminate(taken == NGHTTP2_ERR_FLOODED ? NGHTTP2_ENHANCE_YOUR_CALM : NGHTTP2_PROTOCOL_ERROR,
                "", Unavailable("HTTP/2: ", nghttp2_strerror(static_cast<int>(taken))));
    }
    return false;
  }
  if (!guard_.MayWait(nghttp2_session_get_outbound_queue_size(session_.get()), stream_count_)) {
    Terminate(NGHTTP2_ENHANCE_YOUR_CALM, "too many frames wait for the peer to read",
              Unavailable("the peer does not read"));
    return false;
  }
  return true;
}

void Connection::WantFlush() noexcept {
  if (!ended_) loop_.Defer(flush_task_);
}

void Connection::SetInterest(uint32_t events) noexcept {
  if (interest_ == events || ended_) return;
  interest_ = events;
  loop_.Change(socket_->fd(), events, *this);
}

void Connection::Flush() noexcept {
  HandleFlush();
  Settle();
}

void Connection::HandleFlush() noexcept {
  if (ended_) return;
  if (!handshaken_) {
    Handshake();
    if (!handshaken_ || ended_) return;
  }
  size_t written = 0;
  for (;;) {
    if (!Fill()) return;
    if (output_.empty() && !socket_->unsent()) break;
    const size_t before = output_.bytes();
    if (!WriteOut()) {
      if (ended_) return;
      break;
    }
    written += before - output_.bytes();
    if (written >= kWrittenPerTurn) {
      // In the next turn, so that others are served.
      loop_.Post(read_task_);
      loop_.Defer(flush_task_);
      break;
    }
  }
  if (EndIfDone()) return;
  // An unreadable socket must not wake the loop.
  const bool reads = !terminating_ && !read_blocked_;
  const bool blocked = !output_.empty() || socket_->unsent() || (read_blocked_ && !terminating_);
  // Others wait for the room.
  if (blocked && terminating_ && cause_ == EndCause::kRoom) return End(reason_);
  if (blocked && !write_blocked_) times_.NoteWrite(loop_.now());
  write_blocked_ = blocked;
  if (blocked) ScheduleTimer();
  SetInterest((reads ? uint32_t{EPOLLIN} : 0U) | (blocked ? uint32_t{EPOLLOUT} : 0U));
}

// Moves frames from the session to the output, up to its limit.
bool Connection::Fill() noexcept {
  while (output_.bytes() < kMaxUnsentBytes && !goaway_written_) {
    const uint8_t* data = nullptr;
    const ssize_t bytes = nghttp2_session_mem_send(session_.get(), &data);
    if (ended_) return false;
    if (bytes < 0) {
      EndOutOfMemory();
      return false;
    }
    if (bytes == 0) break;
    try {
      output_.AddControl(data, static_cast<size_t>(bytes));
    } catch (const std::bad_alloc&) {
      EndOutOfMemory();
      return false;
    }
  }
  return true;
}

// Returns false if the socket takes no more now, or the connection has ended.
bool Connection::WriteOut() noexcept {
  net::SocketStream::Result result =
      socket_->unsent() ? socket_->Flush() : net::SocketStream::Result{};
  while (result.state == net::SocketStream::State::kDone && !output_.empty()) {
    std::array<iovec, OutputQueue::kMaxParts> parts;
    const size_t count = output_.Parts(parts);
    result = socket_->Write(std::span(parts).first(count));
    if (result.state != net::SocketStream::State::kDone) break;
    size_t given = 0;
    for (size_t i = 0; i < count; ++i) given += parts[i].iov_len;
    output_.RemovePrefix(result.bytes);
    if (settings_.traffic != nullptr) {
      settings_.traffic->sent.fetch_add(result.bytes, std::memory_order_relaxed);
    }
    times_.NoteWrite(loop_.now());
    // A socket that took only a part is full: another write would fail.
    const bool full = socket_->ssl() == nullptr && result.bytes < given;
    if (full || socket_->blocked()) return false;
  }
  if (result.state == net::SocketStream::State::kDone) {
    result = socket_->Flush();
  } else if (result.state == net::SocketStream::State::kWantRead) {
    // The peer may wait for it.
    socket_->Flush();
  }
  switch (result.state) {
    case net::SocketStream::State::kDone:
      times_.NoteWrite(loop_.now());
      return true;
    case net::SocketStream::State::kWantRead:
    case net::SocketStream::State::kWantWrite:
      return false;
    case net::SocketStream::State::kEnd:
      EndLost("the peer closed the connection");
      return false;
    case net::SocketStream::State::kError:
      break;
  }
  // What the server said before it closed explains more than the error.
  if (settings_.role == Role::kClient) ReadSome();
  if (!ended_) EndLost({});
  return false;
}

bool Connection::EndIfDone() noexcept {
  if (!output_.empty() || socket_->unsent()) return false;
  socket_->ReleaseBuffers();
  const bool done = terminating_ ? goaway_written_
                                 : nghttp2_session_want_read(session_.get()) == 0 &&
                                       nghttp2_session_want_write(session_.get()) == 0;
  if (done) End(reason_);
  return done;
}

// ---- streams

void Connection::Attach(Stream& stream, int32_t id) noexcept {
  stream.connection_ = this;
  stream.id_ = id;
  stream.previous_ = nullptr;
  stream.next_ = first_stream_;
  if (first_stream_ != nullptr) first_stream_->previous_ = &stream;
  first_stream_ = &stream;
  ++stream_count_;
}

void Connection::Detach(Stream& stream) noexcept {
  (stream.previous_ != nullptr ? stream.previous_->next_ : first_stream_) = stream.next_;
  if (stream.next_ != nullptr) stream.next_->previous_ = stream.previous_;
  stream.next_ = stream.previous_ = nullptr;
  SetServed(stream, false);
  stream.connection_ = nullptr;
  --stream_count_;
  times_.NoteStreamEnd(loop_.now());
  held_bytes_ -= stream.unsent_.size() + stream.unconsumed_;
  chunks_.account().Remove(stream.unsent_.size() + stream.unconsumed_);
  stream.unsent_.Clear();
  const size_t unconsumed = std::exchange(stream.unconsumed_, 0);
  if (ended_) return;
  if (session_ != nullptr) {
    nghttp2_session_set_stream_user_data(session_.get(), stream.id_, nullptr);
    if (unconsumed > 0 && !settings_.separate_streams) {
      Check(nghttp2_session_consume_connection(session_.get(), unconsumed));
    }
  }
  if (stream_count_ == 0) {
    if (draining_ && settings_.role == Role::kClient) SendLastGoaway();
    ScheduleTimer();
  }
  WantFlush();
}

void Connection::CloseStream(Stream& stream, const StreamEnd& end) noexcept {
  Detach(stream);
  stream.OnClosed(end);
}

// Whether the session accepted it; ends the connection if not.
bool Connection::Check(int result) noexcept {
  if (result >= 0) {
    WantFlush();
    return true;
  }
  EndOutOfMemory();
  return false;
}

void Connection::Open(Stream& stream, std::span<const Header> headers, absl::Cord message,
                      bool more) noexcept {
  if (ended_) return;
  const nghttp2_data_provider provider = SessionCallbacks::Provider();
  int32_t id = NGHTTP2_ERR_NOMEM;
  try {
    std::vector<nghttp2_nv> fields;
    fields.reserve(headers.size());
    for (const auto& [name, value] : headers) {
      fields.push_back(NameValue(name.data(), name.size(), value.data(), value.size()));
    }
    id = nghttp2_submit_request(session_.get(), nullptr, fields.data(), fields.size(), &provider,
                                &stream);
  } catch (const std::bad_alloc&) {
    id = NGHTTP2_ERR_NOMEM;
  }
  // The stream gets its OnClosed() together with the others.
  Attach(stream, std::max(id, 0));
  stream.finish_ = more ? Stream::Finish::kNot : Stream::Finish::kEnd;
  if (id < 0) {
    if (id == NGHTTP2_ERR_STREAM_ID_NOT_AVAILABLE) {
      return End(Unavailable("the connection has no stream numbers left"));
    }
    return EndOutOfMemory();
  }
  if (!message.empty()) Send(stream, std::move(message));
  WantFlush();
}

void Connection::SendHeaders(Stream& stream, std::span<const Header> headers, bool end) noexcept {
  if (ended_ || stream.connection_ != this) return;
  const nghttp2_data_provider provider = SessionCallbacks::Provider();
  try {
    std::vector<nghttp2_nv> fields;
    fields.reserve(headers.size());
    for (const auto& [name, value] : headers) {
      fields.push_back(NameValue(name.data(), name.size(), value.data(), value.size()));
    }
    Check(nghttp2_submit_response(session_.get(), stream.id_, fields.data(), fields.size(),
                                  end ? nullptr : &provider));
  } catch (const std::bad_alloc&) {
    EndOutOfMemory();
  }
}

void Connection::Resume(Stream& stream) noexcept {
  if (stream.deferred_) {
    stream.deferred_ = false;
    Check(nghttp2_session_resume_data(session_.get(), stream.id_));
  }
  WantFlush();
}

void Connection::Send(Stream& stream, absl::Cord message) noexcept {
  if (ended_ || stream.connection_ != this) return;
  held_bytes_ += message.size();
  chunks_.account().Add(message.size());
  stream.unsent_ = std::move(message);
  Resume(stream);
}

void Connection::SendEnd(Stream& stream) noexcept {
  if (ended_ || stream.connection_ != this) return;
  stream.finish_ = Stream::Finish::kEnd;
  Resume(stream);
}

void Connection::SendTrailers(Stream& stream, std::span<const Header> trailers) noexcept {
  if (ended_ || stream.connection_ != this) return;
  try {
    for (const auto& [name, value] : trailers) stream.trailers_.Add(name, value);
  } catch (const std::bad_alloc&) {
    return EndOutOfMemory();
  }
  stream.finish_ = Stream::Finish::kTrailers;
  Resume(stream);
}

void Connection::Reset(Stream& stream, uint32_t code) noexcept {
  if (stream.connection_ != this) return;
  const int32_t id = stream.id_;
  Detach(stream);
  if (ended_ || id == 0) return;
  ++own_resets_;
  resets_sent_.Count(kResetsServersTake, loop_.now());
  Check(nghttp2_submit_rst_stream(session_.get(), NGHTTP2_FLAG_NONE, id, code));
}

bool Connection::MayResetOneMore() noexcept {
  return resets_sent_.Allows(stream_count_ + 1, kResetsServersTake, loop_.now());
}

void Connection::Consume(Stream& stream, size_t bytes) noexcept {
  if (ended_ || stream.connection_ != this || bytes == 0) return;
  const size_t taken = std::min(bytes, stream.unconsumed_);
  stream.unconsumed_ -= taken;
  held_bytes_ -= taken;
  chunks_.account().Remove(taken);
  Check(settings_.separate_streams
            ? nghttp2_session_consume_stream(session_.get(), stream.id_, taken)
            : nghttp2_session_consume(session_.get(), stream.id_, taken));
}

size_t Connection::memory() const noexcept {
  return own_.bytes() + memory_.used() + output_.bytes() + held_bytes_ +
         stream_count_ * settings_.stream_bytes;
}

void Connection::SetServed(Stream& stream, bool served) noexcept {
  if (stream.connection_ != this || stream.served_ == served) return;
  stream.served_ = served;
  served ? ++served_count_ : --served_count_;
  if (served_count_ == (served ? 1 : 0) && !ended_) listener_.OnServed(*this);
}

// ---- the end: shutdown, errors

void Connection::EndOutOfMemory() noexcept {
  End(absl::Status(absl::StatusCode::kResourceExhausted, ""));
}

void Connection::End(const absl::Status& reason) noexcept {
  if (ended_) return;
  ended_ = true;
  reason_ = reason;
  loop_.Remove(socket_->fd(), *this);
  loop_.Cancel(timer_);
  loop_.Defer(end_task_);
}

void Connection::NoteCause(EndCause cause) noexcept {
  if (cause_ == EndCause::kOther && !ended_) cause_ = cause;
}

void Connection::EndFor(EndCause cause, const absl::Status& reason) noexcept {
  NoteCause(cause);
  End(reason);
}

// The socket is no longer of use. Without `text`: for the reason that it has.
void Connection::EndLost(std::string_view text) noexcept {
  try {
    const bool mute = settings_.role == Role::kClient && !received_ && socket_->ssl() == nullptr;
    End(absl::UnavailableError(absl::StrCat(
        text.empty() ? socket_->ErrorText() : std::string(text),
        mute ? ": the server has said nothing, it may be starting, or expect TLS" : "")));
  } catch (const std::bad_alloc&) {
    EndOutOfMemory();
  }
}

void Connection::FinishEnd() noexcept {
  while (first_stream_ != nullptr) {
    Stream& stream = *first_stream_;
    CloseStream(stream, {.by = StreamEnd::By::kConnection,
                         .code = NGHTTP2_NO_ERROR,
                         .unprocessed = settings_.role == Role::kClient && !stream.request_sent_});
  }
  output_.Clear();
  session_.reset();
  socket_->Shutdown();
  // May destroy this.
  listener_.OnClosed(*this, reason_);
}

void Connection::Close(const absl::Status& reason, EndCause cause) noexcept {
  EndFor(cause, reason);
}

void Connection::MakeRoom() noexcept {
  const absl::Status reason(absl::StatusCode::kResourceExhausted, "");
  NoteCause(EndCause::kRoom);
  const bool reads = ready_ && !write_blocked_ && output_.empty() && !socket_->unsent();
  if (!reads) return End(reason);
  Terminate(NGHTTP2_NO_ERROR, "the server needs the room", reason);
}

void Connection::Terminate(uint32_t code, std::string_view text,
                           const absl::Status& reason) noexcept {
  if (ended_ || terminating_) return;
  if (code == NGHTTP2_ENHANCE_YOUR_CALM) NoteCause(EndCause::kFlood);
  if (session_ == nullptr || !handshaken_) return End(reason);
  terminating_ = true;
  times_.NoteTerminate(loop_.now());
  reason_ = reason;
  const int32_t last = nghttp2_session_get_last_proc_stream_id(session_.get());
  if (!Check(nghttp2_submit_goaway(session_.get(), NGHTTP2_FLAG_NONE, last, code,
                                   reinterpret_cast<const uint8_t*>(text.data()), text.size()))) {
    return;
  }
  ScheduleTimer();
}

void Connection::Shutdown() noexcept {
  if (ended_ || draining_) return;
  draining_ = true;
  times_.NoteDrain(loop_.now());
  if (session_ == nullptr || !handshaken_) return End(absl::OkStatus());
  if (settings_.role == Role::kClient) {
    if (stream_count_ == 0) SendLastGoaway();
    return;
  }
  // Requests may be in flight: the last stream's number follows after a round trip.
  if (!Check(nghttp2_submit_shutdown_notice(session_.get()))) return;
  SendPing(kDrainPing);
  ScheduleTimer();
}

void Connection::SendLastGoaway() noexcept {
  if (ended_ || last_goaway_sent_) return;
  last_goaway_sent_ = true;
  const int32_t last = nghttp2_session_get_last_proc_stream_id(session_.get());
  Check(
      nghttp2_submit_goaway(session_.get(), NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, nullptr, 0));
}

// nghttp2 has detected that the peer breaks the protocol, and ends the session itself.
void Connection::NoteProtocolError(const nghttp2_frame& goaway) noexcept {
  if (terminating_) return;
  try {
    reason_ = absl::UnavailableError(
        absl::StrCat("HTTP/2: ", nghttp2_http2_strerror(goaway.goaway.error_code), ": ",
                     absl::string_view(reinterpret_cast<const char*>(goaway.goaway.opaque_data),
                                       goaway.goaway.opaque_data_len)));
  } catch (const std::bad_alloc&) {
    reason_ = absl::Status(absl::StatusCode::kUnavailable, "");
  }
  mismatched_ = !ready_;
  terminating_ = goaway_written_ = true;
  times_.NoteTerminate(loop_.now());
  ScheduleTimer();
}

// ---- a server that takes no streams

void Connection::NoteStreamLimit() noexcept {
  const bool barred = nghttp2_session_get_remote_settings(
                          session_.get(), NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS) == 0;
  times_.NoteBarred(barred, loop_.now());
  ScheduleTimer();
}

// A server may say 0 for a moment only (RFC 9113, section 5.1.2). Calls must not wait here for
// ever: this is as good as its GOAWAY.
void Connection::LeaveBarred() noexcept {
  times_.NoteBarred(false, loop_.now());
  goaway_received_ = true;
  listener_.OnGoaway(*this, NGHTTP2_NO_ERROR, "the server's limit of streams is 0");
  for (Stream* stream = first_stream_; stream != nullptr && !ended_;) {
    if (stream->request_sent_) {
      stream = stream->next_;
      continue;
    }
    Reset(*stream, NGHTTP2_CANCEL);
    stream->OnClosed(
        {.by = StreamEnd::By::kPeer, .code = NGHTTP2_REFUSED_STREAM, .unprocessed = true});
    // The list may have changed.
    stream = first_stream_;
  }
  Shutdown();
}

// ---- pings

void Connection::SendPing(uint8_t kind) noexcept {
  const std::array<uint8_t, 8> opaque = {kind};
  Check(nghttp2_submit_ping(session_.get(), NGHTTP2_FLAG_NONE, opaque.data()));
}

void Connection::Ping() noexcept {
  if (!ended_) SendPing(kUserPing);
}

void Connection::OnPingAck(uint8_t kind) noexcept {
  if (kind == kKeepalivePing) {
    times_.NotePong();
  } else if (kind == kDrainPing) {
    if (draining_) SendLastGoaway();
  } else if (kind == kUserPing) {
    listener_.OnPong(*this);
  }
}

// ---- times

TimeLimits::State Connection::state() const noexcept {
  return {.ready = ready_,
          .terminating = terminating_,
          .draining = draining_,
          // A draining server announces the last stream's number after some time.
          .awaits_last_goaway = draining_ && !last_goaway_sent_ && settings_.role == Role::kServer,
          .write_blocked = write_blocked_,
          .streams = stream_count_};
}

// Each step may change the state.
void Connection::OnTime() noexcept {
  if (ended_) return;
  try {
    const net::EventLoop::Clock::time_point now = loop_.now();
    if (times_.LastFramesLate(state(), now)) return End(reason_);
    if (times_.HandshakeLate(state(), now)) {
      return EndFor(EndCause::kHandshake,
                    absl::UnavailableError("the peer's handshake takes too long"));
    }
    if (times_.BarredTooLong(now)) LeaveBarred();
    if (times_.Stalled(state(), now)) {
      return EndFor(EndCause::kStall, absl::UnavailableError("the peer does not read"));
    }
    if (times_.Aged(now)) {
      NoteCause(EndCause::kAge);
      Shutdown();
      if (times_.TooOld(now)) {
        return End(absl::UnavailableError("the connection has reached its greatest age"));
      }
    }
    if (times_.Idle(state(), now)) {
      NoteCause(EndCause::kIdle);
      Shutdown();
    }
    if (times_.LastGoawayDue(state(), now)) SendLastGoaway();
    switch (times_.Keepalive(state(), now)) {
      case TimeLimits::Silence::kNone:
        break;
      case TimeLimits::Silence::kPing:
        SendPing(kKeepalivePing);
        break;
      case TimeLimits::Silence::kSilent:
        EndFor(EndCause::kSilence, absl::UnavailableError("keepalive: the peer does not answer"));
        break;
    }
  } catch (const std::bad_alloc&) {
    return EndOutOfMemory();
  }
  ScheduleTimer();
}

void Connection::ScheduleTimer() noexcept {
  if (!ended_) loop_.Schedule(timer_, times_.Next(state(), loop_.now()));
}

}  // namespace cbt::rpc::http2
