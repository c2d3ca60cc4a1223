#include "programs/revisions/http_server/connection.h"

#include <openssl/x509.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <exception>
#include <limits>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "net/tls_context.h"
#include "programs/revisions/http_server/error_response.h"
#include "programs/revisions/http_server/request_head.h"
#include "programs/revisions/http_server/request_of.h"

namespace cbt::kube::http_server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Error = beast::error_code;

// A piece of what is received.
constexpr size_t kPiece = size_t{16} * 1024;
// How long the end of TLS may take.
constexpr std::chrono::seconds kGoodbye{2};

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

// An address of IPv4 that reached a socket of IPv6 is the same peer.
std::string AddressOf(const asio::ip::tcp::socket& socket) {
  Error ignored;
  const asio::ip::address address = socket.remote_endpoint(ignored).address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  }
  return address.to_string();
}

std::shared_ptr<BodyMemory> PoolOf(const ServerOptions& options) {
  return std::make_shared<BodyMemory>(options.max_memory,
                                      std::max(options.max_memory / 2, options.max_body_bytes));
}

}  // namespace

SharedState::SharedState(const ServerOptions& its_options, Handler its_handler,
                         ops::EventLog& its_log)
    : options(its_options),
      handler(std::move(its_handler)),
      log(its_log),
      strangers_memory(PoolOf(options)),
      known_memory(PoolOf(options)) {}

Place SharedState::FirstPlace() const noexcept {
  return options.ask_for_certificate && options.is_known != nullptr ? Place::kUnproven
                                                                    : Place::kStranger;
}

bool SharedState::MakeRoom(Place place) {
  const auto all = std::ranges::count_if(
      connections, [place](const auto& one) { return one->place() == place; });
  if (static_cast<size_t>(all) < options.max_connections) return true;
  std::map<std::string_view, size_t> held;  // by peer
  for (const auto& one : connections) {
    if (one->place() == place) ++held[one->peer()];
  }
  std::shared_ptr<Connection> chosen;
  size_t most = 0;
  for (const auto& one : connections) {
    if (one->place() != place || one->busy() || held[one->peer()] <= most) continue;
    chosen = one;
    most = held[one->peer()];
  }
  if (chosen == nullptr) return false;
  chosen->Close();
  return true;
}

bool SharedState::DropOne(const Connection& needy) {
  BodyMemory& pool = *needy.pool();
  std::shared_ptr<Connection> chosen;
  std::pair<size_t, size_t> most = {pool.HeldBy(needy.peer()), 0};
  for (const auto& one : connections) {
    if (one->unfinished_bytes() == 0 || one->pool().get() != &pool) continue;
    const std::pair<size_t, size_t> weight = {pool.HeldBy(one->peer()), one->unfinished_bytes()};
    if (one->peer() == needy.peer() || weight <= most) continue;
    chosen = one;
    most = weight;
  }
  if (chosen == nullptr) return false;
  chosen->Drop();
  return true;
}

Connection::Connection(asio::ip::tcp::socket socket, SSL_CTX* tls,
                       std::shared_ptr<SharedState> shared)
    : shared_(std::move(shared)),
      peer_(AddressOf(socket)),
      context_(Share(tls)),
      stream_(beast::tcp_stream(std::move(socket)), context_),
      handler_timer_(*shared_->io),
      buffer_(shared_->options.max_header_bytes + kPiece),
      place_kind_(shared_->FirstPlace()) {}

Connection::~Connection() = default;

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
  beast::get_lowest_layer(stream_).expires_after(shared_->options.handshake_time);
  Handshake();
}

long Connection::CheckHello(BIO* bio, int operation, const char* bytes, size_t, int, long,
                            int result, size_t* processed) {
  if (operation != (BIO_CB_READ | BIO_CB_RETURN) || result <= 0 || processed == nullptr) {
    return result;
  }
  auto& check = *reinterpret_cast<net::HelloCheck*>(BIO_get_callback_arg(bio));
  const std::span got(reinterpret_cast<const uint8_t*>(bytes), *processed);
  if (check.Take(got)) return result;
  // Without the flag that asks for another try, the handshake fails.
  BIO_clear_retry_flags(bio);
  *processed = 0;
  return -1;
}

void Connection::Handshake() {
  BIO* const bio = SSL_get_rbio(stream_.native_handle());
  BIO_set_callback_arg(bio, reinterpret_cast<char*>(&hello_));
  BIO_set_callback_ex(bio, &Connection::CheckHello);
  stream_.async_handshake(
      asio::ssl::stream_base::server, [self = shared_from_this()](const Error& error) {
        if (error) return self->Close();
        self->Try([&] {
          BIO_set_callback_ex(SSL_get_rbio(self->stream_.native_handle()), nullptr);
          self->Recognise() ? self->WaitForRequest() : self->Close();
        });
      });
}

