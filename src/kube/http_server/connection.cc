#include "kube/http_server/connection.h"

#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <exception>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "kube/http_server/request_of.h"
#include "rpc/transport/http2/tls_context.h"

namespace cbt::kube::http_server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

using rpc::http2::kHelloHeadBytes;
using ReceiveLowWatermark = asio::socket_base::receive_low_watermark;

// A piece of what is received.
constexpr size_t kPiece = size_t{16} * 1024;
// How long the end of TLS may take.
constexpr std::chrono::seconds kGoodbye{2};

// The form of errors that clients of Kubernetes understand.
Response StatusResponse(int code, const char* why) {
  return {
      .code = code,
      .body = R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":")" +
              std::string(why) + R"(","code":)" + std::to_string(code) + "}\n"};
}

std::string DerOf(const X509* certificate) {
  unsigned char* bytes = nullptr;
  const int length = i2d_X509(certificate, &bytes);
  if (length <= 0) return {};
  std::string der(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
  OPENSSL_free(bytes);
  return der;
}

// The context of the server, shared, as a class of asio.
asio::ssl::context Share(SSL_CTX* tls) {
  SSL_CTX_up_ref(tls);
  return asio::ssl::context(tls);
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, SSL_CTX* tls,
                       std::shared_ptr<SharedState> shared)
    : shared_(std::move(shared)),
      context_(Share(tls)),
      stream_(beast::tcp_stream(std::move(socket)), context_),
      handler_timer_(*shared_->io),
      buffer_(shared_->options.max_header_bytes + kPiece) {}

Connection::~Connection() { Release(); }

// A connection without memory for its next step ends; the others go on.
template <typename Step>
void Connection::Try(Step step) {
  try {
    step();
  } catch (const std::exception& error) {
    shared_->log.Failed("connection failed", absl::InternalError(error.what()));
    Close();
  }
}

void Connection::Start() {
  place_ = shared_->connections.insert(shared_->connections.end(), shared_from_this());
  ++shared_->open;
  // The first bytes are looked at once they are there: OpenSSL would allocate what they announce.
  auto& socket = beast::get_lowest_layer(stream_).socket();
  Error error;
  socket.set_option(ReceiveLowWatermark(kHelloHeadBytes), error);
  // For CheckHello(), which must not wait.
  if (!error) socket.non_blocking(true, error);
  if (error) return Close();
  handler_timer_.expires_after(shared_->options.handshake_time);
  handler_timer_.async_wait([self = shared_from_this()](const Error& cancelled) {
    if (!cancelled) self->Close();
  });
  AwaitHello();
}

void Connection::AwaitHello() {
  auto& socket = beast::get_lowest_layer(stream_).socket();
  socket.async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this()](const Error& e) {
    if (e) return self->Close();
    self->Try([&] { self->CheckHello(); });
  });
}

void Connection::CheckHello() {
  auto& socket = beast::get_lowest_layer(stream_).socket();
  std::array<uint8_t, kHelloHeadBytes> head = {};
  Error error;
  const size_t length =
      socket.receive(asio::buffer(head), asio::ip::tcp::socket::message_peek, error);
  if (error == asio::error::would_block) return AwaitHello();
  if (error || length < head.size() || !rpc::http2::IsFitHello(head)) return Close();
  socket.set_option(ReceiveLowWatermark(1), error);
  if (error) return Close();
  handler_timer_.cancel();
  Handshake();
}

void Connection::Handshake() {
  beast::get_lowest_layer(stream_).expires_after(shared_->options.handshake_time);
  stream_.async_handshake(asio::ssl::stream_base::server,
                          [self = shared_from_this()](const Error& error) {
                            if (error) return self->Close();
                            self->Try([&] { self->WaitForRequest(); });
                          });
}

void Connection::Drain() {
  if (!busy_) Close();
}

void Connection::Close() {
  if (!place_.has_value()) return;
  const std::shared_ptr<Connection> self = shared_from_this();
  shared_->connections.erase(*place_);
  place_.reset();
  --shared_->open;
  ++request_number_;
  handler_timer_.cancel();
  Error ignored;
  beast::get_lowest_layer(stream_).socket().close(ignored);
  beast::get_lowest_layer(stream_).cancel();
}

// The time of silence is not that of a request, whose clock starts with its first byte.
void Connection::WaitForRequest() {
  busy_ = false;
  Release();
  if (shared_->draining) return Close();
  if (buffer_.size() > 0) return ReadHead();
  beast::get_lowest_layer(stream_).expires_after(shared_->options.idle_time);
  stream_.async_read_some(buffer_.prepare(kPiece),
                          [self = shared_from_this()](const Error& error, size_t length) {
                            if (error) return self->Close();
                            self->buffer_.commit(length);
                            self->Try([&] { self->ReadHead(); });
                          });
}

void Connection::ReadHead() {
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(shared_->options.max_header_bytes));
  parser_->body_limit(shared_->options.max_body_bytes);
  beast::get_lowest_layer(stream_).expires_after(shared_->options.request_time);
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](const Error& error, size_t) {
                            self->Try([&] { self->TakeHead(error); });
                          });
}

