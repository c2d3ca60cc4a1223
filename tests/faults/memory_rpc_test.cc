// Memory runs out in a service: the call ends with an error, and the process continues.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/watched_file.h"
#include "cbt/executor.h"
#include "cbt/extent.h"
#include "cbt/ops/metrics.h"
#include "cbt/rpc/access.h"
#include "cbt/rpc/server.h"
#include "cbt/rpc/telemetry.h"
#include "cbt/units.h"
#include "cbt/wire/digest.h"
#include "cbt/wire/message.h"
#include "rpc/access/admission.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/contract.h"
#include "rpc/contract/resumption.h"
#include "rpc/contract/status.h"
#include "rpc/relay/open_calls.h"
#include "rpc/relay/relay_feed.h"
#include "rpc/server/message_producer.h"
#include "rpc/server/provider_feed.h"
#include "rpc/server/server_stream.h"
#include "rpc/server/stream_registry.h"
#include "rpc/server/stream_telemetry.h"
#include "rpc/transport/client_call.h"
#include "rpc/transport/server_call.h"
#include "rpc/transport/slice_pool.h"
#include "tests/faults/support/failing_memory.h"
#include "tests/rpc/support/providers.h"
#include "tests/support/figures.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::rpc {
namespace memory_rpc_test {

using test::FailAllocation;
using test::FailEveryAllocation;
using test::Found;

class OutOfMemoryInServices : public testing::Test {
 protected:
  static void TearDownTestSuite() {
    test::PrintFigure("r10_allocations_failed_rpc", test::AllocationsFailed());
    test::PrintFigure("r10_wrong_rpc", test::WrongAnswers());
  }
};

TEST_F(OutOfMemoryInServices, PageTokens) {
  const std::optional<std::string> base = "a snapshot whose name takes memory of its own";
  const std::string target = "another snapshot with a name that is just as long";
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              const PageTokens tokens("a key that has more than sixteen bytes");
              const std::string token = tokens.Seal(base, target, {123456789});
              const absl::StatusOr<PagePlace> place = tokens.Open(base, target, token);
              if (!place.ok()) return std::nullopt;
              EXPECT_EQ(place->offset, 123456789U);
              return std::vector<uint8_t>(token.begin(), token.end());
            }),
            2);
}

// A proof that could not be read must not count as valid.
TEST_F(OutOfMemoryInServices, Proofs) {
  const std::vector<uint64_t> offsets = {0, 8192};
  const std::vector<uint64_t> lengths = {4096, 4096};
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              StreamDigest digest;
              digest.Add(offsets, lengths);
              const StreamHeader header{BlockMetadataType::kFixedLength, kMiB};
              const Metadata sent = ProofMetadata(digest, 0, header);
              const auto look_up = [&](std::string_view key) -> std::optional<std::string_view> {
                for (const auto& [name, value] : sent) {
                  if (std::string_view(name) == key) return value;
                }
                return std::nullopt;
              };
              std::string what;
              return std::vector<uint8_t>(
                  {static_cast<uint8_t>(CheckProof(look_up, digest, 0, header, what))});
            }),
            3);
}

class Everybody final : public Authenticator,
                        public Authorizer,
                        public SnapshotResolver,
                        public SecretProvider {
 public:
  void Authenticate(const Secret&, Done<Principal> done) override {
    done(Principal{.name = "somebody with a name that takes memory"});
  }
  void Authorize(const Principal&, const std::string&, DoneStatus done) override {
    done(absl::OkStatus());
  }
  void Resolve(const SnapshotQuery& query, Done<ResolvedSnapshots> done) override {
    done(ResolvedSnapshots{.base_handle = query.base, .target_handle = query.target});
  }
  void GetSecrets(const std::string&, const ResolvedSnapshots&, Done<Secrets> done) override {
    Secrets secrets;
    secrets.Set("a key that takes memory of its own", "and a value that does so as well");
    done(std::move(secrets));
  }
};

