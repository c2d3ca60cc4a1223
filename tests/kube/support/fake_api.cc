#include "tests/kube/support/fake_api.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace cbt::test {
namespace {

using std::chrono::milliseconds;

constexpr char kPrefix[] = "/api/v1/";

std::string Unescape(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      plain += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      plain += text[i] == '+' ? ' ' : text[i];
    }
  }
  return plain;
}

std::string StatusJson(int code, const char* reason, const char* message) {
  return absl::StrCat(
      R"({"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":")", message,
      R"(","reason":")", reason, R"(","code":)", code, "}");
}

std::string EventLine(const std::string& type, const std::string& object) {
  return absl::StrCat(R"({"type":")", type, R"(","object":)", object, "}\n");
}

std::string BookmarkLine(uint64_t version, bool initial_end) {
  return EventLine(
      "BOOKMARK",
      absl::StrCat(
          R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"resourceVersion":")", version, "\"",
          initial_end ? R"(,"annotations":{"k8s.io/initial-events-end":"true"})" : "", "}}"));
}

}  // namespace

// A socket, and the state of the answer that is being sent on it.
class FakeApi::Connection {
 public:
  explicit Connection(int fd) : fd_(fd) {}
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int fd() const { return fd_; }

  // Reads up to the end of a request. False: none comes.
  bool ReadRequest(FakeRequest& request) {
    size_t end = 0;
    while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
      if (!Fill()) return false;
    }
    const std::string head = buffer_.substr(0, end);
    buffer_.erase(0, end + 4);
    const std::vector<std::string> lines = absl::StrSplit(head, "\r\n");
    const std::vector<std::string> words = absl::StrSplit(lines.front(), ' ');
    if (words.size() != 3) return false;
    request.method = words[0];
    const std::pair<std::string, std::string> target =
        absl::StrSplit(words[1], absl::MaxSplits('?', 1));
    request.path = Unescape(target.first);
    for (const absl::string_view pair : absl::StrSplit(target.second, '&', absl::SkipEmpty())) {
      const std::pair<std::string, std::string> one = absl::StrSplit(pair, absl::MaxSplits('=', 1));
      request.query[Unescape(one.first)] = Unescape(one.second);
    }
    size_t length = 0;
    for (const std::string& line : lines) {
      const std::pair<std::string, std::string> field =
          absl::StrSplit(line, absl::MaxSplits(": ", 1));
      if (strcasecmp(field.first.c_str(), "content-length") == 0) {
        length = static_cast<size_t>(std::stoull(field.second));
      }
    }
    while (buffer_.size() < length) {
      if (!Fill()) return false;
    }
    request.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return true;
  }

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }

  // Whether the other side has closed it.
  bool Gone() const {
    pollfd one = {.fd = fd_, .events = POLLIN | POLLRDHUP, .revents = 0};
    if (poll(&one, 1, 0) <= 0) return false;
    if ((one.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0) return true;
    char byte = 0;
    return recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  }

  void Reset() const {
    const linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  void HalfClose() const { shutdown(fd_, SHUT_WR); }

 private:
  bool Fill() {
    char bytes[4096];
    ssize_t count = 0;
    do {
      count = recv(fd_, bytes, sizeof bytes, 0);
    } while (count < 0 && errno == EINTR);
    if (count <= 0) return false;
    buffer_.append(bytes, static_cast<size_t>(count));
    return true;
  }

  const int fd_;
  std::string buffer_;
};

namespace {

// The body of an answer in chunks, as far as the plan lets it.
template <typename Connection>
class Body {
 public:
  Body(Connection& connection, const FakePlan& plan) : connection_(connection), plan_(plan) {}

  // One line with its newline. False: the answer stops here.
  bool Line(std::string line) {
    if (const auto extra = plan_.insert.find(lines_); extra != plan_.insert.end()) {
      if (!Bytes(extra->second)) return false;
    }
    if (plan_.stop_after_lines.has_value() && lines_ >= *plan_.stop_after_lines) return false;
    if (plan_.edit) line = plan_.edit(lines_, std::move(line));
    ++lines_;
    return Bytes(line);
  }

  bool Bytes(std::string_view bytes) {
    bool whole = true;
    if (plan_.stop_after_bytes.has_value() && sent_ + bytes.size() > *plan_.stop_after_bytes) {
      bytes = bytes.substr(0, *plan_.stop_after_bytes - sent_);
      whole = false;
    }
    const size_t piece = plan_.piece == 0 ? bytes.size() : plan_.piece;
    while (!bytes.empty()) {
      const std::string_view part = bytes.substr(0, piece);
      bytes.remove_prefix(part.size());
      sent_ += part.size();
      if (!connection_.Send(
              absl::StrCat(absl::Hex(part.size()), "\r\n", std::string(part), "\r\n"))) {
        return false;
      }
    }
    return whole;
  }

 private:
  Connection& connection_;
  const FakePlan& plan_;
  size_t lines_ = 0;
  size_t sent_ = 0;
};

}  // namespace

FakeApi::FakeApi() {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener_, 64) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::runtime_error("no port for the fake API server");
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

FakeApi::~FakeApi() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  shutdown(listener_, SHUT_RDWR);
  acceptor_.join();
  Disconnect();
  for (std::thread& thread : threads_) thread.join();
  close(listener_);
}

