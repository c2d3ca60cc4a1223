// A scripted, misbehaving NBD server: fixed newstyle handshake, structured replies, block status
// from a script. Serves one client after another on a Unix socket.
// https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
#ifndef CBT_TESTS_SUPPORT_PLANTED_NBD_SERVER_H_
#define CBT_TESTS_SUPPORT_PLANTED_NBD_SERVER_H_

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/units.h"

namespace cbt::test {

struct NbdRequest {
  uint64_t offset = 0;
  uint32_t length = 0;
  size_t number = 0;  // across all clients
};

// How a script answers one request, in this order.
struct NbdReply {
  // Block status chunks: the context's id (1 is the first one requested) and the entries.
  std::vector<std::pair<uint32_t, std::vector<uint32_t>>> chunks;
  uint32_t error = 0;       // an error chunk with this number
  std::string raw;          // raw bytes
  bool done = true;         // marks the last chunk as final; without chunks an empty one is sent
  bool disconnect = false;  // after that
};

struct NbdServerOptions {
  uint64_t size = kMiB;
  std::vector<std::string> contexts = {"base:allocation"};
  bool structured_replies = true;
  bool silent_handshake = false;
  bool can_list = true;
  bool leaves_first_client = false;  // once it has the list of contexts
};

class PlantedNbdServer {
 public:
  using Script = std::function<NbdReply(const NbdRequest&)>;

  PlantedNbdServer(const std::string& socket_path, NbdServerOptions options, Script script)
      : path_(socket_path), options_(std::move(options)), script_(std::move(script)) {
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof address.sun_path - 1);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_, 8) != 0) {
      std::abort();
    }
    thread_ = std::thread([this] { Serve(); });
  }
  ~PlantedNbdServer() {
    stop_ = true;
    thread_.join();
    close(listener_);
  }
  PlantedNbdServer(const PlantedNbdServer&) = delete;
  PlantedNbdServer& operator=(const PlantedNbdServer&) = delete;

  std::string uri() const { return "nbd+unix:///?socket=" + path_; }
  size_t requests() const { return requests_; }
  size_t clients() const { return clients_; }
  // Changes the size that new clients are given.
  void set_size(uint64_t size) { size_override_ = size; }

 private:
  static constexpr uint64_t kNone = UINT64_MAX;

  static std::string Number(uint64_t value, int bytes) {
    std::string out;
    for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
    return out;
  }
  static uint64_t NumberAt(const std::string& bytes, size_t at, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; ++i) {
      value = value << 8 | static_cast<uint8_t>(bytes[at + static_cast<size_t>(i)]);
    }
    return value;
  }

  bool WaitFor(int descriptor) {
    while (!stop_) {
      pollfd wanted{descriptor, POLLIN, 0};
      if (poll(&wanted, 1, 5) > 0) return true;
    }
    return false;
  }
  bool Get(size_t count, std::string& out) {
    out.resize(count);
    for (size_t done = 0; done < count;) {
      if (!WaitFor(client_)) return false;
      const ssize_t got = recv(client_, out.data() + done, count - done, 0);
      if (got <= 0) return false;
      done += static_cast<size_t>(got);
    }
    return true;
  }
  void Put(const std::string& bytes) {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t sent = send(client_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
      if (sent <= 0) return;
      done += static_cast<size_t>(sent);
    }
  }

  void Serve() {
    while (WaitFor(listener_)) {
      client_ = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client_ < 0) continue;
      ++clients_;
      if (options_.silent_handshake) {
        std::string ignored;
        Get(1, ignored);
      } else if (Handshake()) {
        Transmit();
      }
      close(client_);
    }
  }

  void OptionReply(uint64_t option, uint64_t type, const std::string& payload) {
    Put(Number(0x3e889045565a9, 8) + Number(option, 4) + Number(type, 4) +
        Number(payload.size(), 4) + payload);
  }

  bool Handshake() {
    constexpr uint64_t kAck = 1, kInfo = 3, kMetaContext = 4, kUnsupported = 0x80000001;
    const uint64_t size = size_override_ == kNone ? options_.size : size_override_.load();
    Put("NBDMAGICIHAVEOPT" + Number(3, 2));
    std::string bytes;
    if (!Get(4, bytes)) return false;
    while (Get(16, bytes)) {
      const uint64_t option = NumberAt(bytes, 8, 4);
      const uint64_t length = NumberAt(bytes, 12, 4);
      if (length > 65536 || !Get(static_cast<size_t>(length), bytes)) return false;
      if (option == 2) {  // ABORT
        OptionReply(option, kAck, "");
        return false;
      } else if (option == 8 && options_.structured_replies) {
        OptionReply(option, kAck, "");
      } else if ((option == 9 && options_.can_list) || option == 10) {
        // LIST_META_CONTEXT: all contexts; SET_META_CONTEXT: the requested ones.
        for (size_t i = 0; i < options_.contexts.size(); ++i) {
          const std::string& name = options_.contexts[i];
          if (option == 10 && bytes.find(name) == std::string::npos) continue;
          OptionReply(option, kMetaContext, Number(i + 1, 4) + name);
        }
        OptionReply(option, kAck, "");
        if (option == 9 && options_.leaves_first_client && clients_ == 1) return false;
      } else if (option == 6 || option == 7) {  // INFO and GO
        OptionReply(option, kInfo, Number(0, 2) + Number(size, 8) + Number(1, 2));
        OptionReply(option, kAck, "");
        if (option == 7) return true;
      } else {
        OptionReply(option, kUnsupported, "");
      }
    }
    return false;
  }

  void Transmit() {
    std::string bytes;
    while (Get(28, bytes)) {
      const uint64_t type = NumberAt(bytes, 6, 2);
      const std::string cookie = bytes.substr(8, 8);
      if (type != 7) return;  // DISC, or a request that no test sends
      const NbdRequest request{NumberAt(bytes, 16, 8),
                               static_cast<uint32_t>(NumberAt(bytes, 24, 4)), requests_++};
      const NbdReply reply = script_(request);
      const auto chunk = [&](uint64_t flags, uint64_t kind, const std::string& payload) {
        Put(Number(0x668e33ef, 4) + Number(flags, 2) + Number(kind, 2) + cookie +
            Number(payload.size(), 4) + payload);
      };
      size_t left = reply.chunks.size() + (reply.error != 0 ? 1 : 0);
      for (const auto& [id, entries] : reply.chunks) {
        std::string payload = Number(id, 4);
        for (const uint32_t number : entries) payload += Number(number, 4);
        chunk(reply.done && --left == 0 ? 1 : 0, 5, payload);
      }
      if (reply.error != 0) chunk(1, 0x8001, Number(reply.error, 4) + Number(0, 2));
      if (reply.done && reply.chunks.empty() && reply.error == 0) chunk(1, 0, "");
      Put(reply.raw);
      if (reply.disconnect) return;
    }
  }

  const std::string path_;
  const NbdServerOptions options_;
  const Script script_;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> requests_{0};
  std::atomic<size_t> clients_{0};
  std::atomic<uint64_t> size_override_{kNone};
  int listener_ = -1;
  int client_ = -1;
  std::thread thread_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_PLANTED_NBD_SERVER_H_
