#include "tests/kube/support/scripted_server.h"

#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cbt::test {
namespace {

constexpr std::chrono::seconds kLongest{30};
constexpr size_t kMaxRequest = 64 << 20;

SSL_CTX* ContextOf(void* context) { return static_cast<SSL_CTX*>(context); }

void* MakeContext(const TestAuthority& authority, const ScriptedServer::Options& options) {
  SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
  const PemIdentity identity =
      authority.Issue({.name = options.certificate_name, .alternatives = options.alternatives});
  const auto certificate = [](const std::string& pem) {
    BIO* const bio = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
    X509* const made = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
    BIO_free(bio);
    return made;
  };
  X509* const own = certificate(identity.certificate);
  SSL_CTX_use_certificate(context, own);
  X509_free(own);
  BIO* const bio = BIO_new_mem_buf(identity.key.data(), static_cast<int>(identity.key.size()));
  EVP_PKEY* const key = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
  BIO_free(bio);
  SSL_CTX_use_PrivateKey(context, key);
  EVP_PKEY_free(key);
  X509* const root = certificate(authority.pem());
  X509_STORE_add_cert(SSL_CTX_get_cert_store(context), root);
  X509_free(root);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  return context;
}

std::string LowerCase(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::string WireBytes(const ScriptedAnswer& answer) {
  if (answer.raw) return *answer.raw;
  std::string bytes = absl::StrCat("HTTP/1.1 ", answer.code, " Text\r\n");
  if (!answer.content_type.empty()) {
    absl::StrAppend(&bytes, "Content-Type: ", answer.content_type, "\r\n");
  }
  for (const std::string& header : answer.headers) absl::StrAppend(&bytes, header, "\r\n");
  switch (answer.framing) {
    case ScriptedAnswer::Framing::kLength:
      absl::StrAppend(&bytes, "Content-Length: ", answer.body.size(), "\r\n\r\n", answer.body);
      break;
    case ScriptedAnswer::Framing::kChunked:
      bytes += "Transfer-Encoding: chunked\r\n\r\n";
      for (size_t at = 0; at < answer.body.size(); at += 64) {
        const std::string chunk = answer.body.substr(at, 64);
        absl::StrAppend(&bytes, absl::Hex(chunk.size()), "\r\n", chunk, "\r\n");
      }
      bytes += "0\r\n\r\n";
      break;
    case ScriptedAnswer::Framing::kNone:
      absl::StrAppend(&bytes, "\r\n", answer.body);
      break;
  }
  return bytes;
}

// A connection, with TLS or without.
class ScriptedServer::Wire {
 public:
  Wire(int descriptor, SSL_CTX* context) : descriptor_(descriptor) {
    if (context == nullptr) return;
    ssl_ = SSL_new(context);
    SSL_set_fd(ssl_, descriptor);
  }
  ~Wire() {
    if (ssl_ != nullptr) SSL_free(ssl_);
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  bool Handshake() { return ssl_ == nullptr || SSL_accept(ssl_) == 1; }

  std::string ClientName() const {
    X509* const certificate = ssl_ == nullptr ? nullptr : SSL_get_peer_certificate(ssl_);
    if (certificate == nullptr) return {};
    char name[256] = {};
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate), NID_commonName, name,
                              sizeof(name));
    X509_free(certificate);
    return name;
  }

  // False at the end of the connection.
  bool Read() {
    char bytes[16384];
    const int count = ssl_ != nullptr
                          ? SSL_read(ssl_, bytes, sizeof(bytes))
                          : static_cast<int>(recv(descriptor_, bytes, sizeof(bytes), 0));
    if (count <= 0) return false;
    buffer.append(bytes, static_cast<size_t>(count));
    return buffer.size() <= kMaxRequest;
  }

  bool Write(std::string_view bytes) {
    while (!bytes.empty()) {
      const int count =
          ssl_ != nullptr
              ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
              : static_cast<int>(send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
      if (count <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(count));
    }
    return true;
  }

  std::string buffer;

 private:
  const int descriptor_;
  SSL* ssl_ = nullptr;
};

ScriptedServer::ScriptedServer(Handler handler) : ScriptedServer(std::move(handler), Options()) {}

ScriptedServer::ScriptedServer(Handler handler, const Options& options)
    : handler_(std::move(handler)), options_(options) {
  if (options_.tls) context_ = MakeContext(authority_, options_);
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener_, generic, length) != 0 || listen(listener_, 128) != 0 ||
      getsockname(listener_, generic, &length) != 0) {
    throw std::runtime_error("can't listen");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

ScriptedServer::~ScriptedServer() {
  stopping_ = true;
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  close(listener_);
  Disconnect();
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  if (context_ != nullptr) SSL_CTX_free(ContextOf(context_));
}

std::string ScriptedServer::url() const {
  return absl::StrCat(options_.tls ? "https" : "http", "://127.0.0.1:", port_);
}

kube::Config ScriptedServer::config() const {
  kube::Config config;
  config.server = url();
  if (options_.tls) config.ca = authority_.pem();
  return config;
}

std::vector<ScriptedRequest> ScriptedServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

std::vector<std::string> ScriptedServer::complaints() const {
  const std::lock_guard lock(mutex_);
  return complaints_;
}

bool ScriptedServer::WaitForRequests(size_t count) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kLongest, [&] { return requests_.size() >= count; });
}