std::string FakeApi::url() const { return absl::StrCat("http://127.0.0.1:", port_); }

void FakeApi::Put(const std::string& name_space, const std::string& name,
                  const std::string& value) {
  std::lock_guard lock(mutex_);
  FakeObject& object = objects_[{name_space, name}];
  const bool fresh = object.uid.empty();
  if (fresh) object = {name_space, name, absl::StrCat("uid-", ++uids_), "", 0};
  object.value = value;
  object.resource_version = ++version_;
  history_.push_back({version_, fresh ? "ADDED" : "MODIFIED", object});
  changed_.notify_all();
}

bool FakeApi::Delete(const std::string& name_space, const std::string& name) {
  std::lock_guard lock(mutex_);
  const auto at = objects_.find({name_space, name});
  if (at == objects_.end()) return false;
  FakeObject last = at->second;
  last.resource_version = ++version_;
  objects_.erase(at);
  history_.push_back({version_, "DELETED", std::move(last)});
  changed_.notify_all();
  return true;
}

void FakeApi::Bookmark() {
  std::lock_guard lock(mutex_);
  // Somewhere else something has changed.
  ++version_;
  ++bookmarks_;
  changed_.notify_all();
}

void FakeApi::Compact() {
  std::lock_guard lock(mutex_);
  oldest_ = version_;
  history_.clear();
}

std::map<FakeApi::Key, FakeObject> FakeApi::objects() const {
  std::lock_guard lock(mutex_);
  return objects_;
}

uint64_t FakeApi::version() const {
  std::lock_guard lock(mutex_);
  return version_;
}

void FakeApi::SetPlan(Plan plan) {
  std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
}

void FakeApi::Disconnect() {
  std::lock_guard lock(mutex_);
  for (const int fd : open_) shutdown(fd, SHUT_RDWR);
  changed_.notify_all();
}

void FakeApi::SetReachable(bool reachable) {
  std::lock_guard lock(mutex_);
  reachable_ = reachable;
}

std::vector<FakeRequest> FakeApi::requests() const {
  std::lock_guard lock(mutex_);
  return requests_;
}

int FakeApi::watching() const {
  std::lock_guard lock(mutex_);
  return watching_;
}

std::vector<std::string> FakeApi::complaints() const {
  std::lock_guard lock(mutex_);
  return complaints_;
}

bool FakeApi::WaitUntil(const std::function<bool(const FakeApi&)>& condition) const {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!condition(*this)) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

std::string FakeApi::JsonOf(const FakeObject& object) {
  return absl::StrCat(
      R"({"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":")", object.name,
      R"(","namespace":")", object.name_space, R"(","uid":")", object.uid,
      R"(","resourceVersion":")", object.resource_version, R"(","labels":{"value":")", object.value,
      R"("},"managedFields":[{"manager":"fake"}]},"data":{"value":")", object.value, "\"}}");
}

void FakeApi::Complain(const FakeRequest& request, const char* what) {
  std::lock_guard lock(mutex_);
  std::vector<std::string> query;
  for (const auto& [key, value] : request.query) query.push_back(absl::StrCat(key, "=", value));
  complaints_.push_back(
      absl::StrCat(request.method, " ", request.path, "?", absl::StrJoin(query, "&"), ": ", what));
}

void FakeApi::Accept() {
  for (;;) {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    std::lock_guard lock(mutex_);
    if (stopping_ || fd < 0) {
      if (fd >= 0) close(fd);
      return;
    }
    if (!reachable_) {
      close(fd);
      continue;
    }
    open_.insert(fd);
    threads_.emplace_back([this, fd] {
      Connection connection(fd);
      Serve(connection);
      std::lock_guard closing(mutex_);
      open_.erase(fd);
    });
  }
}

void FakeApi::Serve(Connection& connection) {
  for (;;) {
    FakeRequest request;
    if (!connection.ReadRequest(request)) return;
    {
      std::lock_guard lock(mutex_);
      request.number = static_cast<int>(requests_.size()) + 1;
      requests_.push_back(request);
    }
    if (!Answer(connection, request)) return;
  }
}

