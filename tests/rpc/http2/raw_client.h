// A client of handmade frames that can send what no library would.
#ifndef CBT_TESTS_RPC_HTTP2_RAW_CLIENT_H_
#define CBT_TESTS_RPC_HTTP2_RAW_CLIENT_H_

#include <nghttp2/nghttp2.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cbt::test {

using Fields = std::vector<std::pair<std::string, std::string>>;

struct RawFrame {
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;
  std::string payload;

  bool end() const { return (flags & NGHTTP2_FLAG_END_STREAM) != 0; }
  // The 32-bit number at `at`: an error code, or an increment.
  uint32_t Number(size_t at = 0) const {
    uint32_t number = 0;
    for (size_t i = 0; i < 4; ++i) number = number << 8 | static_cast<uint8_t>(payload.at(at + i));
    return number;
  }
};

inline std::string Number(uint32_t number, int bytes = 4) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) text += static_cast<char>(number >> (8 * i));
  return text;
}

inline std::string Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
  return Number(static_cast<uint32_t>(payload.size()), 3) + static_cast<char>(type) +
         static_cast<char>(flags) + Number(stream) + std::string(payload);
}

// Literals without indexing; names under 127 bytes, values under 16,000.
inline std::string Literals(const Fields& fields) {
  std::string block;
  for (const auto& [name, value] : fields) {
    block += '\0';
    block += static_cast<char>(name.size());
    block += name;
    size_t size = value.size();
    if (size < 127) {
      block += static_cast<char>(size);
    } else {
      block += '\x7f';
      for (size -= 127; size >= 128; size /= 128) block += static_cast<char>(128 + size % 128);
      block += static_cast<char>(size);
    }
    block += value;
  }
  return block;
}

inline Fields Request(const std::string& path) {
  return {{":method", "POST"}, {":scheme", "http"}, {":path", path},
          {":authority", "x"}, {"te", "trailers"},  {"content-type", "application/grpc"}};
}

inline std::string Framed(std::string_view message, char compressed = 0) {
  return compressed + Number(static_cast<uint32_t>(message.size())) + std::string(message);
}

// Connects to a Unix socket's path.
inline int ConnectTo(const std::string& path) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) {
    close(fd);
    throw std::runtime_error("connect");
  }
  return fd;
}

class RawClient {
 public:
  // `preface`: send it, and empty SETTINGS.
  explicit RawClient(const std::string& path, bool preface = true)
      : RawClient(ConnectTo(path), nullptr, preface) {}

