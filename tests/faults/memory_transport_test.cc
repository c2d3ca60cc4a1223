// Memory runs out in the transport, on both sides and at every allocation: ours, nghttp2's for its
// sessions, and OpenSSL's. A call ends with the whole answer or with an error, and the server
// continues.
#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "net/tls_context.h"
#include "rpc/http2/channel.h"
#include "rpc/http2/server.h"
#include "tests/faults/support/failing_memory.h"
#include "tests/net/certificates.h"
#include "tests/rpc/support/providers.h"
#include "tests/support/figures.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

#ifdef __SANITIZE_ADDRESS__
// A Cord that cannot allocate a node loses the data being appended.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() {
  return "leak:libabsl_cord\nleak:NewExternalRep\n";
}
#endif

namespace cbt::rpc::http2 {
namespace memory_transport_test {

using std::chrono::seconds;
using test::FailAllocation;

// ---- OpenSSL's allocations

struct alignas(std::max_align_t) Size {
  size_t bytes;
};

void* OpensslMalloc(size_t bytes, const char*, int) {
  auto* const memory = static_cast<Size*>(::operator new(bytes + sizeof(Size), std::nothrow));
  if (memory == nullptr) return nullptr;
  memory->bytes = bytes;
  return memory + 1;
}

void OpensslFree(void* memory, const char*, int) {
  if (memory != nullptr) ::operator delete(static_cast<Size*>(memory) - 1);
}

void* OpensslRealloc(void* memory, size_t bytes, const char* file, int line) {
  if (memory == nullptr) return OpensslMalloc(bytes, file, line);
  if (bytes == 0) {
    OpensslFree(memory, file, line);
    return nullptr;
  }
  void* const moved = OpensslMalloc(bytes, file, line);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, memory, std::min(bytes, (static_cast<Size*>(memory) - 1)->bytes));
  OpensslFree(memory, file, line);
  return moved;
}

// Only before OpenSSL's first allocation.
const bool kOpensslFails =
    CRYPTO_set_mem_functions(&OpensslMalloc, &OpensslRealloc, &OpensslFree) == 1;

// ---- a service and a client that allocate nothing themselves

using Answer = std::vector<absl::Cord>;

class Sender final : public CallHandler {
 public:
  Sender(ServerCall& call, const Answer& answer) : call_(call), answer_(answer) { Next(); }
  void OnWriteDone(bool ok) override {
    if (!ok) return call_.Finish(absl::Status(absl::StatusCode::kCancelled, ""));
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (next_ < answer_.size()) return call_.Write(answer_[next_++]);
    try {
      call_.AddTrailingMetadata("a-key-that-is-long-enough", "and a value that is so as well");
    } catch (const std::bad_alloc&) {
      return call_.Finish(absl::Status(absl::StatusCode::kResourceExhausted, ""));
    }
    call_.Finish(absl::OkStatus());
  }

  ServerCall& call_;
  const Answer& answer_;
  size_t next_ = 0;
};

class AnswerService final : public Service {
 public:
  explicit AnswerService(const Answer& answer) {
    AddMethod("/t/Answer",
              [&answer](ServerCall& call, const absl::Cord&) -> absl::StatusOr<CallHandler*> {
                return new Sender(call, answer);
              });
  }
};

class Checker final : public ClientCallHandler {
 public:
  explicit Checker(const Answer& expected) : expected_(expected) {}

  bool OnMessage(absl::Cord message) override {
    right_ = right_ && next_ < expected_.size() && message == expected_[next_];
    ++next_;
    return true;
  }
  void OnEnd(const absl::Status& status) override {
    const std::lock_guard lock(mutex_);
    code_ = status.code();
    ended_.notify_all();
  }

  absl::StatusCode Await() {
    std::unique_lock lock(mutex_);
    if (!ended_.wait_for(lock, seconds(60), [&] { return code_.has_value(); })) {
      const test::Undisturbed calm;
      ADD_FAILURE() << "the call did not end";
      std::abort();
    }
    return *code_;
  }
  bool whole() const { return right_ && next_ == expected_.size(); }

 private:
  const Answer& expected_;
  size_t next_ = 0;
  bool right_ = true;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<absl::StatusCode> code_;
};

int64_t failed_allocations = 0;
int64_t wrong_answers = 0;

class OutOfMemoryInTheTransport : public testing::Test {
 protected:
  OutOfMemoryInTheTransport() {
    for (const size_t bytes : {size_t{10}, size_t{5'000}, size_t{200'000}, size_t{0}}) {
      // Of several parts.
      absl::Cord message(std::string(bytes / 2, 'a'));
      message.Append(absl::Cord(std::string(bytes - bytes / 2, 'b')));
      answer_.push_back(std::move(message));
    }
  }
  static void TearDownTestSuite() {
    test::PrintFigure("r10_allocations_failed_transport", failed_allocations);
    test::PrintFigure("r10_wrong_transport", wrong_answers);
  }