bool FakeApi::Answer(Connection& connection, const FakeRequest& request) {
  Plan planned;
  {
    std::lock_guard lock(mutex_);
    planned = plan_;
  }
  const FakePlan plan = planned ? planned(request) : FakePlan{};
  if (plan.delay_ms > 0) std::this_thread::sleep_for(milliseconds(plan.delay_ms));
  const auto answer = [&](int code, const std::string& body) {
    std::string head = absl::StrCat("HTTP/1.1 ", code, " X\r\nContent-Type: application/json\r\n",
                                    "Content-Length: ", body.size(), "\r\n");
    for (const std::string& header : plan.headers) absl::StrAppend(&head, header, "\r\n");
    return connection.Send(absl::StrCat(head, "\r\n", body));
  };
  if (plan.code != 200 || !plan.body.empty()) return answer(plan.code, plan.body);

  std::string path = request.path;
  std::string name_space;
  if (path.starts_with(absl::StrCat(kPrefix, "namespaces/"))) {
    const std::vector<std::string> parts = absl::StrSplit(path, '/');
    if (parts.size() == 6) name_space = parts[4];
    path = absl::StrCat(kPrefix, parts.back());
  }
  if (request.method != "GET" || path != absl::StrCat(kPrefix, "configmaps")) {
    Complain(request, "nothing is served there");
    return answer(404, StatusJson(404, "NotFound", "not found"));
  }
  return request.watch() ? AnswerWatch(connection, request, plan, name_space)
                         : AnswerList(connection, request, plan, name_space);
}

bool FakeApi::AnswerList(Connection& connection, const FakeRequest& request, const FakePlan& plan,
                         const std::string& name_space) {
  static const std::set<std::string> known = {"limit", "continue", "labelSelector",
                                              "fieldSelector"};
  for (const auto& [key, value] : request.query) {
    if (!known.contains(key)) Complain(request, "unknown parameter of a list");
  }
  size_t limit = SIZE_MAX;
  if (const auto at = request.query.find("limit"); at != request.query.end() && at->second != "0") {
    limit = static_cast<size_t>(std::stoull(at->second));
  }
  std::string body;
  int code = 200;
  {
    std::lock_guard lock(mutex_);
    // The state at a version: what has happened since is undone.
    uint64_t version = version_;
    Key after;
    bool expired = false;
    if (const auto at = request.query.find("continue"); at != request.query.end()) {
      const std::vector<std::string> parts = absl::StrSplit(at->second, ':');
      expired = parts.size() != 3 || !absl::SimpleAtoi(parts[0], &version) || version < oldest_;
      if (!expired) after = {parts[1], parts[2]};
    }
    if (expired) {
      code = 410;
      body = StatusJson(410, "Expired", "the continue token is too old");
    } else {
      std::map<Key, FakeObject> state;
      if (version == version_) {
        state = objects_;
      } else {
        state = objects_;
        for (auto event = history_.rbegin(); event != history_.rend() && event->version > version;
             ++event) {
          const Key key = {event->object.name_space, event->object.name};
          const FakeObject* before = nullptr;
          for (const Event& earlier : history_) {
            if (earlier.version < event->version && earlier.object.uid == event->object.uid) {
              before = &earlier.object;
            }
          }
          if (event->type == "ADDED" || before == nullptr) {
            state.erase(key);
          } else {
            state[key] = *before;
          }
        }
      }
      std::vector<std::string> items;
      Key last;
      bool more = false;
      for (const auto& [key, object] : state) {
        if (!name_space.empty() && key.first != name_space) continue;
        if (!after.second.empty() && key <= after) continue;
        if (items.size() == limit) {
          more = true;
          break;
        }
        items.push_back(JsonOf(object));
        last = key;
      }
      body = absl::StrCat(
          R"({"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":")", version,
          "\"",
          more ? absl::StrCat(R"(,"continue":")", version, ":", last.first, ":", last.second, "\"")
               : "",
          "},\"items\":[", absl::StrJoin(items, ","), "]}");
    }
  }
  if (plan.edit) body = plan.edit(0, std::move(body));
  const bool stops = plan.stop_after_bytes.has_value() && *plan.stop_after_bytes < body.size();
  const std::string head = absl::StrCat(
      "HTTP/1.1 ", code, " X\r\nContent-Type: application/json\r\nContent-Length: ", body.size(),
      "\r\n\r\n");
  if (!connection.Send(head + (stops ? body.substr(0, *plan.stop_after_bytes) : body)))
    return false;
  return !stops;
}