// A core dump, or the next owner of the memory, must not contain secrets of a file read long ago.
TEST(Secrecy, MemoryThatIsGivenBackHoldsNoSecretOfAFile) {
  constexpr std::string_view kMark = "a-mark-that-all-the-secrets-have";
  const test::TempDir dir;
  {
    // Long enough to be read in several pieces.
    std::string tokens;
    std::string sessions;
    std::string secrets;
    for (int i = 0; i < 2000; ++i) {
      const std::string secret = absl::StrCat(std::string(kMark), i);
      absl::StrAppend(&tokens, secret, " name-", i, " *\n");
      absl::StrAppend(&sessions, secret, " namespace snapshot -\n");
      if (i < 1000) absl::StrAppend(&secrets, "key", i, "=", secret, "\n");
    }
    dir.Write("tokens", tokens);
    dir.Write("sessions", sessions);
    dir.Write("secrets", secrets);
    dir.Write("bad-line", std::string(kMark) + " name\n");
    dir.Write("unfinished", tokens + "x");
    dir.Write("too-large", tokens + std::string(5 * kMiB, 'x'));
  }
  const test::WatchFreed freed(kMark);
  EXPECT_OK(MakeTokenFileAccess(dir / "tokens"));
  EXPECT_EQ(freed.found(), 0) << "tokens";
  EXPECT_OK(MakeFileSessions(dir / "sessions"));
  EXPECT_EQ(freed.found(), 0) << "sessions";
  EXPECT_OK(MakeFileSecrets(dir / "secrets"));
  EXPECT_EQ(freed.found(), 0) << "secrets";
  EXPECT_FALSE(MakeTokenFileAccess(dir / "bad-line").ok());
  EXPECT_FALSE(MakeFileSessions(dir / "bad-line").ok());
  EXPECT_FALSE(MakeTokenFileAccess(dir / "unfinished").ok());
  EXPECT_FALSE(MakeTokenFileAccess(dir / "too-large").ok());
  EXPECT_EQ(freed.found(), 0) << "files that are refused";
  // Control: it finds a copy that was not wiped.
  EXPECT_OK(ReadSmallFile(dir / "tokens"));
  EXPECT_GT(freed.found(), 0);
}

// An unanswered request would hold its client and a slot forever.
TEST_F(OutOfMemoryInServices, EveryRequestForAccessIsAnswered) {
  Everybody all;
  const auto admission = MakeAccessAdmission({&all, &all, &all, &all}, false);
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              absl::StatusOr<AdmittedRequest> answer = absl::Status(absl::StatusCode::kUnknown, "");
              MetadataRequest request;
              request.target_snapshot_id = "a snapshot whose name takes memory of its own";
              request.token = Secret("a token that is longer than fifteen bytes");
              admission->Admit(std::move(request),
                               [&answer](absl::StatusOr<AdmittedRequest> admitted) {
                                 answer = std::move(admitted);
                               });
              EXPECT_FALSE(absl::IsUnknown(answer.status()));
              if (!answer.ok()) return std::nullopt;
              EXPECT_EQ(answer->secrets.size(), 1u);
              return std::vector<uint8_t>(answer->target_snapshot_id.begin(),
                                          answer->target_snapshot_id.end());
            }),
            10);
}

// Tasks that wait until the test runs them.
class Tasks final : public Executor {
 public:
  void Schedule(std::function<void()> task) override { tasks_.push_back(std::move(task)); }

  // Returns how many of them threw.
  int Run() {
    int threw = 0;
    while (!tasks_.empty()) {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      threw += Throws(task) ? 1 : 0;
    }
    return threw;
  }

  template <typename Call>
  static bool Throws(const Call& call) {
    try {
      call();
    } catch (const std::bad_alloc&) {
      return true;
    }
    return false;
  }

 private:
  std::deque<std::function<void()>> tasks_;
};

class LastReport final : public StreamObserver {
 public:
  void OnOpen(const StreamKind&) noexcept override { report_.reset(); }
  void OnClose(const StreamReport& report) noexcept override { report_ = report; }
  const std::optional<StreamReport>& report() const { return report_; }

 private:
  std::optional<StreamReport> report_;
};

class Silent final : public LogSink {
 public:
  bool Wants(LogLevel) const noexcept override { return true; }
  void Write(LogLevel, std::string_view, std::span<const LogField>) noexcept override {}
};