  void Start(const net::ServerTlsSettings& tls = {}) {
    tls_ = test::ValueOf(net::ServerTls::Create(tls));
    NewServerSsl ssl;
    if (tls_ != nullptr) {
      ssl = [this]() -> absl::StatusOr<net::OwnedSsl> {
        auto made = tls_->NewConnection();
        if (!made.ok()) return made.status();
        return net::OwnedSsl(made->release());
      };
    }
    ServerLimits limits;
    limits.loops = 1;
    server_ = test::ValueOf(Server::Start(address_, limits, {&service_}, std::move(ssl), {}));
  }

  // One connection and one call; OK only with the whole answer.
  absl::StatusCode Call(const ClientTlsOptions& tls) {
    Checker checker(answer_);
    absl::StatusCode code = absl::StatusCode::kResourceExhausted;
    try {
      std::optional<test::Undisturbed> calm;
      // A TLS context takes thousands: see ContextsOfTls.
      if (tls.enabled) calm.emplace();
      const auto channel = MakeChannel(server_->address(), tls, {.reconnect_at_once = true});
      calm.reset();
      if (!channel.ok()) return channel.status().code();
      const auto call = (*channel)->NewCall(std::chrono::system_clock::now() + seconds(20));
      call->Start("/t/Answer", "request", checker);
      code = checker.Await();
    } catch (const std::bad_alloc&) {
      // Before the call has begun.
    }
    if (code == absl::StatusCode::kOk && !checker.whole()) {
      const test::Undisturbed calm;
      ++wrong_answers;
      ADD_FAILURE() << "OK without the whole answer";
    }
    return code;
  }

  // Fails every `step`-th allocation, alone or with all after it. Returns the number of
  // allocations.
  int64_t FailEach(const ClientTlsOptions& tls, bool all_after, int64_t step) {
    EXPECT_EQ(Call(tls), absl::StatusCode::kOk);
    for (int64_t n = 1;; n += step) {
      absl::StatusCode code = absl::StatusCode::kUnknown;
      bool failed = false;
      {
        const FailAllocation fails(n, all_after);
        code = Call(tls);
        failed = fails.has_failed();
      }
      if (!failed) {
        EXPECT_EQ(code, absl::StatusCode::kOk);
        return n;
      }
      ++failed_allocations;
      // The server and the client's loop still work.
      if (n % 16 == 0 || code == absl::StatusCode::kDeadlineExceeded) {
        EXPECT_EQ(Call(tls), absl::StatusCode::kOk) << "after allocation " << n;
        EXPECT_NE(code, absl::StatusCode::kDeadlineExceeded) << "at allocation " << n;
      }
      if (HasFailure()) return n;
    }
  }

