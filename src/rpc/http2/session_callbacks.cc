#include "rpc/http2/session_callbacks.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "rpc/http2/connection.h"
#include "rpc/http2/stream.h"

namespace cbt::rpc::http2 {
namespace {

// Header fields are decoded but not kept up to this many times the limit; beyond, it is an attack.
constexpr size_t kHeaderFlood = 16;

std::string_view View(const uint8_t* data, size_t bytes) noexcept {
  return {reinterpret_cast<const char*>(data), bytes};
}

struct FreeOption {
  void operator()(nghttp2_option* option) const noexcept { nghttp2_option_del(option); }
};

bool SubmitSettings(nghttp2_session* session, const ConnectionSettings& settings) noexcept {
  std::array<nghttp2_settings_entry, 6> entries = {};
  size_t count = 0;
  const auto add = [&](int32_t id, uint32_t value) { entries[count++] = {id, value}; };
  add(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, settings.stream_window_bytes);
  add(NGHTTP2_SETTINGS_MAX_FRAME_SIZE, settings.max_frame_bytes);
  add(NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, settings.max_header_bytes);
  if (settings.role == Role::kServer) {
    add(NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, settings.max_streams);
    // Dependency trees would be work that a peer can cause.
    add(NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1);
  } else {
    add(NGHTTP2_SETTINGS_ENABLE_PUSH, 0);
  }
  return nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, entries.data(), count) == 0 &&
         nghttp2_session_set_local_window_size(
             session, NGHTTP2_FLAG_NONE, 0,
             static_cast<int32_t>(settings.connection_window_bytes)) == 0;
}

}  // namespace

nghttp2_nv NameValue(const char* name, size_t name_bytes, const char* value,
                     size_t value_bytes) noexcept {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name)),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value)), name_bytes, value_bytes,
          NGHTTP2_NV_FLAG_NONE};
}

