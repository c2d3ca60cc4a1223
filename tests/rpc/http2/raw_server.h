// A server of handmade HTTP/2 frames that sends any bytes a test wants.
#ifndef CBT_TESTS_RPC_HTTP2_RAW_SERVER_H_
#define CBT_TESTS_RPC_HTTP2_RAW_SERVER_H_

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace cbt::test {

// ---- frames

inline std::string Frame(int type, int flags, uint32_t stream, std::string_view payload) {
  const auto byte = [](size_t value) { return static_cast<char>(value & 255); };
  std::string frame = {byte(payload.size() >> 16),
                       byte(payload.size() >> 8),
                       byte(payload.size()),
                       byte(static_cast<size_t>(type)),
                       byte(static_cast<size_t>(flags)),
                       byte(stream >> 24),
                       byte(stream >> 16),
                       byte(stream >> 8),
                       byte(stream)};
  return frame.append(payload);
}

inline std::string Number(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16 & 255),
          static_cast<char>(value >> 8 & 255), static_cast<char>(value & 255)};
}

using FieldList = std::vector<std::pair<std::string, std::string>>;

// HPACK literals without indexing, at most 126 bytes each.
inline std::string FieldBytes(const FieldList& fields) {
  std::string bytes;
  for (const auto& [name, value] : fields) {
    bytes += '\0';
    bytes += static_cast<char>(name.size());
    bytes += name;
    bytes += static_cast<char>(value.size());
    bytes += value;
  }
  return bytes;
}

inline std::string SettingsFrame() { return Frame(4, 0, 0, ""); }
inline std::string DataFrame(std::string_view data, bool end = false) {
  return Frame(0, end ? 1 : 0, 1, data);
}
inline std::string HeadersFrame(const FieldList& fields, bool end = false) {
  return Frame(1, 4 | (end ? 1 : 0), 1, FieldBytes(fields));
}
inline std::string ResetFrame(uint32_t code) { return Frame(3, 0, 1, Number(code)); }
inline std::string GoawayFrame(uint32_t last, uint32_t code = 0) {
  return Frame(7, 0, 0, Number(last) + Number(code));
}
inline std::string MessageBytes(std::string_view message, char flag = 0) {
  return flag + Number(static_cast<uint32_t>(message.size())) + std::string(message);
}

// ---- the server's end of a connection

class RawConnection {
 public:
  explicit RawConnection(int fd) : fd_(fd) {}
  ~RawConnection() { close(fd_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // Returns false if the client has gone.
  bool Send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  struct Received {
    int type = 0;
    int flags = 0;
    uint32_t stream = 0;
    std::string payload;
  };

  // The client's next frame; nullopt if it has gone.
  std::optional<Received> Next() {
    constexpr size_t kPreface = 24;
    for (;;) {
      if (!preface_ && bytes_.size() >= kPreface) {
        bytes_.erase(0, kPreface);
        preface_ = true;
      }
      if (preface_ && bytes_.size() >= 9 && bytes_.size() >= FrameSize()) return TakeFrame();
      char space[4096];
      const ssize_t count = recv(fd_, space, sizeof space, 0);
      if (count <= 0) return std::nullopt;
      bytes_.append(space, static_cast<size_t>(count));
    }
  }

  // Reads until the first request is complete; false if the client left before.
  bool AwaitRequest() {
    while (const std::optional<Received> frame = Next()) {
      if (frame->type <= 1 && (frame->flags & 1) != 0) return true;
    }
    return false;
  }

  // Reads and drops everything until the client closes the connection.
  void AwaitClose() const {
    char space[4096];
    while (recv(fd_, space, sizeof space, 0) > 0) {
    }
  }

  int fd() const { return fd_; }

 private:
  size_t Byte(size_t at) const { return static_cast<uint8_t>(bytes_[at]); }
  size_t FrameSize() const { return 9 + (Byte(0) << 16 | Byte(1) << 8 | Byte(2)); }

  Received TakeFrame() {
    const size_t size = FrameSize();
    Received frame{
        .type = static_cast<int>(Byte(3)),
        .flags = static_cast<int>(Byte(4)),
        .stream = static_cast<uint32_t>(Byte(5) << 24 | Byte(6) << 16 | Byte(7) << 8 | Byte(8)),
        .payload = bytes_.substr(9, size - 9)};
    bytes_.erase(0, size);
    return frame;
  }

  const int fd_;
  std::string bytes_;
  bool preface_ = false;
};

// Accepts connections on a Unix socket and calls `serve` for each, one after another, on its own
// thread.
class RawServer {
 public:
  RawServer(const std::string& path, std::function<void(RawConnection&)> serve)
      : path_(path), serve_(std::move(serve)), listener_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    unlink(path.c_str());
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_, 64) != 0) {
      throw std::runtime_error("can't listen at " + path);
    }
    thread_ = std::thread([this] { Run(); });
  }
  // Waits for `serve` to return.
  ~RawServer() {
    stop_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
    unlink(path_.c_str());
  }
  RawServer(const RawServer&) = delete;
  RawServer& operator=(const RawServer&) = delete;

  int accepted() const { return accepted_; }

 private:
  void Run() {
    while (!stop_) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) continue;
      ++accepted_;
      RawConnection connection(fd);
      serve_(connection);
    }
  }

  const std::string path_;
  const std::function<void(RawConnection&)> serve_;
  const int listener_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> accepted_ = 0;
  std::thread thread_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_HTTP2_RAW_SERVER_H_
