#include "rpc/conformance/wire_client.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <new>
#include <span>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "net/event_loop.h"
#include "net/tls_context.h"
#include "rpc/http2/connector.h"
#include "rpc/http2/protocol.h"
#include "rpc/http2/tls_options.h"

namespace cbt::rpc {
namespace {

using net::SocketStream;
using std::chrono::milliseconds;

constexpr size_t kHeadBytes = 9;
constexpr uint32_t kMaxWindow = 0x7fffffff;
constexpr uint32_t kFirstWindow = 65535;  // of a connection that has not been widened
constexpr size_t kMaxFrame = size_t{1} << 14;

std::string Number(uint32_t number, int bytes = 4) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(number >> (8 * i) & 255);
  return text;
}

uint32_t NumberAt(std::string_view text, size_t at, size_t bytes = 4) {
  uint32_t number = 0;
  for (size_t i = at; i < std::min(at + bytes, text.size()); ++i) {
    number = number << 8 | static_cast<uint8_t>(text[i]);
  }
  return number;
}

// Connects in a private loop that this thread runs.
class Connecting final : public http2::Connector::Listener {
 public:
  void OnConnected(absl::StatusOr<OwnedDescriptor> socket) noexcept override {
    result_ = std::move(socket);
    done_ = true;
  }
  absl::StatusOr<OwnedDescriptor> Run(const net::Address& address, milliseconds time) {
    auto loop = net::EventLoop::Create();
    if (!loop.ok()) return loop.status();
    http2::Connector connector(**loop, address, *this);
    connector.Start(time);
    while (!done_) (*loop)->RunOnce(milliseconds(100));
    return std::move(result_);
  }

 private:
  absl::StatusOr<OwnedDescriptor> result_ = absl::UnavailableError("");
  bool done_ = false;
};

}  // namespace

std::optional<std::string> OnlyField(const WireFields& fields, std::string_view name) {
  std::optional<std::string> found;
  for (const auto& [key, value] : fields) {
    if (key != name) continue;
    if (found.has_value()) return std::nullopt;
    found = value;
  }
  return found;
}

bool WireAnswer::early_status() const {
  return (blocks > 1 || !ended || trailers.empty()) &&
         std::any_of(headers.begin(), headers.end(),
                     [](const auto& field) { return field.first == "grpc-status"; });
}

absl::Status WireAnswer::status() const {
  if (reset.has_value() && !ended) {
    return {http2::CodeOfReset(*reset), absl::StrCat("RST_STREAM ", http2::ResetName(*reset))};
  }
  if (!ended) return absl::UnavailableError("no end");
  const std::string http = OnlyField(headers, ":status").value_or("");
  if (early_status()) return absl::UnknownError("grpc-status before the end of the answer");
  const std::optional<std::string> code = OnlyField(trailers, "grpc-status");
  const bool is_grpc =
      http == "200" &&
      http2::IsGrpcContentType(OnlyField(headers, "content-type").value_or(std::string()));
  const std::string text = absl::StrCat(
      "HTTP status ", http, ", ", code.has_value() ? "grpc-status " + *code : "no grpc-status");
  if (!code.has_value()) {
    int number = 0;
    return {http2::CodeOfHttpStatus(absl::SimpleAtoi(http, &number) ? number : 0), text};
  }
  const absl::StatusCode parsed = http2::ParseStatusCode(*code);
  if (parsed == absl::StatusCode::kOk && !is_grpc) return absl::UnknownError(text);
  return {parsed, text};
}

absl::StatusOr<std::unique_ptr<WireClient>> WireClient::Connect(const net::Address& address,
                                                                const ClientTlsOptions& tls,
                                                                const Options& options) {
  const Clock::time_point deadline = Clock::now() + options.timeout;
  net::OwnedSsl ssl;
  if (tls.enabled) {
    auto context = http2::MakeClientTls(tls);
    if (!context.ok()) return context.status();
    auto made = (*context)->NewConnection(address.is_unix ? "localhost" : address.host);
    if (!made.ok()) return made.status();
    ssl.reset(made->release());
  }
  auto descriptor = Connecting().Run(address, options.timeout);
  if (!descriptor.ok()) return descriptor.status();
  auto socket = net::SocketStream::Create(*std::move(descriptor), std::move(ssl));
  if (!socket.ok()) return socket.status();
  std::unique_ptr<WireClient> client(
      new WireClient(*std::move(socket), options, tls.enabled,
                     address.is_unix ? "localhost" : address.ToString(), deadline));
  if (!client->Handshake()) return absl::UnavailableError(client->failure());
  // Windows of streams, no pushes.
  const std::string settings = Number(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 2) +
                               Number(options.stream_window) +
                               Number(NGHTTP2_SETTINGS_ENABLE_PUSH, 2) + Number(0);
  client->Send(NGHTTP2_CLIENT_MAGIC);
  client->Frame(NGHTTP2_SETTINGS, 0, 0, settings);
  client->OpenWindow(0, kMaxWindow - kFirstWindow);
  return client;
}

