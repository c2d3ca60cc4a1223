// Serves one page over HTTP, for scrapers.
#ifndef CBT_OPS_HTTP_PAGE_H_
#define CBT_OPS_HTTP_PAGE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "cbt/units.h"

namespace cbt::ops {

// One thread, a bounded number of connections, and a time limit for each request with its answer: a
// slow client delays no other. When there are too many connections, a new one replaces the oldest.
class HttpPage {
 public:
  static constexpr size_t kMaxConnections = 32;
  static constexpr size_t kMaxRequestBytes = 8 * kKiB;
  static constexpr std::chrono::seconds kMaxTime{10};

  // Listens on `host`:`port` (0: any) and answers GET `path` with the result of `text`, called on
  // the page's thread. Throws std::runtime_error if it can't listen, std::system_error and
  // std::bad_alloc.
  HttpPage(const std::string& host, const std::string& port, std::string path,
           std::function<std::string()> text);
  ~HttpPage();
  HttpPage(const HttpPage&) = delete;
  HttpPage& operator=(const HttpPage&) = delete;

  int port() const noexcept { return port_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    int fd = -1;
    Clock::time_point since;
    std::string request;
    std::string answer;  // not empty: the request has arrived
    size_t sent = 0;
  };

  void Listen(const std::string& host, const std::string& port);
  void Run() noexcept;
  void Serve();
  void Accept();
  bool Step(Connection& connection);
  std::string AnswerTo(const std::string& request) const;

  const std::string path_;
  const std::function<std::string()> text_;
  int listener_ = -1;
  int wake_[2] = {-1, -1};  // a pipe; closing its end stops the thread
  int port_ = 0;
  std::vector<Connection> connections_;  // the oldest first
  std::thread thread_;
};

}  // namespace cbt::ops

#endif  // CBT_OPS_HTTP_PAGE_H_