void Connection::TakeHead(const Error& error) {
  if (!error) return ReadBody();
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Refuse(431, "the headers are too large");
  }
  if (error == http::error::body_limit) return Refuse(413, "the body is too large");
  const bool ended = error == http::error::end_of_stream || error == http::error::partial_message;
  if (ended || error.category() != http::make_error_code(http::error::bad_method).category()) {
    return Close();
  }
  Refuse(400, "this is not a request of HTTP/1.1");
}

void Connection::ReadBody() {
  size_t length = parser_->is_done() ? 0 : shared_->options.max_body_bytes;
  if (const auto known = parser_->content_length()) length = static_cast<size_t>(*known);
  if (!Reserve(length)) return Refuse(503, "too many requests at once");
  http::async_read(stream_, buffer_, *parser_,
                   [self = shared_from_this()](const Error& error, size_t) {
                     self->Try([&] { self->TakeBody(error); });
                   });
}

void Connection::TakeBody(const Error& error) {
  if (!error) return Handle();
  if (error == http::error::body_limit) return Refuse(413, "the body is too large");
  Close();
}

void Connection::Handle() {
  busy_ = true;
  const bool keep_alive = parser_->get().keep_alive();
  const uint64_t number = ++request_number_;
  beast::get_lowest_layer(stream_).expires_never();
  handler_timer_.expires_after(shared_->options.handler_time);
  handler_timer_.async_wait([self = shared_from_this(), number](const Error& error) {
    if (error || number != self->request_number_) return;
    self->Try([&] { self->Refuse(504, "the answer took too long"); });
  });
  const Respond respond = [weak = weak_from_this(), io = shared_->io, number,
                           keep_alive](Response response) {
    asio::post(*io, [weak, number, keep_alive, response = std::move(response)]() mutable {
      const std::shared_ptr<Connection> self = weak.lock();
      if (self == nullptr || number != self->request_number_) return;
      self->Try([&] { self->Send(std::move(response), keep_alive); });
    });
  };
  try {
    shared_->handler(TakeRequest(), respond);
  } catch (const std::exception& error) {
    shared_->log.Failed("request failed", absl::InternalError(error.what()));
    respond(StatusResponse(500, "internal error"));
  }
}

std::shared_ptr<Request> Connection::TakeRequest() {
  auto& message = parser_->get();
  head_only_ = message.method() == http::verb::head;
  std::shared_ptr<Request> request = RequestOf(message);
  if (shared_->options.ask_for_certificate) request->peer_certificates = PeerCertificates();
  return request;
}

std::vector<std::string> Connection::PeerCertificates() const {
  // It is the handle of OpenSSL that is not const.
  SSL* const ssl = const_cast<beast::ssl_stream<beast::tcp_stream>&>(stream_).native_handle();
  std::vector<std::string> chain;
  X509* const own = SSL_get1_peer_certificate(ssl);
  if (own == nullptr) return chain;
  chain.push_back(DerOf(own));
  X509_free(own);
  // Of a client, without its own.
  const STACK_OF(X509)* const others = SSL_get_peer_cert_chain(ssl);
  for (int i = 0; i < sk_X509_num(others); ++i) chain.push_back(DerOf(sk_X509_value(others, i)));
  return chain;
}

// What is wrong with the request may also be wrong with where the next one begins: the connection
// ends.
void Connection::Refuse(int code, const char* why) { Send(StatusResponse(code, why), false); }

void Connection::Send(Response response, bool keep_alive) {
  // Only the first answer counts.
  ++request_number_;
  handler_timer_.cancel();
  busy_ = true;
  const bool stays = keep_alive && !shared_->draining;
  const auto message = std::make_shared<http::response<http::string_body>>();
  message->version(11);
  message->result(static_cast<unsigned>(response.code));
  message->keep_alive(stays);
  message->set(http::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) message->insert(name, value);
  message->content_length(response.body.size());
  if (!std::exchange(head_only_, false)) message->body() = std::move(response.body);
  beast::get_lowest_layer(stream_).expires_after(shared_->options.answer_time);
  http::async_write(stream_, *message,
                    [self = shared_from_this(), message, stays](const Error& error, size_t) {
                      if (error) return self->Close();
                      self->Try([&] { stays ? self->WaitForRequest() : self->SayGoodbye(); });
                    });
}

void Connection::SayGoodbye() {
  beast::get_lowest_layer(stream_).expires_after(kGoodbye);
  stream_.async_shutdown([self = shared_from_this()](const Error&) { self->Close(); });
}

bool Connection::Reserve(size_t bytes) {
  if (bytes >
      shared_->options.max_memory - std::min(shared_->memory, shared_->options.max_memory)) {
    return false;
  }
  shared_->memory += bytes;
  reserved_ = bytes;
  return true;
}

void Connection::Release() { shared_->memory -= std::exchange(reserved_, 0); }

}  // namespace cbt::kube::http_server