  const test::TempDir dir_;
  net::Address address_{.is_unix = true, .path = dir_ / "s", .host = {}, .port = 0};
  Answer answer_;
  AnswerService service_{answer_};
  std::unique_ptr<net::ServerTls> tls_;
  std::unique_ptr<Server> server_;
};

TEST_F(OutOfMemoryInTheTransport, PlainCalls) {
  Start();
  EXPECT_GT(FailEach({}, false, 1), 50);
  EXPECT_GT(FailEach({}, true, 1), 50);
}

TEST_F(OutOfMemoryInTheTransport, CallsOverTls) {
  ASSERT_TRUE(kOpensslFails);
  const test::TestAuthority authority;
  const test::PemIdentity server = authority.Issue();
  const test::PemIdentity client = authority.Issue();
  Start(
      {.certificate = server.certificate, .private_key = server.key, .client_ca = authority.pem()});
  const ClientTlsOptions tls{.enabled = true,
                             .ca = authority.pem(),
                             .certificate = client.certificate,
                             .private_key = client.key};
  // OpenSSL makes thousands, each at the cost of a handshake.
  EXPECT_GT(FailEach(tls, false, 23), 500);
  EXPECT_GT(FailEach(tls, true, 101), 500);
}

TEST_F(OutOfMemoryInTheTransport, ContextsOfTls) {
  const test::TestAuthority authority;
  const test::PemIdentity identity = authority.Issue();
  const net::ServerTlsSettings server{.certificate = identity.certificate,
                                      .private_key = identity.key,
                                      .client_ca = authority.pem()};
  const net::ClientTlsSettings client{
      .ca = authority.pem(), .certificate = identity.certificate, .private_key = identity.key};
  const auto fails_each = [](const auto& make) {
    for (int64_t n = 1;; n += 397) {
      bool made = false;
      bool failed = false;
      {
        const FailAllocation fails(n, n % 2 == 0);
        try {
          made = make();
        } catch (const std::bad_alloc&) {
          // With an error.
        }
        failed = fails.has_failed();
      }
      if (!failed) {
        EXPECT_TRUE(made);
        return n;
      }
    }
  };
  EXPECT_GT(fails_each([&] { return net::ServerTls::Create(server).ok(); }), 500);
  EXPECT_GT(fails_each([&] { return net::ClientTls::Create(client).ok(); }), 500);
}

TEST_F(OutOfMemoryInTheTransport, AServerEndsWithoutMemory) {
  for (int64_t n = 1; n < 30; ++n) {
    Start();
    Checker checker(answer_);
    const auto channel = test::ValueOf(MakeChannel(server_->address(), {}));
    const auto call = channel->NewCall(std::nullopt);
    call->Start("/t/Answer", "request", checker);
    {
      const FailAllocation fails(n, true);
      server_->Shutdown(std::chrono::milliseconds(n % 2 == 0 ? 0 : 20));
    }
    if (checker.Await() == absl::StatusCode::kOk) {
      EXPECT_TRUE(checker.whole());
    }
    server_.reset();
  }
}

// ---- a relay between a client and a server

struct Listed {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  uint64_t tuples = 0;
};

Listed List(const std::string& address) {
  Listed listed;
  try {
    ListRequest request;
    request.address = address;
    request.snapshot_id = "a snapshot whose name takes memory of its own";
    request.retry_for = {};
    request.timeout = seconds(20);
    auto cursor = RemoteCursor::Open(request);
    if (!cursor.ok()) return {.code = cursor.status().code()};
    ExtentBatch batch;
    for (;;) {
      const absl::StatusOr<Step> step = (*cursor)->Next(batch);
      if (!step.ok()) return {.code = step.status().code()};
      listed.tuples += batch.size();
      if (*step == Step::kComplete) break;
    }
    listed.code = absl::StatusCode::kOk;
  } catch (const std::bad_alloc&) {
    listed.code = absl::StatusCode::kResourceExhausted;
  }
  return listed;
}

TEST_F(OutOfMemoryInTheTransport, ARelayAndItsPlugin) {
  constexpr uint64_t kTuples = 20'000;
  test::FunctionProvider provider([](const auto&) -> absl::StatusOr<MetadataSource> {
    return test::Extents(test::AlternatingCursor(kTuples * 8192, 4096));
  });
  rpc::ServerOptions plugin_options;
  plugin_options.listen = "unix://" + (dir_ / "plugin");
  plugin_options.service.stream.threads = 1;
  const auto plugin = test::ValueOf(rpc::Server::Start(provider, plugin_options));
  RelayOptions relay_options;
  relay_options.listen = "unix://" + (dir_ / "relay");
  relay_options.service.apis = {Api::kCsi};
  relay_options.plugin = plugin->address();
  const auto relay = test::ValueOf(Relay::Start(relay_options));
  // The relay reconnects by itself after a moment, in each of its loops, which take clients in
  // turn.
  const auto recovers = [&] {
    constexpr int kLoops = 2;
    const auto by = std::chrono::steady_clock::now() + seconds(20);
    for (int in_a_row = 0; in_a_row < kLoops;) {
      const Listed listed = List(relay->address());
      if (listed.code == absl::StatusCode::kOk && listed.tuples != kTuples) return false;
      in_a_row = listed.code == absl::StatusCode::kOk ? in_a_row + 1 : 0;
      if (in_a_row == 0 && std::chrono::steady_clock::now() >= by) return false;
    }
    return true;
  };
  ASSERT_TRUE(recovers());
  for (const bool all_after : {false, true}) {
    for (int64_t n = 1;; n += all_after ? 5 : 1) {
      Listed listed;
      bool failed = false;
      {
        const FailAllocation fails(n, all_after);
        listed = List(relay->address());
        failed = fails.has_failed();
      }
      if (listed.code == absl::StatusCode::kOk && listed.tuples != kTuples) {
        ++wrong_answers;
        ADD_FAILURE() << "OK with " << listed.tuples << " tuples, at allocation " << n;
      }
      EXPECT_NE(listed.code, absl::StatusCode::kDeadlineExceeded) << "at allocation " << n;
      if (!failed) {
        EXPECT_EQ(listed.code, absl::StatusCode::kOk);
        EXPECT_GT(n, 50);
        break;
      }
      ++failed_allocations;
      if (listed.code != absl::StatusCode::kOk) {
        EXPECT_TRUE(recovers()) << "after allocation " << n;
      }
      if (HasFailure()) return;
    }
  }
}

}  // namespace memory_transport_test
}  // namespace cbt::rpc::http2