  // On a connected socket, over TLS if `ssl` has done its handshake. Owns both.
  RawClient(int fd, SSL* ssl, bool preface = true) : fd_(fd), ssl_(ssl) {
    nghttp2_hd_inflate_new(&inflater_);
    if (preface) Send(std::string(NGHTTP2_CLIENT_MAGIC) + Frame(NGHTTP2_SETTINGS, 0, 0, ""));
  }
  ~RawClient() {
    SSL_free(ssl_);
    close(fd_);
    nghttp2_hd_inflate_del(inflater_);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  int fd() const { return fd_; }
  SSL* ssl() const { return ssl_; }

  // Returns false if the server has closed the connection.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ssl_ != nullptr
                               ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
                               : send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  // Sends what the socket accepts within `limit`.
  size_t SendSome(std::string_view bytes, std::chrono::milliseconds limit) {
    pollfd poller = {.fd = fd_, .events = POLLOUT, .revents = 0};
    if (poll(&poller, 1, static_cast<int>(limit.count())) <= 0) return 0;
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<size_t>(sent) : 0;
  }
  bool Headers(uint32_t stream, const Fields& fields, bool end = false) {
    return Send(
        Frame(NGHTTP2_HEADERS,
              static_cast<uint8_t>(NGHTTP2_FLAG_END_HEADERS | (end ? NGHTTP2_FLAG_END_STREAM : 0)),
              stream, Literals(fields)));
  }
  bool Data(uint32_t stream, std::string_view bytes, bool end) {
    return Send(Frame(NGHTTP2_DATA, end ? NGHTTP2_FLAG_END_STREAM : 0, stream, bytes));
  }
  // A whole call.
  bool Call(uint32_t stream, const std::string& path, std::string_view message) {
    return Headers(stream, Request(path)) && Data(stream, Framed(message), true);
  }
  bool Reset(uint32_t stream, uint32_t code = NGHTTP2_CANCEL) {
    return Send(Frame(NGHTTP2_RST_STREAM, 0, stream, Number(code)));
  }
  bool Window(uint32_t stream, uint32_t bytes) {
    return Send(Frame(NGHTTP2_WINDOW_UPDATE, 0, stream, Number(bytes)));
  }
  bool Settings(const std::vector<std::pair<uint16_t, uint32_t>>& entries) {
    std::string payload;
    for (const auto& [id, value] : entries) payload += Number(id, 2) + Number(value);
    return Send(Frame(NGHTTP2_SETTINGS, 0, 0, payload));
  }

  // The next frame; nullopt at the end of the connection or if none comes in time: see ended().
  std::optional<RawFrame> Next(std::chrono::milliseconds limit = std::chrono::seconds(5)) {
    const auto by = std::chrono::steady_clock::now() + limit;
    for (;;) {
      if (in_.size() >= 9) {
        const size_t size = (static_cast<size_t>(static_cast<uint8_t>(in_[0])) << 16) |
                            (static_cast<size_t>(static_cast<uint8_t>(in_[1])) << 8) |
                            static_cast<uint8_t>(in_[2]);
        if (in_.size() >= 9 + size) {
          RawFrame frame;
          frame.type = static_cast<uint8_t>(in_[3]);
          frame.flags = static_cast<uint8_t>(in_[4]);
          frame.payload = in_.substr(5, 4);
          frame.stream = frame.Number();
          frame.payload = in_.substr(9, size);
          in_.erase(0, 9 + size);
          return frame;
        }
      }
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(by - std::chrono::steady_clock::now());
      pollfd poller = {.fd = fd_, .events = POLLIN, .revents = 0};
      const bool pending = ssl_ != nullptr && SSL_pending(ssl_) > 0;
      if (!pending &&
          (left.count() <= 0 || poll(&poller, 1, static_cast<int>(left.count())) <= 0)) {
        return std::nullopt;
      }
      char space[65536];
      const ssize_t got =
          ssl_ != nullptr ? SSL_read(ssl_, space, sizeof space) : recv(fd_, space, sizeof space, 0);
      // A TLS record without application data.
      if (got < 0 && ssl_ != nullptr && SSL_get_error(ssl_, -1) == SSL_ERROR_WANT_READ) continue;
      if (got <= 0) {
        ended_ = true;
        return std::nullopt;
      }
      in_.append(space, static_cast<size_t>(got));
    }
  }
  bool ended() const { return ended_; }

  // The next frame of this type (of this stream, unless 0); others are dropped.
  std::optional<RawFrame> Await(uint8_t type, uint32_t stream = 0,
                                std::chrono::milliseconds limit = std::chrono::seconds(5)) {
    const auto by = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < by) {
      auto frame = Next(limit);
      if (!frame.has_value()) return std::nullopt;
      if (frame->type == NGHTTP2_HEADERS && frame->type != type) Decode(*frame);
      if (frame->type == type && (stream == 0 || frame->stream == stream)) return frame;
    }
    return std::nullopt;
  }
  // Returns whether the connection ends in time; drops what comes before.
  bool AwaitEnd(std::chrono::milliseconds limit = std::chrono::seconds(5)) {
    const auto by = std::chrono::steady_clock::now() + limit;
    while (!ended_ && std::chrono::steady_clock::now() < by) Next(std::chrono::milliseconds(50));
    return ended_;
  }

  // The fields of a HEADERS frame. Every such frame must be decoded, in order.
  std::map<std::string, std::string> Decode(const RawFrame& frame) {
    std::map<std::string, std::string> fields;
    std::string_view rest = frame.payload;
    for (;;) {
      nghttp2_nv field;
      int flags = 0;
      const ssize_t used = nghttp2_hd_inflate_hd2(
          inflater_, &field, &flags, reinterpret_cast<const uint8_t*>(rest.data()), rest.size(), 1);
      if (used < 0) throw std::runtime_error("HPACK");
      rest.remove_prefix(static_cast<size_t>(used));
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
        fields[std::string(reinterpret_cast<char*>(field.name), field.namelen)] =
            std::string(reinterpret_cast<char*>(field.value), field.valuelen);
      }
      if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
    }
    nghttp2_hd_inflate_end_headers(inflater_);
    return fields;
  }

  // All that a stream receives: fields, body, and the code of a reset (-1: none).
  struct Answer {
    std::map<std::string, std::string> fields;
    std::string body;
    int headers = 0;
    bool ended = false;
    int reset = -1;
    std::string status() const {
      const auto found = fields.find("grpc-status");
      return found == fields.end() ? "" : found->second;
    }
  };
  Answer Read(uint32_t stream) {
    Answer answer;
    while (!answer.ended && answer.reset < 0) {
      const auto frame = Next();
      if (!frame.has_value()) return answer;
      if (frame->type == NGHTTP2_HEADERS) {
        auto fields = Decode(*frame);
        if (frame->stream != stream) continue;
        answer.fields.merge(fields);
        ++answer.headers;
      } else if (frame->stream != stream) {
        continue;
      } else if (frame->type == NGHTTP2_DATA) {
        answer.body += frame->payload;
      } else if (frame->type == NGHTTP2_RST_STREAM) {
        answer.reset = static_cast<int>(frame->Number());
        continue;
      } else {
        continue;
      }
      answer.ended = frame->end();
    }
    return answer;
  }

 private:
  const int fd_;
  SSL* const ssl_;
  nghttp2_hd_inflater* inflater_ = nullptr;
  std::string in_;
  bool ended_ = false;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_HTTP2_RAW_CLIENT_H_