void FakeApi::CheckWatch(const FakeRequest& request) {
  static const std::set<std::string> known = {
      "watch",         "allowWatchBookmarks", "resourceVersion",      "timeoutSeconds",
      "labelSelector", "fieldSelector",       "resourceVersionMatch", "sendInitialEvents"};
  for (const auto& [key, value] : request.query) {
    if (!known.contains(key)) Complain(request, "unknown parameter of a watch");
  }
  const auto value = [&](const char* key) {
    const auto at = request.query.find(key);
    return at == request.query.end() ? std::string() : at->second;
  };
  if (value("allowWatchBookmarks") != "true") Complain(request, "no bookmarks");
  int seconds = 0;
  if (!absl::SimpleAtoi(value("timeoutSeconds"), &seconds) || seconds < 1) {
    Complain(request, "no timeoutSeconds");
  }
  if (request.initial_events()) {
    if (value("resourceVersionMatch") != "NotOlderThan") Complain(request, "no NotOlderThan");
    if (!value("resourceVersion").empty()) Complain(request, "a list that starts in the past");
  } else {
    uint64_t version = 0;
    if (!absl::SimpleAtoi(value("resourceVersion"), &version)) Complain(request, "no version");
    if (!value("resourceVersionMatch").empty()) Complain(request, "resourceVersionMatch");
    std::lock_guard lock(mutex_);
    if (version > version_) complaints_.emplace_back("a watch from a version that never was");
  }
}

bool FakeApi::AnswerWatch(Connection& connection, const FakeRequest& request, const FakePlan& plan,
                          const std::string& name_space) {
  CheckWatch(request);
  std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n";
  for (const std::string& header : plan.headers) absl::StrAppend(&head, header, "\r\n");
  uint64_t from = 0;
  std::vector<std::string> lines;
  uint64_t bookmarks = 0;
  {
    std::lock_guard lock(mutex_);
    bookmarks = bookmarks_;
    if (request.initial_events()) {
      from = version_;
      for (const auto& [key, object] : objects_) {
        if (!name_space.empty() && key.first != name_space) continue;
        lines.push_back(EventLine("ADDED", JsonOf(object)));
      }
      if (!plan.ignores_initial_events) lines.push_back(BookmarkLine(version_, true));
    } else if (const auto at = request.query.find("resourceVersion");
               at == request.query.end() || !absl::SimpleAtoi(at->second, &from)) {
      from = version_;
    }
  }
  if (!connection.Send(head + "\r\n")) return false;
  int seconds = 3600;
  if (const auto at = request.query.find("timeoutSeconds"); at != request.query.end()) {
    static_cast<void>(absl::SimpleAtoi(at->second, &seconds));
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  {
    std::lock_guard lock(mutex_);
    ++watching_;
  }
  Body body(connection, plan);
  bool whole = true;  // the plan has not stopped it
  bool over = false;  // its time is up
  for (const std::string& line : lines) {
    if (whole) whole = body.Line(line);
  }
  if (whole && plan.stop_after_lines.has_value() && lines.size() >= *plan.stop_after_lines) {
    whole = false;
  }
  while (whole && !over) {
    std::vector<std::string> next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, milliseconds(10),
                        [&] { return stopping_ || from < version_ || bookmarks != bookmarks_; });
      if (stopping_ || connection.Gone()) {
        --watching_;
        return false;
      }
      if (from < oldest_) {
        next.push_back(EventLine("ERROR", StatusJson(410, "Expired", "too old resource version")));
        over = true;
      } else {
        for (const Event& event : history_) {
          if (event.version <= from) continue;
          if (!name_space.empty() && event.object.name_space != name_space) continue;
          next.push_back(EventLine(event.type, JsonOf(event.object)));
        }
        from = version_;
        if (std::exchange(bookmarks, bookmarks_) != bookmarks_) {
          next.push_back(BookmarkLine(version_, false));
        }
      }
    }
    for (std::string& line : next) {
      if (whole) whole = body.Line(std::move(line));
    }
    if (std::chrono::steady_clock::now() >= until) over = true;
  }
  {
    std::lock_guard lock(mutex_);
    --watching_;
  }
  if (whole || plan.end == FakePlan::End::kClean) return connection.Send("0\r\n\r\n");
  if (plan.end == FakePlan::End::kReset) connection.Reset();
  if (plan.end == FakePlan::End::kHalfClose) connection.HalfClose();
  if (plan.end == FakePlan::End::kHang || plan.end == FakePlan::End::kHalfClose) {
    std::unique_lock lock(mutex_);
    while (!stopping_ && !connection.Gone()) changed_.wait_for(lock, milliseconds(5));
  }
  return false;
}

}  // namespace cbt::test
