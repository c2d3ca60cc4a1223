// A service with methods for tests, and a server for it on a Unix socket. Its calls handle the
// request like the messages after it.
#ifndef CBT_TESTS_RPC_HTTP2_TEST_SERVICE_H_
#define CBT_TESTS_RPC_HTTP2_TEST_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "rpc/http2/server.h"
#include "rpc/transport/server_call.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {

struct CallCounts {
  std::atomic<int> open{0};
  std::atomic<int> opened{0};
  std::atomic<int> cancelled{0};
  std::atomic<int> writes{0};
};

class CountedCall : public rpc::CallHandler {
 public:
  CountedCall(rpc::ServerCall& server_call, CallCounts& all) : call(server_call), counts(all) {
    ++counts.open;
    ++counts.opened;
  }
  ~CountedCall() override { --counts.open; }
  void OnCancel() override { ++counts.cancelled; }
  void OnDone() override { delete this; }

  rpc::ServerCall& call;
  CallCounts& counts;
};

// /t/Echo: returns every message of the request, then OK with metadata.
class EchoCall final : public CountedCall {
 public:
  using CountedCall::CountedCall;
  void OnReadDone(bool ok, absl::Cord message) override {
    if (ok) return call.Write(std::move(message));
    call.AddTrailingMetadata("x-end", "yes");
    call.AddTrailingMetadata("x-bytes-bin", std::string("\0\xff", 2));
    call.Finish(absl::OkStatus());
  }
  void OnWriteDone(bool) override { call.StartRead(); }
};

// /t/Stream: the request "count size" asks for that many messages of that size; message i consists
// of the character 'a' + i % 26. Own threads write them if `from_thread`.
class StreamCall final : public CountedCall {
 public:
  StreamCall(rpc::ServerCall& server_call, CallCounts& all, bool from_thread)
      : CountedCall(server_call, all), from_thread_(from_thread) {}
  ~StreamCall() override {
    if (thread_.joinable()) thread_.detach();
  }
  void OnReadDone(bool ok, absl::Cord message) override {
    const std::string text(message);
    if (!ok || std::sscanf(text.c_str(), "%d %zu", &count_, &size_) != 2) {
      return call.Finish(absl::InvalidArgumentError("request"));
    }
    Next();
  }
  void OnWriteDone(bool ok) override {
    ++counts.writes;
    if (!ok) return call.Finish(absl::CancelledError("write"));
    Next();
  }

 private:
  void Next() {
    if (!from_thread_) return WriteNext();
    if (thread_.joinable()) thread_.detach();
    thread_ = std::thread([this] { WriteNext(); });
  }
  void WriteNext() {
    if (next_ == count_) return call.Finish(absl::OkStatus());
    std::string message(size_, static_cast<char>('a' + next_ % 26));
    ++next_;
    call.Write(absl::Cord(std::move(message)));
  }
  const bool from_thread_;
  std::thread thread_;
  int count_ = 0;
  int next_ = 0;
  size_t size_ = 0;
};

// /t/Hold: stays open until cancelled.
class HoldCall final : public CountedCall {
 public:
  using CountedCall::CountedCall;
  void OnReadDone(bool, absl::Cord) override {}
  void OnCancel() override {
    CountedCall::OnCancel();
    call.Finish(absl::CancelledError("held"));
  }
};

// /t/Stuck: writes a message that the client may never take; ends when cancelled.
class StuckCall final : public CountedCall {
 public:
  using CountedCall::CountedCall;
  void OnReadDone(bool, absl::Cord) override { call.Write(absl::Cord("stuck")); }
  void OnCancel() override {
    CountedCall::OnCancel();
    call.Finish(absl::CancelledError("stuck"));
  }
};

// /t/Fail: an error whose text needs encoding.
class FailCall final : public CountedCall {
 public:
  using CountedCall::CountedCall;
  void OnReadDone(bool, absl::Cord) override {
    call.AddInitialMetadata("x-begin", "first");
    call.Finish(absl::FailedPreconditionError("100% of \xc3\xbc\nlines"));
  }
};

// /t/ReadOn: reads twice past the end of the request, then fails with a text too long for trailers.
class ReadOnCall final : public CountedCall {
 public:
  using CountedCall::CountedCall;
  void OnReadDone(bool ok, absl::Cord) override {
    if (ok || ++ends_ < 3) return call.StartRead();
    call.Finish(absl::NotFoundError(std::string(40'000, 'x')));
  }

 private:
  int ends_ = 0;
};

class TestService final : public rpc::Service {
 public:
  explicit TestService(CallCounts& counts) {
    Method<EchoCall>("/t/Echo", counts);
    Method<HoldCall>("/t/Hold", counts);
    Method<StuckCall>("/t/Stuck", counts);
    Method<FailCall>("/t/Fail", counts);
    Method<ReadOnCall>("/t/ReadOn", counts);
    for (const bool from_thread : {false, true}) {
      AddMethod(from_thread ? "/t/ThreadStream" : "/t/Stream",
                [&counts, from_thread](rpc::ServerCall& call,
                                       absl::Cord request) -> absl::StatusOr<rpc::CallHandler*> {
                  auto* const made = new StreamCall(call, counts, from_thread);
                  made->OnReadDone(true, std::move(request));
                  return made;
                });
    }
    AddMethod("/t/Refuse",
              [](rpc::ServerCall&, const absl::Cord&) -> absl::StatusOr<rpc::CallHandler*> {
                return absl::PermissionDeniedError("no");
              });
  }

 private:
  template <typename Call>
  void Method(const std::string& path, CallCounts& counts) {
    AddMethod(
        path,
        [&counts](rpc::ServerCall& call, absl::Cord request) -> absl::StatusOr<rpc::CallHandler*> {
          auto* const made = new Call(call, counts);
          made->OnReadDone(true, std::move(request));
          return made;
        });
  }
};

struct TestServer {
  explicit TestServer(rpc::http2::ServerLimits limits = {}, rpc::http2::NewServerSsl ssl = {})
      : path(dir / "s"),
        server(ValueOf(
            rpc::http2::Server::Start({.is_unix = true, .path = path, .host = {}, .port = 0},
                                      limits, {&service}, std::move(ssl), {}))) {}

  // Waits briefly for `condition`.
  template <typename Condition>
  static bool Soon(const Condition& condition,
                   std::chrono::milliseconds limit = std::chrono::seconds(10)) {
    const auto by = std::chrono::steady_clock::now() + limit;
    while (!condition() && std::chrono::steady_clock::now() < by) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return condition();
  }

  TempDir dir;
  const std::string path;
  CallCounts counts;
  TestService service{counts};
  std::unique_ptr<rpc::http2::Server> server;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_HTTP2_TEST_SERVICE_H_