bool Connection::Recognise() {
  if (place_kind_ != Place::kUnproven) return true;
  const std::vector<std::string> certificates = PeerCertificates();
  const Place place = !certificates.empty() && shared_->options.is_known(certificates)
                          ? Place::kKnown
                          : Place::kStranger;
  if (!shared_->MakeRoom(place)) return false;
  place_kind_ = place;
  return true;
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

void Connection::Drop() {
  parser_.reset();
  request_.reset();
  memory_.reset();
  Close();
}

// The time of silence is not that of a request, whose clock starts with its first byte.
void Connection::WaitForRequest() {
  busy_ = false;
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
  // The head is handed to the parser as a whole, once its own limit has been kept.
  parser_->header_limit(std::numeric_limits<uint32_t>::max());
  parser_->body_limit(shared_->options.max_body_bytes);
  beast::get_lowest_layer(stream_).expires_after(shared_->options.request_time);
  TakeHead();
}

void Connection::Receive(void (Connection::*next)()) {
  // Both limits leave room: see the constructor.
  stream_.async_read_some(buffer_.prepare(std::min(kPiece, buffer_.max_size() - buffer_.size())),
                          [self = shared_from_this(), next](const Error& error, size_t length) {
                            // It may have been dropped since the bytes came.
                            if (error || !self->place_.has_value()) return self->Close();
                            self->buffer_.commit(length);
                            self->Try([&] { (*self.*next)(); });
                          });
}

void Connection::TakeHead() {
  const asio::const_buffer data = buffer_.data();
  const std::string_view received(static_cast<const char*>(data.data()), data.size());
  const std::optional<size_t> length = HeadLength(received);
  if (length.value_or(received.size()) > shared_->options.max_header_bytes) {
    return Refuse(431, "the headers are too large");
  }
  if (!length.has_value()) return Receive(&Connection::TakeHead);
  const char* const doubt = LengthDoubt(received.substr(0, *length));
  Error error;
  parser_->put(asio::buffer(data, *length), error);
  if (error == http::error::body_limit) return Refuse(413, "the body is too large");
  if (error) return Refuse(400, "this is not a request of HTTP/1.1");
  if (doubt != nullptr) return Refuse(400, doubt);
  buffer_.consume(*length);
  // Now: fields that come after a body in chunks are none of the request's headers.
  request_ = HeadOf(parser_->get());
  request_->peer = peer_;
  memory_ = std::make_shared<BodyMemory::Share>(pool(), peer_);
  TakeBody();
}

void Connection::TakeBody() {
  while (!parser_->is_done()) {
    if (buffer_.size() == 0) return Receive(&Connection::TakeBody);
    Error error;
    const size_t taken = parser_->put(buffer_.data(), error);
    buffer_.consume(taken);
    if (error == http::error::body_limit) return Refuse(413, "the body is too large");
    if (!ChargeBody()) return Refuse(503, "too many requests at once");
    if (error == http::error::need_more) {
      if (buffer_.size() == buffer_.max_size()) return Refuse(400, "a chunk's head is too long");
      return Receive(&Connection::TakeBody);
    }
    if (error) return Refuse(400, "the body can't be read");
  }
  Handle();
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
    respond(ErrorResponse(500, "internal error"));
  }
}

std::shared_ptr<Request> Connection::TakeRequest() {
  auto& message = parser_->get();
  head_only_ = message.method() == http::verb::head;
  request_->body = std::move(message.body());
  request_->memory = std::move(memory_);
  if (shared_->options.ask_for_certificate) request_->peer_certificates = PeerCertificates();
  return std::move(request_);
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
void Connection::Refuse(int code, const char* why) {
  if (memory_ != nullptr) {
    // The body goes before its share does.
    parser_.reset();
    request_.reset();
    memory_.reset();
  }
  Send(ErrorResponse(code, why), false);
}

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
                      self->Try([&] { stays ? self->WaitForRequest() : self->CloseAfterFlush(); });
                    });
}

// Its client may hold this back, but its request has been answered: it may go for others.
void Connection::CloseAfterFlush() {
  busy_ = false;
  beast::get_lowest_layer(stream_).expires_after(kGoodbye);
  stream_.async_shutdown([self = shared_from_this()](const Error&) { self->Close(); });
}

// Counts what has arrived, not what the client says that it will send.
bool Connection::ChargeBody() {
  const size_t bytes = parser_->get().body().size();
  while (!memory_->Grow(bytes)) {
    if (!shared_->DropOne(*this)) return false;
  }
  return true;
}

}  // namespace cbt::kube::http_server