void ScriptedServer::Disconnect() {
  const std::lock_guard lock(mutex_);
  for (const int descriptor : open_) shutdown(descriptor, SHUT_RDWR);
}

void ScriptedServer::Complain(const std::string& what) {
  const std::lock_guard lock(mutex_);
  complaints_.push_back(what);
}

void ScriptedServer::Accept() {
  for (;;) {
    const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (stopping_) {
      if (descriptor >= 0) close(descriptor);
      return;
    }
    if (descriptor < 0) continue;
    const int number = ++connections_;
    const std::lock_guard lock(mutex_);
    open_.insert(descriptor);
    threads_.emplace_back([this, descriptor, number] {
      Serve(descriptor, number);
      const std::lock_guard inner(mutex_);
      open_.erase(descriptor);
      close(descriptor);
    });
  }
}

void ScriptedServer::Serve(int descriptor, int number) {
  // OpenSSL writes to sockets that the other side has closed. In this thread only: the client's
  // must see to itself.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  Wire wire(descriptor, ContextOf(context_));
  if (!wire.Handshake()) return;
  for (;;) {
    size_t head = std::string::npos;
    while ((head = wire.buffer.find("\r\n\r\n")) == std::string::npos) {
      if (!wire.Read()) return;
    }
    ScriptedRequest request;
    request.connection = number;
    request.client = wire.ClientName();
    std::string_view rest(wire.buffer);
    rest = rest.substr(0, head);
    const std::string_view line = rest.substr(0, rest.find("\r\n"));
    const size_t first = line.find(' ');
    const size_t last = line.rfind(' ');
    if (first == std::string_view::npos || last == first || line.substr(last) != " HTTP/1.1") {
      Complain("request line");
      return;
    }
    request.method = line.substr(0, first);
    request.target = line.substr(first + 1, last - first - 1);
    rest.remove_prefix(std::min(rest.size(), line.size() + 2));
    while (!rest.empty()) {
      const std::string_view header = rest.substr(0, rest.find("\r\n"));
      rest.remove_prefix(std::min(rest.size(), header.size() + 2));
      const size_t colon = header.find(": ");
      if (colon == std::string_view::npos) {
        Complain("header without a colon");
        return;
      }
      request.headers[LowerCase(std::string(header.substr(0, colon)))] = header.substr(colon + 2);
    }
    size_t length = 0;
    if (const std::string text = request.header("content-length"); !text.empty()) {
      length = std::stoul(text);
    } else if (!request.header("transfer-encoding").empty()) {
      Complain("a body without a length");
      return;
    }
    wire.buffer.erase(0, head + 4);
    while (wire.buffer.size() < length) {
      if (!wire.Read()) {
        Complain("a request that was cut");
        return;
      }
    }
    request.body = wire.buffer.substr(0, length);
    wire.buffer.erase(0, length);
    {
      const std::lock_guard lock(mutex_);
      request.number = static_cast<int>(requests_.size()) + 1;
      requests_.push_back(request);
    }
    changed_.notify_all();

    const ScriptedAnswer answer = handler_(request);
    if (answer.delay_ms > 0) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(answer.delay_ms),
                        [&] { return stopping_.load(); });
    }
    std::string bytes = WireBytes(answer);
    if (answer.cut_after) bytes.resize(std::min(bytes.size(), *answer.cut_after));
    const size_t piece = answer.piece == 0 ? std::max<size_t>(bytes.size(), 1) : answer.piece;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      if (!wire.Write(std::string_view(bytes).substr(at, piece))) return;
      if (answer.piece != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (answer.end == ScriptedAnswer::End::kClose) return;
    if (answer.end == ScriptedAnswer::End::kHang) {
      // Until one of the two goes.
      while (wire.Read()) {
      }
      return;
    }
  }
}

std::string StatusJson(int code, const std::string& reason, const std::string& message) {
  return absl::StrCat(R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",)",
                      R"("message":")", message, R"(","reason":")", reason, R"(","code":)", code,
                      "}");
}

std::string ConfigMapJson(const std::string& name_space, const std::string& name,
                          const std::string& value) {
  return absl::StrCat(R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":")", name,
                      R"(","namespace":")", name_space,
                      R"(","uid":"u-1","resourceVersion":"7"},"data":{"key":")", value, R"("}})");
}

}  // namespace cbt::test