// A call without a transport.
class LooseCall final : public ServerCall {
 public:
  std::optional<std::chrono::system_clock::time_point> deadline() const override {
    return std::nullopt;
  }
  void StartRead() noexcept override {}
  void AddInitialMetadata(std::string_view key, std::string_view value) override {
    initial_.emplace_back(key, value);
  }
  void AddTrailingMetadata(std::string_view key, std::string_view value) override {
    trailing_.emplace_back(key, value);
  }
  void Write(absl::Cord) noexcept override {}
  void Finish(absl::Status) noexcept override {}
  void WriteAndFinish(absl::Cord) noexcept override {}
  void Cancel() noexcept override {}

  size_t trailers() const { return trailing_.size(); }

 private:
  Metadata initial_;
  Metadata trailing_;
};

// Runs a stream's server side, with the test as the transport and the executor. An exception there
// would end the process, or be swallowed and leave the stream open. Returns the number of messages
// and trailers of a stream of `tuples`, two per message.
Found ServeStream(StreamRegistry& registry, const StreamOptions& options, uint64_t tuples,
                  bool never_blocks = false) {
  LastReport observer;
  Silent log;
  LooseCall call;
  Tasks tasks;
  test::FunctionProvider provider([=](const auto&) -> absl::StatusOr<MetadataSource> {
    MetadataSource source = test::Extents(test::AlternatingCursor(tuples * 8192, 4096));
    source.summary = [](uint64_t) { return StreamSummary{.bytes = 1 << 23, .tuples = 2048}; };
    source.never_blocks = never_blocks;
    return source;
  });
  absl::StatusOr<FairPlaces::Place> place = registry.Enter("");
  if (!place.ok()) return std::nullopt;
  const auto stream = std::make_shared<ServerStream>(call, registry, *std::move(place), options,
                                                     Telemetry{&observer, &log}, StreamKind{});
  if (!registry.Add(stream).ok()) return std::nullopt;
  // From here on a client waits for the end.
  const auto begin = [&] {
    AdmittedRequest request;
    request.target_snapshot_id = "s";
    request.max_results = 2;
    stream->Start(std::make_shared<ProviderFeed>(
        tasks,
        std::make_unique<MessageProducer>(kCsiContract, provider, std::move(request), options,
                                          SlicePool::Create(options.message_bytes, kMiB),
                                          std::nullopt),
        stream, stream->stop_token()));
  };
  // As a service does.
  int threw = Tasks::Throws([&] {
    try {
      begin();
    } catch (const std::bad_alloc&) {
      stream->EndOutOfMemory();
    }
  });
  threw += tasks.Run();
  // If no task is running and the end has not come, a message must be in flight.
  for (int i = 0; i < 100 && !observer.report().has_value() && threw == 0; ++i) {
    threw += Tasks::Throws([&] { stream->OnWriteDone(true); }) ? 1 : 0;
    threw += tasks.Run();
  }
  stream->OnDone();
  const test::Undisturbed calm;
  // The registry's thread may be looking at it, and would destroy it after this thread has counted.
  for (int i = 0; i < 1000 && stream.use_count() > 1; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(threw, 0);
  EXPECT_EQ(registry.open_streams(), 0u);
  const std::optional<StreamReport>& report = observer.report();
  EXPECT_TRUE(report.has_value());
  if (!report.has_value() || threw > 0) return std::nullopt;
  if (report->code != absl::StatusCode::kOk) {
    EXPECT_EQ(report->code, absl::StatusCode::kResourceExhausted);
    return std::nullopt;
  }
  EXPECT_EQ(report->tuples, tuples);
  EXPECT_EQ(call.trailers(), 6u);
  return std::vector<uint8_t>{static_cast<uint8_t>(report->messages),
                              static_cast<uint8_t>(call.trailers())};
}

TEST_F(OutOfMemoryInServices, EveryStreamComesToItsEnd) {
  StreamOptions options;
  options.message_bytes = 4096;
  options.messages_in_flight = 2;
  options.max_streams = 1;
  StreamRegistry registry(options.max_streams, std::chrono::hours(1), std::chrono::hours(0));
  // The message queue allocates only occasionally: at one of these lengths it does for the last
  // message, which comes together with the end.
  for (uint64_t tuples = 33; tuples < 51; tuples += 2) {
    SCOPED_TRACE(tuples);
    for (const bool never_blocks : {false, true}) {
      EXPECT_GT(
          FailEveryAllocation([&] { return ServeStream(registry, options, tuples, never_blocks); }),
          50);
    }
  }
}

// A channel whose calls never start.
class DeadChannel final : public Channel {
 public:
  std::unique_ptr<ClientCall> NewCall(Deadline) override { return std::make_unique<Call>(); }
  absl::Status Connect(std::chrono::system_clock::time_point) override { return OutOfMemory(); }

 private:
  class Call final : public ClientCall {
   public:
    void Start(const std::string&, const std::string&, ClientCallHandler&) override {
      throw std::bad_alloc();
    }
    void ReadOn() noexcept override {}
    void Cancel() noexcept override {}
    std::optional<std::string_view> Initial(std::string_view) const override { return {}; }
    std::optional<std::string_view> Trailing(std::string_view) const override { return {}; }
  };
};

// State for the end of a call must not outlive a call that never started.
TEST_F(OutOfMemoryInServices, ARelayedStreamWithoutACallIsEnded) {
  class Sink final : public MessageSink {
   public:
    Want Check() override { return Want::kMore; }
    Want Offer(OutMessage) override { return Want::kMore; }
    void Announce(Metadata) override {}
    void Complete(absl::Status status, Metadata, std::optional<OutMessage>) override {
      ended = status.code();
    }
    std::optional<absl::StatusCode> ended;
  };
  // The path, the id and the request are allocated before the channel is called. The last round
  // gets that far.
  for (int64_t n = 1; n <= 100; n += n < 3 ? 1 : 97) {
    SCOPED_TRACE(n);
    OpenCalls calls;
    DeadChannel plugin;
    const RelayPlan plan{.upstream = kCsiContract, .pool = nullptr, .calls = calls};
    const auto sink = std::make_shared<Sink>();
    AdmittedRequest request;
    request.target_snapshot_id = "a snapshot whose name takes memory of its own";
    auto feed = std::make_shared<RelayFeed>(plan, plugin, kCsiContract, std::move(request), sink,
                                            std::stop_token(), std::nullopt);
    bool threw = false;
    {
      const FailAllocation fails(n);
      threw = Tasks::Throws([&] { feed->Resume(); });
      EXPECT_EQ(fails.has_failed(), n <= 3);
    }
    EXPECT_FALSE(threw);
    EXPECT_EQ(sink->ended, absl::StatusCode::kResourceExhausted);
    const std::weak_ptr<RelayFeed> left = feed;
    feed.reset();
    EXPECT_TRUE(left.expired());
  }
}

// The Cord's own node is allocated after the bytes exist.
TEST_F(OutOfMemoryInServices, BuffersComeBackToTheirPool) {
  constexpr size_t kBytes = 256 * kKiB;
  for (const size_t length : {size_t{1000}, kBytes}) {
    SCOPED_TRACE(length);
    const int64_t failed = FailEveryAllocation([&]() -> Found {
      std::weak_ptr<SlicePool> left;
      bool made = false;
      try {
        const std::shared_ptr<SlicePool> pool = SlicePool::Create(kBytes, kBytes);
        left = pool;
        SlicePool::Buffer buffer = pool->Take(kBytes);
        const absl::Cord message = std::move(buffer).ToCord(length);
        made = true;
      } catch (const std::bad_alloc&) {
      }
      const test::Undisturbed calm;
      EXPECT_TRUE(left.expired());
      return made ? Found(std::vector<uint8_t>{1}) : std::nullopt;
    });
    EXPECT_GE(failed, 3);
  }
}

// It holds a stream's slot.
TEST_F(OutOfMemoryInServices, AFeedThatIsClosedLetsGo) {
  Tasks tasks;
  const auto place = std::make_shared<int>();
  const auto feed = std::make_shared<ProviderFeed>(
      tasks, nullptr, std::shared_ptr<MessageSink>(place, nullptr), std::stop_token());
  bool threw = false;
  {
    const FailAllocation none(1, true);
    threw = Tasks::Throws([&] { feed->Close(); });
  }
  EXPECT_FALSE(threw);
  EXPECT_EQ(place.use_count(), 1);
}

// A call that only ends.
class FakeCall final : public ServedCall {
 public:
  explicit FakeCall(StreamRegistry& registry) : registry_(registry) {}
  void End(absl::Status status) override {
    code = status.code();
    registry_.Remove(this);
  }
  void Abort() override {}
  void CheckTimes(std::chrono::milliseconds, std::chrono::milliseconds) override { ++checked; }

  std::atomic<int> checked = 0;
  std::atomic<absl::StatusCode> code = absl::StatusCode::kOk;

 private:
  StreamRegistry& registry_;
};

TEST_F(OutOfMemoryInServices, CallsAreWatchedAndDrained) {
  StreamRegistry registry(10, std::chrono::milliseconds(1), std::chrono::milliseconds(0));
  std::vector<std::shared_ptr<FakeCall>> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(std::make_shared<FakeCall>(registry));
    ASSERT_OK(registry.Add(calls.back()));
  }
  bool watched = true;
  {
    const FailAllocation none(1, true);
    const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    // On the registry's own thread.
    for (const auto& call : calls) {
      const int before = call->checked;
      while (call->checked < before + 2 && std::chrono::steady_clock::now() < until) {
        std::this_thread::yield();
      }
      watched = watched && call->checked >= before + 2;
    }
    registry.StartDrain(std::chrono::milliseconds(0));
    registry.FinishDrain();
  }
  EXPECT_TRUE(watched);
  EXPECT_EQ(registry.open_streams(), 0u);
  for (const auto& call : calls) EXPECT_EQ(call->code, absl::StatusCode::kUnavailable);
}

