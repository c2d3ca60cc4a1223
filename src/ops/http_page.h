// Serves a few pages over HTTP, for scrapers and probes.
#ifndef CBT_OPS_HTTP_PAGE_H_
#define CBT_OPS_HTTP_PAGE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/watched_file.h"
#include "cbt/secrets.h"
#include "cbt/units.h"
#include "net/socket_stream.h"
#include "net/tls_context.h"

namespace cbt::ops {

// What a page says. `text` is plain text.
struct HttpAnswer {
  bool ok = true;  // false: 503
  std::string text = {};
};

// Who may read pages, and over what. Files are read again when they change.
struct PageAccess {
  // Pages other than probes need the token in this file: `Authorization: Bearer TOKEN`. Empty:
  // everybody may read them.
  std::string token_file = {};
  // HTTPS with this chain and its key (PEM), for probes too. Both empty: HTTP.
  std::string certificate_file = {};
  std::string private_key_file = {};
};

struct HttpPageOptions {
  std::string endpoint =
      {};  // host:port; an empty host: every address of this machine, port 0: any
  PageAccess access = {};
};

// One thread, a bounded number of connections, and a time limit for each request with its answer: a
// slow client delays no other. When there are too many connections, a new one replaces the oldest.
class HttpPage {
 public:
  static constexpr size_t kMaxConnections = 32;
  static constexpr size_t kMaxRequestBytes = 8 * kKiB;
  static constexpr std::chrono::seconds kMaxTime{10};

  // Makes the answer for a path of a GET, called on the page's thread; nothing: 404.
  using Pages = std::function<std::optional<HttpAnswer>(std::string_view path)>;

  // Errors: INVALID_ARGUMENT for a malformed endpoint or a certificate that can't be used,
  // UNAVAILABLE if listening fails, and those of reading the files. A token's file that can't be
  // used later makes the pages say so with 503; a certificate's leaves the previous one in use.
  static absl::StatusOr<std::unique_ptr<HttpPage>> Serve(const HttpPageOptions& options,
                                                         Pages pages);

  // Listens on `host`:`port` (an empty host: every address of this machine; port 0: any). Throws
  // std::runtime_error if it can't listen, std::system_error and std::bad_alloc.
  HttpPage(const std::string& host, const std::string& port, Pages pages,
           const std::string& token_file = "", std::unique_ptr<net::ServerTls> tls = nullptr);
  ~HttpPage();
  HttpPage(const HttpPage&) = delete;
  HttpPage& operator=(const HttpPage&) = delete;

  int port() const noexcept { return port_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage { kHandshake, kRequest, kAnswer, kFlush, kSent };
  struct Connection {
    std::unique_ptr<net::SocketStream> stream;
    Clock::time_point since;
    Stage stage = Stage::kHandshake;
    short waits_for = 0;  // the event of poll()
    std::string request = {};
    std::string answer = {};
    size_t sent = 0;
  };

  void Listen(const std::string& host, const std::string& port);
  void Run() noexcept;
  void Serve();
  void Accept();
  bool Step(Connection& connection);
  net::SocketStream::Result Advance(Connection& connection);
  std::string AnswerTo(const std::string& request) const;
  // OK: the request may read what is not a probe.
  absl::Status CheckToken(std::string_view request) const;

  const Pages pages_;
  const std::unique_ptr<WatchedFile<Secret>> token_;  // null: none is needed
  const std::unique_ptr<net::ServerTls> tls_;         // null: HTTP
  int listener_ = -1;
  int wake_[2] = {-1, -1};  // a pipe; closing its end stops the thread
  int port_ = 0;
  std::vector<Connection> connections_;  // the oldest first
  std::thread thread_;
};

}  // namespace cbt::ops

#endif  // CBT_OPS_HTTP_PAGE_H_
