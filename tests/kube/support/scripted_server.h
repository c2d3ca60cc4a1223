// An HTTPS server whose answers a test writes byte by byte, and breaks wherever it likes.
#ifndef CBT_TESTS_KUBE_SUPPORT_SCRIPTED_SERVER_H_
#define CBT_TESTS_KUBE_SUPPORT_SCRIPTED_SERVER_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cbt/kube/config.h"
#include "tests/net/certificates.h"

namespace cbt::test {

// A request as it came.
struct ScriptedRequest {
  std::string method;
  std::string target;                          // path and query
  std::map<std::string, std::string> headers;  // names in lower case; of several, the last
  std::string body;
  int number = 0;      // of all requests, from 1
  int connection = 0;  // the number of its connection, from 1
  std::string client;  // the name in the client's certificate

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

struct ScriptedAnswer {
  int code = 200;
  std::vector<std::string> headers = {};  // "Name: value"
  std::string body = {};
  enum class Framing { kLength, kChunked, kNone };
  Framing framing = Framing::kLength;
  std::string content_type = "application/json";

  // Everything, from the status line on, instead of the above.
  std::optional<std::string> raw = {};

  int delay_ms = 0;  // before the first byte
  // Sends only so many bytes of the whole answer, and then does what `end` says.
  std::optional<size_t> cut_after = {};
  enum class End {
    kKeep,   // waits for the next request
    kClose,  // closes the connection without a word of TLS
    kHang,   // sends nothing more until the server ends
  };
  End end = End::kKeep;
  size_t piece = 0;  // bytes that go out at a time, with a pause; 0: all
};

// The whole answer, as it goes over the wire.
std::string WireBytes(const ScriptedAnswer& answer);

// Speaks HTTP/1.1 over TLS, a thread a connection. Requests must be complete and well formed;
// anything else is a complaint. Thread-safe.
class ScriptedServer {
 public:
  using Handler = std::function<ScriptedAnswer(const ScriptedRequest&)>;

  struct Options {
    std::string certificate_name = "localhost";
    std::string alternatives = "DNS:localhost,IP:127.0.0.1";
    bool tls = true;
  };

  explicit ScriptedServer(Handler handler);
  ScriptedServer(Handler handler, const Options& options);
  ~ScriptedServer();
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  // Reaches this server, without credentials.
  kube::Config config() const;
  int port() const { return port_; }
  const TestAuthority& authority() const { return authority_; }
  std::string url() const;

  std::vector<ScriptedRequest> requests() const;
  int connections() const { return connections_.load(); }
  // What no correct client would have sent.
  std::vector<std::string> complaints() const;
  // Waits until so many requests have come, at most 30 s.
  bool WaitForRequests(size_t count) const;
  // Closes what is open now.
  void Disconnect();

 private:
  class Wire;

  void Accept();
  void Serve(int descriptor, int number);
  void Complain(const std::string& what);

  const Handler handler_;
  const Options options_;
  const TestAuthority authority_{"scripted-ca"};
  void* context_ = nullptr;  // SSL_CTX
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int> connections_{0};
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<ScriptedRequest> requests_;
  std::vector<std::string> complaints_;
  std::set<int> open_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

// A list, an object and a Status as API servers write them.
std::string StatusJson(int code, const std::string& reason, const std::string& message);
std::string ConfigMapJson(const std::string& name_space, const std::string& name,
                          const std::string& value);

}  // namespace cbt::test

#endif  // CBT_TESTS_KUBE_SUPPORT_SCRIPTED_SERVER_H_