const nghttp2_session_callbacks* SessionCallbacks::All() noexcept {
  static nghttp2_session_callbacks* const all = [] {
    nghttp2_session_callbacks* made = nullptr;
    if (nghttp2_session_callbacks_new(&made) != 0) return made;
    nghttp2_session_callbacks_set_on_begin_frame_callback(made, &OnBeginFrame);
    nghttp2_session_callbacks_set_unpack_extension_callback(made, &OnUnknownFrame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(made, &OnBeginHeaders);
    nghttp2_session_callbacks_set_on_header_callback(made, &OnHeader);
    nghttp2_session_callbacks_set_on_frame_recv_callback(made, &OnFrame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made, &OnDataChunk);
    nghttp2_session_callbacks_set_on_stream_close_callback(made, &OnStreamClose);
    nghttp2_session_callbacks_set_on_frame_send_callback(made, &OnFrameSent);
    nghttp2_session_callbacks_set_data_source_read_length_callback(made, &ReadLength);
    nghttp2_session_callbacks_set_send_data_callback(made, &SendData);
    return made;
  }();
  return all;
}

nghttp2_session* SessionCallbacks::NewSession(Connection& self) noexcept {
  const ConnectionSettings& settings = self.settings_;
  nghttp2_option* made = nullptr;
  if (All() == nullptr || nghttp2_option_new(&made) != 0) return nullptr;
  const std::unique_ptr<nghttp2_option, FreeOption> option(made);
  nghttp2_option_set_no_auto_window_update(made, 1);
  nghttp2_option_set_no_closed_streams(made, 1);
  // See RequestRules.
  if (settings.role == Role::kServer) nghttp2_option_set_no_http_messaging(made, 1);
  nghttp2_option_set_max_outbound_ack(made, settings.peer.waiting_frames);
  // All types that it does not know, so that they are counted.
  for (int type = NGHTTP2_ALTSVC; type <= 255; ++type) {
    nghttp2_option_set_user_recv_extension_type(made, static_cast<uint8_t>(type));
  }
#ifdef CBT_NGHTTP2_HAS_RESET_LIMIT
  // Our limit comes first and has a text for the peer; nghttp2's also counts what it drops.
  nghttp2_option_set_stream_reset_rate_limit(
      made, static_cast<uint64_t>(2 * settings.peer.resets.burst),
      static_cast<uint64_t>(2 * settings.peer.resets.per_second));
#endif
  nghttp2_session* session = nullptr;
  const auto create =
      settings.role == Role::kServer ? &nghttp2_session_server_new3 : &nghttp2_session_client_new3;
  if (create(&session, All(), &self, made, self.memory_.functions()) != 0) return nullptr;
  if (SubmitSettings(session, settings)) return session;
  nghttp2_session_del(session);
  return nullptr;
}

nghttp2_data_provider SessionCallbacks::Provider() noexcept {
  nghttp2_data_provider provider = {};
  provider.read_callback = &ReadData;
  return provider;
}

Stream* SessionCallbacks::StreamOf(nghttp2_session* session, int32_t id) noexcept {
  return static_cast<Stream*>(nghttp2_session_get_stream_user_data(session, id));
}

int SessionCallbacks::OnBeginFrame(nghttp2_session*, const nghttp2_frame_hd* head, void* user) {
  Connection& self = Self(user);
  const bool last = (head->flags & NGHTTP2_FLAG_END_STREAM) != 0;
  const bool acknowledged = (head->flags & NGHTTP2_FLAG_ACK) != 0;
  const bool empty = head->type == NGHTTP2_PRIORITY ||
                     (head->type == NGHTTP2_SETTINGS && !acknowledged) ||
                     (head->type == NGHTTP2_DATA && head->length == 0 && !last);
  if (empty) CountEmptyFrame(self);
  const bool upkeep =
      self.settings_.role == Role::kServer &&
      (head->type == NGHTTP2_WINDOW_UPDATE || (head->type == NGHTTP2_PING && !acknowledged));
  if (upkeep && !self.guard_.CountUpkeepFrame(self.loop_.now())) {
    self.Terminate(NGHTTP2_ENHANCE_YOUR_CALM, "too many window updates and pings",
                   absl::ResourceExhaustedError("the peer sent too many window updates and pings"));
  }
  return 0;
}

void SessionCallbacks::CountEmptyFrame(Connection& self) {
  if (self.guard_.CountEmptyFrame(self.loop_.now())) return;
  self.Terminate(NGHTTP2_ENHANCE_YOUR_CALM, "too many empty frames",
                 absl::ResourceExhaustedError("the peer sent too many empty frames"));
}

// Frames of types that HTTP/2 does not define are skipped (RFC 9113, section 4.1).
int SessionCallbacks::OnUnknownFrame(nghttp2_session*, void** payload, const nghttp2_frame_hd*,
                                     void* user) {
  *payload = nullptr;
  CountEmptyFrame(Self(user));
  return NGHTTP2_ERR_CANCEL;
}

int SessionCallbacks::OnBeginHeaders(nghttp2_session*, const nghttp2_frame* frame, void* user) {
  Connection& self = Self(user);
  self.headers_.Clear();
  self.rules_.Begin(frame->headers.cat != NGHTTP2_HCAT_REQUEST);
  self.header_bytes_ = 0;
  return 0;
}

int SessionCallbacks::OnHeader(nghttp2_session*, const nghttp2_frame*, const uint8_t* name,
                               size_t name_bytes, const uint8_t* value, size_t value_bytes, uint8_t,
                               void* user) {
  Connection& self = Self(user);
  const size_t limit = self.settings_.max_header_bytes;
  const bool taken = self.settings_.role == Role::kClient ||
                     self.rules_.Take(View(name, name_bytes), View(value, value_bytes));
  self.header_bytes_ += name_bytes + value_bytes + HeaderBlock::kFieldBytes;
  if (self.header_bytes_ > limit) {
    self.headers_.set_cut();
    if (self.header_bytes_ <= limit * kHeaderFlood) return 0;
    self.Terminate(NGHTTP2_ENHANCE_YOUR_CALM, "too many headers",
                   absl::ResourceExhaustedError("the peer sent too many headers"));
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
  if (!taken) return 0;
  try {
    self.headers_.Add(View(name, name_bytes), View(value, value_bytes));
  } catch (const std::bad_alloc&) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return 0;
}

int SessionCallbacks::OnFrame(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
  Connection& self = Self(user);
  if (self.ended_ || self.terminating_) return 0;
  switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
      return OnHeaders(session, *frame, self);
    case NGHTTP2_DATA:
      if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
      return OnRemoteEnd(session, frame->hd.stream_id);
    case NGHTTP2_RST_STREAM:
      if (Stream* const stream = StreamOf(session, frame->hd.stream_id); stream != nullptr) {
        stream->reset_by_peer_ = true;
      }
      if (self.settings_.traffic != nullptr) ++self.settings_.traffic->resets;
      if (self.settings_.role == Role::kServer && !self.guard_.CountReset(self.loop_.now())) {
        self.Terminate(NGHTTP2_ENHANCE_YOUR_CALM, "too many resets",
                       absl::ResourceExhaustedError("the peer reset too many streams"));
      }
      return 0;
    case NGHTTP2_SETTINGS:
      if (self.settings_.role == Role::kClient) self.NoteStreamLimit();
      if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0 && !self.ready_) {
        self.ready_ = true;
        self.ScheduleTimer();
        self.listener_.OnReady(self);
      }
      return 0;
    case NGHTTP2_PING:
      return OnPing(*frame, self);
    case NGHTTP2_GOAWAY:
      self.goaway_received_ = true;
      self.listener_.OnGoaway(self, frame->goaway.error_code,
                              View(frame->goaway.opaque_data, frame->goaway.opaque_data_len));
      return 0;
    default:
      return 0;
  }
}