WireClient::WireClient(std::unique_ptr<net::SocketStream> socket, const Options& options,
                       bool secure, std::string authority, Clock::time_point deadline)
    : socket_(std::move(socket)),
      options_(options),
      secure_(secure),
      authority_(std::move(authority)),
      deadline_(deadline),
      stream_window_(options.stream_window),
      connection_window_(kFirstWindow) {
  // No dynamic table: the server need not support one.
  if (nghttp2_hd_deflate_new(&deflater_, 0) != 0 || nghttp2_hd_inflate_new(&inflater_) != 0) {
    nghttp2_hd_deflate_del(deflater_);
    throw std::bad_alloc();
  }
}

WireClient::~WireClient() {
  nghttp2_hd_deflate_del(deflater_);
  nghttp2_hd_inflate_del(inflater_);
}

void WireClient::Fail(std::string why) {
  if (failure_.empty()) failure_ = std::move(why);
}

// ---- the socket

// Waits until the socket is ready; false if the connection has become unusable.
bool WireClient::Wait(net::SocketStream::State state) {
  switch (state) {
    case net::SocketStream::State::kEnd:
      Fail("the server closed the connection");
      return false;
    case net::SocketStream::State::kError:
      Fail(connected_ ? absl::StrCat("the server closed the connection: ", socket_->ErrorText())
                      : socket_->ErrorText());
      return false;
    default:
      break;
  }
  const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now());
  pollfd poller = {.fd = socket_->fd(),
                   .events = static_cast<short>(
                       state == net::SocketStream::State::kWantWrite ? POLLOUT : POLLIN),
                   .revents = 0};
  const auto wait = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3'600'000));
  if (left.count() > 0 && poll(&poller, 1, wait) != 0) return true;
  late_ = failure_.empty();
  Fail(absl::StrCat("no answer within ", options_.timeout.count(), " ms"));
  return false;
}

bool WireClient::Handshake() {
  for (;;) {
    const net::SocketStream::Result result = socket_->Handshake();
    if (result.state == net::SocketStream::State::kDone) break;
    if (!Wait(result.state)) return false;
  }
  connected_ = true;
  return true;
}

// A server that closed the connection may have answered before: that is still read.
void WireClient::Send(std::string_view bytes) {
  while (!bytes.empty() && failure_.empty() && !refuses_) {
    const iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
    net::SocketStream::Result result = socket_->Write(std::span(&part, 1));
    if (result.state == net::SocketStream::State::kDone) bytes.remove_prefix(result.bytes);
    while (result.state == net::SocketStream::State::kDone && socket_->unsent()) {
      result = socket_->Flush();
    }
    refuses_ = result.state == net::SocketStream::State::kError;
    while (result.state != net::SocketStream::State::kDone && !refuses_ && Wait(result.state)) {
      result = socket_->unsent() ? socket_->Flush() : net::SocketStream::Result{};
      refuses_ = result.state == net::SocketStream::State::kError;
    }
  }
}

bool WireClient::ReadBytes() {
  std::array<char, 16 * kKiB> space;
  for (;;) {
    const net::SocketStream::Result result = socket_->Read(space);
    if (result.state == net::SocketStream::State::kDone) {
      received_.append(space.data(), result.bytes);
      return true;
    }
    if (!Wait(result.state)) return false;
  }
}

// ---- sending

WireFields WireClient::Request(const std::string& path) const {
  return {{":method", "POST"},       {":scheme", secure_ ? "https" : "http"},
          {":path", path},           {":authority", authority_},
          {"te", "trailers"},        {"content-type", "application/grpc"},
          {"user-agent", "grpc-cbt"}};
}

std::string WireClient::Framed(std::string_view message, char flag) {
  return absl::StrCat(AbslView(std::string_view(&flag, 1)),
                      Number(static_cast<uint32_t>(message.size())), AbslView(message));
}

void WireClient::Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame = Number(static_cast<uint32_t>(payload.size()), 3);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  frame += Number(stream);
  frame += payload;
  Send(frame);
}

