// One connection of a server: handshake, requests one after the other, end.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SERVER_CONNECTION_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SERVER_CONNECTION_H_

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/tls_context.h"
#include "ops/event_log.h"
#include "programs/revisions/http_server/body_memory.h"
#include "programs/revisions/http_server/growing_body.h"
#include "programs/revisions/http_server/http_message.h"
#include "programs/revisions/http_server/server_options.h"

namespace cbt::kube::http_server {

class Connection;

// Of each kind there may be ServerOptions::max_connections, so that no client takes a place from
// one of another kind.
enum class Place {
  kUnproven,  // its handshake is not done, so that it may be a known one
  kStranger,
  kKnown,  // see ServerOptions::is_known
};

// What the connections of a server share. Used on its thread, where nothing else is said.
struct SharedState {
  SharedState(const ServerOptions& its_options, Handler its_handler, ops::EventLog& its_log);

  // Of a connection whose handshake is not done.
  Place FirstPlace() const noexcept;
  // Whether one more connection may have such a place; closes another one for it where it must.
  bool MakeRoom(Place place);
  // Drops one unfinished body, so that `needy` may go on; false: it is `needy` that must not.
  bool DropOne(const Connection& needy);

  const ServerOptions options;
  const Handler handler;
  ops::EventLog& log;
  // A callback may come after the server's end.
  const std::shared_ptr<boost::asio::io_context> io = std::make_shared<boost::asio::io_context>(1);

  std::list<std::shared_ptr<Connection>> connections = {};  // the oldest first
  std::atomic<size_t> open = 0;                             // how many; for any thread
  const std::shared_ptr<BodyMemory> strangers_memory;
  const std::shared_ptr<BodyMemory> known_memory;
  bool draining = false;
};

// On the server's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, SSL_CTX* tls,
             std::shared_ptr<SharedState> shared);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Enters the list of connections.
  void Start();
  // Nothing more is to be received on it: ends now unless a request is being answered.
  void Drain();
  // Ends it at once.
  void Close();
  // The same, and frees the body that is being received. Not in a call of its parser.
  void Drop();
  // A whole request has come and is being answered.
  bool busy() const noexcept { return busy_; }
  // See ServerOptions::is_known.
  bool known() const noexcept { return place_kind_ == Place::kKnown; }
  Place place() const noexcept { return place_kind_; }
  const std::string& peer() const noexcept { return peer_; }
  // Of a body that has not arrived in full.
  size_t unfinished_bytes() const noexcept { return memory_ == nullptr ? 0 : memory_->bytes(); }
  const std::shared_ptr<BodyMemory>& pool() const noexcept {
    return known() ? shared_->known_memory : shared_->strangers_memory;
  }

 private:
  using Error = boost::beast::error_code;
  using Parser = boost::beast::http::request_parser<GrowingBody>;

  template <typename Step>
  void Try(Step step);
  // Keeps from OpenSSL what would make it take memory for more than has come.
  static long CheckHello(BIO* bio, int operation, const char* bytes, size_t length, int argument,
                         long more, int result, size_t* processed);
  void Handshake();
  // False: there is no place for such a client.
  bool Recognise();
  void WaitForRequest();
  // Receives more, then goes on with `next`.
  void Receive(void (Connection::*next)());
  void ReadHead();
  void TakeHead();
  void TakeBody();
  void Handle();
  void Send(Response response, bool keep_alive);
  void Refuse(int code, const char* why);
  void CloseAfterFlush();
  bool ChargeBody();
  std::shared_ptr<Request> TakeRequest();
  std::vector<std::string> PeerCertificates() const;

  const std::shared_ptr<SharedState> shared_;
  const std::string peer_;  // its address
  // Only to make the stream, which keeps what it needs of it.
  boost::asio::ssl::context context_;
  boost::beast::ssl_stream<boost::beast::tcp_stream> stream_;
  boost::asio::steady_timer handler_timer_;
  // OpenSSL's end of it; see CheckHello().
  net::HelloCheck hello_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::shared_ptr<Request> request_;           // while its body is received
  std::shared_ptr<BodyMemory::Share> memory_;  // the same
  std::optional<std::list<std::shared_ptr<Connection>>::iterator> place_;
  uint64_t request_number_ = 0;  // an answer to an earlier one is too late
  Place place_kind_;
  bool busy_ = false;
  bool head_only_ = false;
};

}  // namespace cbt::kube::http_server

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SERVER_CONNECTION_H_