int SessionCallbacks::OnHeaders(nghttp2_session* session, const nghttp2_frame& frame,
                                Connection& self) {
  const int32_t id = frame.hd.stream_id;
  const bool end = (frame.hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  if (self.settings_.role == Role::kServer && !self.rules_.IsWellFormed(end)) {
    return ResetMalformed(session, id);
  }
  if (frame.headers.cat == NGHTTP2_HCAT_REQUEST) {
    Stream* const stream = self.draining_ ? nullptr : self.listener_.OnRequest(self, self.headers_);
    if (stream == nullptr) {
      ++self.own_resets_;
      return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
    }
    self.guard_.OnRequest();
    stream->body_left_ = self.rules_.content_length();
    self.Attach(*stream, id);
    nghttp2_session_set_stream_user_data(session, id, stream);
  }
  Stream* const stream = StreamOf(session, id);
  if (stream == nullptr) return 0;
  if (stream->headers_received_) {
    stream->OnTrailers(self.headers_);
  } else {
    const std::string_view status = self.headers_.Find(":status").value_or("");
    if (status.starts_with('1')) return 0;
    stream->headers_received_ = true;
    stream->OnHeaders(self.headers_, end);
  }
  self.headers_.Clear();
  return end ? OnRemoteEnd(session, id) : 0;
}

// The peer has broken a rule in this stream alone (RFC 9113, section 8.1.1).
int SessionCallbacks::ResetMalformed(nghttp2_session* session, int32_t id) noexcept {
  return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_PROTOCOL_ERROR);
}

int SessionCallbacks::OnRemoteEnd(nghttp2_session* session, int32_t id) noexcept {
  Stream* const stream = StreamOf(session, id);
  if (stream == nullptr) return 0;
  if (stream->body_left_.value_or(0) > 0) return ResetMalformed(session, id);
  stream->remote_end_ = true;
  stream->OnRemoteEnd();
  return 0;
}

int SessionCallbacks::OnPing(const nghttp2_frame& frame, Connection& self) {
  if ((frame.hd.flags & NGHTTP2_FLAG_ACK) != 0) {
    self.OnPingAck(frame.ping.opaque_data[0]);
  } else if (!self.guard_.CountPing(self.loop_.now())) {
    self.Terminate(NGHTTP2_ENHANCE_YOUR_CALM, "too_many_pings",
                   absl::ResourceExhaustedError("the peer sent too many pings"));
  }
  return 0;
}