void WireClient::Headers(uint32_t stream, const WireFields& fields, bool end) {
  WireAnswer& answer = answers_[stream];
  answer.window = stream_window_;
  std::vector<nghttp2_nv> values;
  values.reserve(fields.size());
  for (const auto& [name, value] : fields) {
    values.push_back({reinterpret_cast<uint8_t*>(const_cast<char*>(name.data())),
                      reinterpret_cast<uint8_t*>(const_cast<char*>(value.data())), name.size(),
                      value.size(), NGHTTP2_NV_FLAG_NO_INDEX});
  }
  std::string block(nghttp2_hd_deflate_bound(deflater_, values.data(), values.size()), '\0');
  const ssize_t bytes = nghttp2_hd_deflate_hd(deflater_, reinterpret_cast<uint8_t*>(block.data()),
                                              block.size(), values.data(), values.size());
  if (bytes < 0) throw std::bad_alloc();
  block.resize(static_cast<size_t>(bytes));
  // Tokens may be long.
  bool first = true;
  for (std::string_view rest = block; first || !rest.empty(); first = false) {
    const std::string_view part = rest.substr(0, kMaxFrame);
    rest.remove_prefix(part.size());
    const int flags = (rest.empty() ? NGHTTP2_FLAG_END_HEADERS : 0) |
                      (first && end ? NGHTTP2_FLAG_END_STREAM : 0);
    Frame(first ? NGHTTP2_HEADERS : NGHTTP2_CONTINUATION, static_cast<uint8_t>(flags), stream,
          part);
  }
}

void WireClient::Data(uint32_t stream, std::string_view bytes, bool end) {
  do {
    const std::string_view part = bytes.substr(0, kMaxFrame);
    bytes.remove_prefix(part.size());
    Frame(NGHTTP2_DATA, end && bytes.empty() ? NGHTTP2_FLAG_END_STREAM : 0, stream, part);
  } while (!bytes.empty());
}

void WireClient::Reset(uint32_t stream) {
  Frame(NGHTTP2_RST_STREAM, 0, stream, Number(NGHTTP2_CANCEL));
}

void WireClient::OpenWindow(uint32_t stream, uint32_t bytes) {
  (stream == 0 ? connection_window_ : answers_.at(stream).window) += bytes;
  Frame(NGHTTP2_WINDOW_UPDATE, 0, stream, Number(bytes));
}

void WireClient::WidenStreams(uint32_t window) {
  for (auto& [stream, answer] : answers_) answer.window += window - stream_window_;
  stream_window_ = window;
  Frame(NGHTTP2_SETTINGS, 0, 0, Number(NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 2) + Number(window));
}

void WireClient::Goaway() { Frame(NGHTTP2_GOAWAY, 0, 0, Number(0) + Number(NGHTTP2_NO_ERROR)); }

void WireClient::Call(uint32_t stream, const std::string& path, std::string_view message) {
  Headers(stream, Request(path));
  Data(stream, Framed(message), true);
}

// ---- receiving

bool WireClient::Await(absl::FunctionRef<bool()> done) {
  while (!done()) {
    if (!failure_.empty() || !ReadFrame()) return false;
  }
  return true;
}

bool WireClient::AwaitEnd(uint32_t stream, uint32_t step) {
  const WireAnswer& answer = answers_.at(stream);
  return Await([&] {
    if (answer.over()) return true;
    if (step > 0 && answer.window <= 0 && !answer.overran) OpenWindow(stream, step);
    return false;
  });
}

bool WireClient::Ping() {
  const std::string payload = absl::StrCat("cbt", Number(static_cast<uint32_t>(pings_++)), "?");
  pong_.clear();
  Frame(NGHTTP2_PING, 0, 0, payload);
  return Await([&] { return !pong_.empty(); }) && pong_ == payload;
}

bool WireClient::ReadFrame() {
  while (received_.size() < kHeadBytes ||
         received_.size() < kHeadBytes + NumberAt(received_, 0, 3)) {
    if (received_.size() >= kHeadBytes && NumberAt(received_, 0, 3) > kMaxFrame) {
      Fail("the server sent a frame that is longer than SETTINGS_MAX_FRAME_SIZE");
      return false;
    }
    if (!ReadBytes()) return false;
  }
  const size_t bytes = NumberAt(received_, 0, 3);
  const auto type = static_cast<uint8_t>(received_[3]);
  const auto flags = static_cast<uint8_t>(received_[4]);
  const uint32_t stream = NumberAt(received_, 5) & kMaxWindow;
  std::string payload = received_.substr(kHeadBytes, bytes);
  received_.erase(0, kHeadBytes + bytes);
  if (frames_++ == 0) settings_came_first_ = type == NGHTTP2_SETTINGS && (flags & 1) == 0;
  OnFrame(type, flags, stream, std::move(payload));
  return failure_.empty();
}

