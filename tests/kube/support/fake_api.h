// An API server for the faults of lists and watches: config maps in memory with a history, strict
// about what it is asked, and broken wherever a test wants it.
#ifndef CBT_TESTS_KUBE_SUPPORT_FAKE_API_H_
#define CBT_TESTS_KUBE_SUPPORT_FAKE_API_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace cbt::test {

// A request as it came.
struct FakeRequest {
  std::string method;
  std::string path;
  std::map<std::string, std::string> query;
  std::string body;
  int number = 0;  // of all requests, from 1

  bool watch() const { return query.contains("watch"); }
  bool initial_events() const { return query.contains("sendInitialEvents"); }
};

// How one request is answered; the defaults are as a real server does it.
struct FakePlan {
  // Another answer altogether: an HTTP code and a body.
  int code = 200;
  std::string body = {};
  std::vector<std::string> headers = {};
  // Waits before the head, in milliseconds.
  int delay_ms = 0;

  // --- Of a watch, or of a list where it fits.

  // After so many bytes of the body (without the framing of chunks) the answer stops as `end` says.
  std::optional<size_t> stop_after_bytes = {};
  // The same after so many lines.
  std::optional<size_t> stop_after_lines = {};
  enum class End {
    kClean,      // as HTTP ends an answer
    kClose,      // the connection is closed in the middle of it
    kReset,      // the connection is reset
    kHalfClose,  // nothing more is sent, and the other side is still read
    kHang,       // nothing more comes
  };
  End end = End::kClose;
  // The body goes out in pieces of this many bytes; 0: line by line.
  size_t piece = 0;
  // Sent before the line of this number (from 0), as they are.
  std::map<size_t, std::string> insert = {};
  // Changes a line before it is sent.
  std::function<std::string(size_t number, std::string line)> edit = {};
  // Takes sendInitialEvents for an unknown parameter, as old servers do.
  bool ignores_initial_events = false;
};

struct FakeObject {
  std::string name_space;
  std::string name;
  std::string uid;
  std::string value;
  uint64_t resource_version = 0;
  friend bool operator==(const FakeObject&, const FakeObject&) = default;
};

// Serves /api/v1/configmaps and those of a namespace: GET with pages, and watches. Thread-safe.
class FakeApi {
 public:
  using Key = std::pair<std::string, std::string>;  // namespace, name
  using Plan = std::function<FakePlan(const FakeRequest&)>;

  FakeApi();
  ~FakeApi();
  FakeApi(const FakeApi&) = delete;
  FakeApi& operator=(const FakeApi&) = delete;

  std::string url() const;

  // --- The state.

  // Creates an object, or changes it.
  void Put(const std::string& name_space, const std::string& name, const std::string& value);
  // False: there was none.
  bool Delete(const std::string& name_space, const std::string& name);
  // Sends a bookmark to all watches.
  void Bookmark();
  // Forgets the history: who is behind gets 410, as a watch's event or as the answer of a list's
  // next page.
  void Compact();
  std::map<Key, FakeObject> objects() const;
  uint64_t version() const;

  // --- The faults. `plan` is called for each request, from any thread.

  void SetPlan(Plan plan);
  // Ends all connections that are open now.
  void Disconnect();
  // Refuses connections, or accepts them again.
  void SetReachable(bool reachable);

  // --- What came.

  std::vector<FakeRequest> requests() const;
  int watching() const;  // watches that are open now
  // What no correct client would have asked.
  std::vector<std::string> complaints() const;

  // Waits at most 30 s. False: it did not come true.
  bool WaitUntil(const std::function<bool(const FakeApi&)>& condition) const;

  // A config map as the server writes it.
  static std::string JsonOf(const FakeObject& object);

 private:
  struct Event {
    uint64_t version;
    std::string type;
    FakeObject object;
  };
  class Connection;

  void Accept();
  void Serve(Connection& connection);
  // False: the connection is over.
  bool Answer(Connection& connection, const FakeRequest& request);
  bool AnswerList(Connection& connection, const FakeRequest& request, const FakePlan& plan,
                  const std::string& name_space);
  bool AnswerWatch(Connection& connection, const FakeRequest& request, const FakePlan& plan,
                   const std::string& name_space);
  void Complain(const FakeRequest& request, const char* what);
  void CheckWatch(const FakeRequest& request);

  int listener_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool stopping_ = false;
  bool reachable_ = true;
  Plan plan_;
  std::map<Key, FakeObject> objects_;
  std::vector<Event> history_;
  uint64_t version_ = 10;
  uint64_t oldest_ = 10;  // who knows this version can go on
  uint64_t uids_ = 0;
  uint64_t bookmarks_ = 0;
  int watching_ = 0;
  std::vector<FakeRequest> requests_;
  std::vector<std::string> complaints_;
  std::set<int> open_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_KUBE_SUPPORT_FAKE_API_H_
