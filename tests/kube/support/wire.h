// A wire to a TCP port of the loopback that can be cut while the server goes on.
#ifndef CBT_TESTS_KUBE_SUPPORT_WIRE_H_
#define CBT_TESTS_KUBE_SUPPORT_WIRE_H_

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace cbt::test {

class Wire {
 public:
  explicit Wire(int port) : target_(AddressOf(port)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = AddressOf(0);
    socklen_t length = sizeof address;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(listener_, 16) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
      throw std::runtime_error("no port for the wire");
    }
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~Wire() {
    stopping_ = true;
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
    close(listener_);
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  int port() const { return port_; }
  // Ends all connections, and every new one at once.
  void Cut() { cut_ = true; }
  void Join() { cut_ = false; }

 private:
  static sockaddr_in AddressOf(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    return address;
  }

  void Accept() {
    while (!stopping_) {
      pollfd one = {.fd = listener_, .events = POLLIN, .revents = 0};
      if (poll(&one, 1, 5) <= 0) continue;
      const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) continue;
      threads_.emplace_back([this, client] { Forward(client); });
    }
  }

  void Forward(int client) {
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!cut_ &&
        connect(server, reinterpret_cast<const sockaddr*>(&target_), sizeof target_) == 0) {
      while (!stopping_ && !cut_) {
        std::array<pollfd, 2> both = {pollfd{.fd = client, .events = POLLIN, .revents = 0},
                                      pollfd{.fd = server, .events = POLLIN, .revents = 0}};
        if (poll(both.data(), both.size(), 5) <= 0) continue;
        if (both[0].revents != 0 && !Move(client, server)) break;
        if (both[1].revents != 0 && !Move(server, client)) break;
      }
    }
    close(server);
    close(client);
  }

  static bool Move(int from, int to) {
    std::array<char, 16384> bytes;
    const ssize_t count = recv(from, bytes.data(), bytes.size(), 0);
    for (ssize_t done = 0; done < count;) {
      const ssize_t sent =
          send(to, bytes.data() + done, static_cast<size_t>(count - done), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      done += sent;
    }
    return count > 0;
  }

  const sockaddr_in target_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> cut_{false};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_KUBE_SUPPORT_WIRE_H_