void WireClient::OnFrame(uint8_t type, uint8_t flags, uint32_t stream, std::string payload) {
  const auto found = answers_.find(stream);
  WireAnswer* const answer = found == answers_.end() ? nullptr : &found->second;
  const bool ack = (flags & NGHTTP2_FLAG_ACK) != 0;
  const bool end = (flags & NGHTTP2_FLAG_END_STREAM) != 0;
  const size_t bytes = payload.size();
  if (answer != nullptr && answer->dead && type <= NGHTTP2_HEADERS) ++answer->frames_of_death;
  if (type == NGHTTP2_DATA || type == NGHTTP2_HEADERS) {
    if ((flags & NGHTTP2_FLAG_PADDED) != 0 && !payload.empty()) {
      const size_t padding = static_cast<uint8_t>(payload[0]);
      payload = payload.substr(1, payload.size() - 1 - std::min(payload.size() - 1, padding));
    }
    if (type == NGHTTP2_HEADERS && (flags & NGHTTP2_FLAG_PRIORITY) != 0) payload.erase(0, 5);
  }
  switch (type) {
    case NGHTTP2_SETTINGS:
      if (ack) {
        ++acknowledgements_;
      } else {
        Frame(NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, "");
      }
      return;
    case NGHTTP2_PING:
      if (ack) {
        pong_ = payload.empty() ? "nothing" : payload;
      } else {
        Frame(NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, payload);
      }
      return;
    case NGHTTP2_GOAWAY:
      // Without an error code, open streams may finish.
      if (NumberAt(payload, 4) == NGHTTP2_NO_ERROR) return;
      return Fail(absl::StrCat("GOAWAY ", http2::ResetName(NumberAt(payload, 4)), " ",
                               payload.size() > 8 ? payload.substr(8) : ""));
    case NGHTTP2_RST_STREAM:
      if (answer != nullptr && !answer->over()) answer->reset = NumberAt(payload, 0);
      return;
    case NGHTTP2_HEADERS:
      block_ends_stream_ = end;
      block_ = std::move(payload);
      break;
    case NGHTTP2_CONTINUATION:
      block_ += payload;
      break;
    case NGHTTP2_DATA:
      connection_window_ -= static_cast<int64_t>(bytes);
      if (connection_window_ < static_cast<int64_t>(kGiB)) {
        OpenWindow(0, kMaxWindow - static_cast<uint32_t>(connection_window_));
      }
      if (answer != nullptr) OnData(*answer, payload, bytes, end);
      return;
    default:
      return;
  }
  if ((flags & NGHTTP2_FLAG_END_HEADERS) != 0) OnBlock(stream);
}

void WireClient::OnData(WireAnswer& answer, std::string_view payload, size_t bytes, bool end) {
  answer.window -= static_cast<int64_t>(bytes);
  if (answer.window < 0) answer.overran = true;
  answer.body += payload;
  answer.ended = answer.ended || end;
  if (answer.body.size() > options_.max_body) Fail("the answer does not end");
}

void WireClient::OnBlock(uint32_t stream) {
  WireFields fields;
  std::string_view rest = block_;
  for (;;) {
    nghttp2_nv field;
    int flags = 0;
    const ssize_t used = nghttp2_hd_inflate_hd2(
        inflater_, &field, &flags, reinterpret_cast<const uint8_t*>(rest.data()), rest.size(), 1);
    if (used < 0) return Fail("the server sent headers that can't be decoded");
    rest.remove_prefix(static_cast<size_t>(used));
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
      fields.emplace_back(std::string(reinterpret_cast<const char*>(field.name), field.namelen),
                          std::string(reinterpret_cast<const char*>(field.value), field.valuelen));
    }
    if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
  }
  nghttp2_hd_inflate_end_headers(inflater_);
  const auto found = answers_.find(stream);
  if (found == answers_.end()) return;
  WireAnswer& answer = found->second;
  if (OnlyField(fields, ":status").value_or("").starts_with('1')) return;
  ++answer.blocks;
  if (answer.blocks == 1) answer.headers = fields;
  if (block_ends_stream_) {
    answer.trailers = std::move(fields);
    answer.ended = true;
  }
}

}  // namespace cbt::rpc