int SessionCallbacks::OnDataChunk(nghttp2_session* session, uint8_t, int32_t id,
                                  const uint8_t* data, size_t bytes, void* user) {
  Connection& self = Self(user);
  if (self.settings_.separate_streams) {
    if (const int error = nghttp2_session_consume_connection(session, bytes); error != 0) {
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    self.WantFlush();
  }
  Stream* const stream = StreamOf(session, id);
  if (stream == nullptr || bytes == 0) {
    if (self.settings_.separate_streams) return 0;
    return nghttp2_session_consume_connection(session, bytes) == 0 ? 0
                                                                   : NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  if (stream->body_left_.has_value()) {
    if (bytes > *stream->body_left_) {
      // Its last event is that of the reset.
      return ResetMalformed(session, id) == 0 &&
                     nghttp2_session_consume_connection(session, bytes) == 0
                 ? 0
                 : NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    *stream->body_left_ -= bytes;
  }
  try {
    absl::Cord piece = self.chunks_.Piece(reinterpret_cast<const char*>(data), bytes);
    stream->unconsumed_ += bytes;
    self.held_bytes_ += bytes;
    self.chunks_.account().Add(bytes);
    stream->OnData(std::move(piece));
  } catch (const std::bad_alloc&) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  return 0;
}

int SessionCallbacks::OnStreamClose(nghttp2_session* session, int32_t id, uint32_t code,
                                    void* user) {
  Stream* const stream = StreamOf(session, id);
  if (stream == nullptr) return 0;
  Connection& self = Self(user);
  const bool client = self.settings_.role == Role::kClient;
  StreamEnd end;
  end.code = code;
  if (client && !stream->request_sent_) {
    end.by = StreamEnd::By::kPeer;
    end.unprocessed = true;
  } else if (stream->reset_by_peer_ || (client && code == NGHTTP2_REFUSED_STREAM)) {
    end.by = StreamEnd::By::kPeer;
    end.unprocessed = code == NGHTTP2_REFUSED_STREAM;
  } else {
    end.by = code == NGHTTP2_NO_ERROR ? StreamEnd::By::kBoth : StreamEnd::By::kProtocol;
  }
  self.CloseStream(*stream, end);
  return 0;
}

int SessionCallbacks::OnFrameSent(nghttp2_session* session, const nghttp2_frame* frame,
                                  void* user) {
  Connection& self = Self(user);
  const bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  switch (frame->hd.type) {
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA: {
      self.guard_.OnSent(frame->hd.length);
      Stream* const stream = StreamOf(session, frame->hd.stream_id);
      if (stream == nullptr) return 0;
      stream->request_sent_ = true;
      // The answer is complete: the client need not send the rest of its request.
      if (end && self.settings_.role == Role::kServer && !stream->remote_end_) {
        ++self.own_resets_;
        return nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                         NGHTTP2_NO_ERROR);
      }
      return 0;
    }
    case NGHTTP2_RST_STREAM:
      if (self.own_resets_ > 0) {
        --self.own_resets_;
      } else if (!self.guard_.CountReset(self.loop_.now())) {
        self.Terminate(NGHTTP2_ENHANCE_YOUR_CALM, "too many broken streams",
                       absl::ResourceExhaustedError("the peer broke rules in too many streams"));
      }
      return 0;
    case NGHTTP2_GOAWAY:
      if (self.terminating_) self.goaway_written_ = true;
      if (frame->goaway.error_code != NGHTTP2_NO_ERROR) self.NoteProtocolError(*frame);
      return 0;
    default:
      return 0;
  }
}

// Exactly what the stream has, so that nghttp2's own buffer does not grow unnecessarily.
ssize_t SessionCallbacks::ReadLength(nghttp2_session* session, uint8_t, int32_t id, int32_t,
                                     int32_t, uint32_t max_frame_bytes, void*) {
  const Stream* const stream = StreamOf(session, id);
  const size_t wanted = stream == nullptr ? 0 : stream->unsent_.size();
  const uint32_t most = std::min(max_frame_bytes, kMaxSentFrameBytes);
  return static_cast<ssize_t>(std::clamp<size_t>(wanted, 1, most));
}

ssize_t SessionCallbacks::ReadData(nghttp2_session* session, int32_t id, uint8_t*, size_t bytes,
                                   uint32_t* flags, nghttp2_data_source*, void*) {
  Stream* const stream = StreamOf(session, id);
  if (stream == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  const size_t taken = std::min(bytes, stream->unsent_.size());
  const bool all = taken == stream->unsent_.size();
  if (all && stream->finish_ == Stream::Finish::kNot && taken == 0) {
    stream->deferred_ = true;
    return NGHTTP2_ERR_DEFERRED;
  }
  if (taken > 0) *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (!all || stream->finish_ == Stream::Finish::kNot) return static_cast<ssize_t>(taken);
  *flags |= NGHTTP2_DATA_FLAG_EOF;
  if (stream->finish_ == Stream::Finish::kTrailers) {
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    const HeaderBlock& trailers = stream->trailers_;
    try {
      std::vector<nghttp2_nv> fields;
      fields.reserve(trailers.size());
      for (size_t i = 0; i < trailers.size(); ++i) {
        const auto [name, value] = trailers[i];
        fields.push_back(NameValue(name.data(), name.size(), value.data(), value.size()));
      }
      if (nghttp2_submit_trailer(session, id, fields.data(), fields.size()) != 0) {
        return NGHTTP2_ERR_CALLBACK_FAILURE;
      }
    } catch (const std::bad_alloc&) {
      return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
  }
  return static_cast<ssize_t>(taken);
}

int SessionCallbacks::SendData(nghttp2_session* session, nghttp2_frame* frame, const uint8_t* head,
                               size_t bytes, nghttp2_data_source*, void* user) {
  constexpr size_t kHeadBytes = 9;
  Connection& self = Self(user);
  if (self.output_.bytes() >= kMaxUnsentBytes) return NGHTTP2_ERR_WOULDBLOCK;
  Stream* const stream = StreamOf(session, frame->hd.stream_id);
  // The stream was reset after the frame was begun.
  if (stream == nullptr || stream->unsent_.size() < bytes) {
    ++self.own_resets_;
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
  try {
    if (stream->unsent_.size() == bytes) {
      self.output_.AddControl(head, kHeadBytes);
      self.output_.AddData(std::move(stream->unsent_));
      stream->unsent_.Clear();
    } else {
      absl::Cord part = stream->unsent_.Subcord(0, bytes);
      self.output_.AddControl(head, kHeadBytes);
      self.output_.AddData(std::move(part));
      stream->unsent_.RemovePrefix(bytes);
    }
  } catch (const std::bad_alloc&) {
    return NGHTTP2_ERR_CALLBACK_FAILURE;
  }
  self.held_bytes_ -= bytes;
  self.chunks_.account().Remove(bytes);
  if (stream->unsent_.empty()) stream->OnSent();
  return 0;
}

}  // namespace cbt::rpc::http2