TEST_F(OutOfMemoryInServices, StatusesHaveTheirCodeWithOrWithoutText) {
  const absl::Status status = absl::NotFoundError("a text that takes memory of its own");
  const FailAllocation none(1, true);
  const absl::StatusCode sent = StatusForWire(status).code();
  const absl::StatusCode bare =
      MakeStatusNoThrow(absl::StatusCode::kDeadlineExceeded, "a text that takes memory").code();
  const absl::StatusCode none_left = OutOfMemory().code();
  const test::Undisturbed calm;
  EXPECT_EQ(sent, absl::StatusCode::kNotFound);
  EXPECT_EQ(bare, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(none_left, absl::StatusCode::kResourceExhausted);
}

// Lost measurements stay lost; the gauge of open streams is right again once there is memory.
TEST_F(OutOfMemoryInServices, TheGaugeOfStreamsDoesNotDrift) {
  const StreamKind kind{.api = Api::kCsi, .delta = true, .resumed = true};
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              std::unique_ptr<ops::Metrics> metrics;
              {
                const test::Undisturbed calm;
                metrics = ops::Metrics::Create();
              }
              for (int i = 0; i < 3; ++i) metrics->OnOpen(kind);
              metrics->OnClose({.kind = kind, .messages = 1});
              const test::Undisturbed calm;
              metrics->OnClose({.kind = kind, .messages = 1});
              const std::string text = metrics->Text();
              const std::string right = "cbt_streams_in_flight{api=\"csi\",method=\"delta\"} 1\n";
              EXPECT_NE(text.find(right), std::string::npos) << text;
              return std::vector<uint8_t>();
            }),
            10);
}

// Sanitizers need more address space than any limit leaves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(CBT_TEST_PLAIN)
TEST_F(OutOfMemoryInServices, WithoutThreadsAServerDoesNotStart) {
  test::FunctionProvider provider(
      [](const auto&) -> absl::StatusOr<MetadataSource> { return absl::UnknownError(""); });
  const std::string address =
      absl::StrCat("unix://", testing::TempDir(), "cbt-threads-", ::getpid());
  const pid_t child = fork();
  if (child == 0) {
    // Room for a few thread stacks, whatever size the shell sets.
    pthread_attr_t stack;
    if (pthread_attr_init(&stack) != 0 || pthread_attr_setstacksize(&stack, 8 * kMiB) != 0 ||
        pthread_setattr_default_np(&stack) != 0) {
      _exit(3);
    }
    const rlimit room = {kGiB, kGiB};
    if (setrlimit(RLIMIT_AS, &room) != 0) _exit(2);
    ServerOptions options;
    options.listen = address;
    options.service.stream.threads = 1024;
    _exit(absl::IsResourceExhausted(Server::Start(provider, options).status()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
#endif

}  // namespace memory_rpc_test
}  // namespace cbt::rpc
