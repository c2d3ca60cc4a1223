// Services on gRPC's own server: nothing is lost, copied or reinterpreted.
#include "cbt/grpc/service.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/async_unary_call.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "cbt/rpc/client.h"
#include "cbt/units.h"
#include "csi.pb.h"
#include "rpc/contract/status.h"
#include "rpc/grpc/call.h"
#include "rpc/grpc/convert.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/raw_call.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::rpc {
namespace service_test {

using absl::StatusCode;

const absl::Status kLong = absl::NotFoundError(std::string(5000, 'x'));

// Sends messages, each once the one before has left, then OK.
class Sender final : public CallHandler {
 public:
  Sender(ServerCall& call, std::vector<absl::Cord> messages, bool hasty)
      : call_(call), messages_(std::move(messages)), hasty_(hasty) {
    Step();
  }
  void OnWriteDone(bool ok) override {
    if (!finished_) ok ? Step() : call_.Finish(absl::CancelledError());
  }
  void OnDone() override { delete this; }

 private:
  void Step() {
    if (next_ == messages_.size()) return call_.Finish(absl::OkStatus());
    const bool last = next_ + 1 == messages_.size();
    finished_ = hasty_ && last;
    call_.Write(messages_[next_++]);
    if (hasty_ && last) call_.Finish(kLong);
  }

  ServerCall& call_;
  const std::vector<absl::Cord> messages_;
  const bool hasty_;
  size_t next_ = 0;
  std::atomic<bool> finished_ = false;
};

// Answers the request and every message after it with itself.
class Echo final : public CallHandler {
 public:
  Echo(ServerCall& call, absl::Cord request) : call_(call) { call_.Write(std::move(request)); }
  void OnReadDone(bool ok, absl::Cord message) override {
    ok ? call_.Write(std::move(message)) : call_.Finish(absl::OkStatus());
  }
  void OnWriteDone(bool) override { call_.StartRead(); }
  void OnDone() override { delete this; }

 private:
  ServerCall& call_;
};

// A message of several pieces of `bytes` each.
absl::Cord InPieces(size_t pieces, size_t bytes) {
  absl::Cord message;
  for (size_t i = 0; i < pieces; ++i) {
    auto piece = std::make_shared<std::string>(bytes, static_cast<char>('a' + i));
    message.Append(absl::MakeCordFromExternal(*piece, [piece](absl::string_view) {}));
  }
  return message;
}

std::vector<absl::Cord> Messages() {
  return {absl::Cord(), absl::Cord("short"), InPieces(1, 300'000), InPieces(5, 100),
          InPieces(3, 70'000)};
}

class Services final : public Service {
 public:
  Services() {
    using Opened = absl::StatusOr<CallHandler*>;
    AddMethod("/s/Forgets", [](ServerCall&, absl::Cord) -> Opened { throw std::bad_alloc(); });
    AddMethod("/s/Forgets2", [](ServerCall& call, absl::Cord) -> Opened {
      call.StartRead();
      throw std::bad_alloc();
    });
    AddMethod("/s/Refuses", [](ServerCall&, absl::Cord) -> Opened { return kLong; });
    AddMethod("/s/Sends", [](ServerCall& call, absl::Cord) -> Opened {
      return new Sender(call, Messages(), false);
    });
    AddMethod("/s/Hastes", [](ServerCall& call, absl::Cord) -> Opened {
      return new Sender(call, Messages(), true);
    });
    AddMethod("/s/HastesAtOnce", [](ServerCall& call, absl::Cord) -> Opened {
      return new Sender(call, {absl::Cord("only")}, true);
    });
    AddMethod("/s/Echoes", [](ServerCall& call, absl::Cord request) -> Opened {
      return new Echo(call, std::move(request));
    });
  }
};

// Exposes protected methods.
class Exposed final : public grpc::Service {
 public:
  explicit Exposed(const cbt::rpc::Service& service) {
    int index = 0;
    for (const cbt::rpc::Service::Method& method : service.methods()) {
      AddMethod(NewMethod(method));
      MarkMethodRawCallback(index++, NewHandler(method, halves_));
    }
  }
  HalfRequests& halves() { return halves_; }

 private:
  HalfRequests halves_{1, std::chrono::milliseconds(300)};
};

// The result of a call.
struct Answer {
  std::vector<std::string> messages;
  grpc::Status status;
};

class GrpcCalls : public testing::Test {
 protected:
  GrpcCalls() {
    grpc::ServerBuilder builder;
    // Leaves compressed messages compressed.
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&exposed_);
    server_ = builder.BuildAndStart();
  }
  ~GrpcCalls() override { server_->Shutdown(); }

  Answer Ask(const std::string& path) const {
    test::RawCall call(test::Connect(address_), path, "request", std::chrono::minutes(1));
    Answer answer;
    while (std::optional<std::string> message = call.Read()) answer.messages.push_back(*message);
    answer.status = call.Finish();
    return answer;
  }

  const test::TempDir dir_;
  const std::string address_ = "unix:" + (dir_ / "s");
  const Services services_;
  Exposed exposed_{services_};
  std::unique_ptr<grpc::Server> server_;
};

// UNIMPLEMENTED would send clients to a lower tier.
TEST_F(GrpcCalls, HandlersWithoutMemoryAreNotUnimplemented) {
  for (const char* path : {"/s/Forgets", "/s/Forgets2"}) {
    EXPECT_EQ(Ask(path).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << path;
  }
}

TEST_F(GrpcCalls, RefusalsArriveWithTheirTextCut) {
  const grpc::Status status = Ask("/s/Refuses").status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), std::string(kMaxStatusText, 'x'));
}

TEST_F(GrpcCalls, UnknownMethodsAreUnimplemented) {
  EXPECT_EQ(Ask("/s/None").status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(GrpcCalls, MessagesArriveAsTheyAre) {
  std::vector<std::string> expected;
  for (const absl::Cord& message : Messages()) expected.emplace_back(message);
  const Answer answer = Ask("/s/Sends");
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.messages, expected);
  // The status waits for the message before it.
  const Answer hasty = Ask("/s/Hastes");
  EXPECT_EQ(hasty.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(hasty.messages, expected);
  const Answer only = Ask("/s/HastesAtOnce");
  EXPECT_EQ(only.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(only.messages, std::vector<std::string>{"only"});
}

// A call without a request, whose messages are sent one by one.
class OpenCallOf {
 public:
  OpenCallOf(const std::string& address, const std::string& path) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    call_ = grpc::GenericStub(test::Connect(address)).PrepareCall(&context_, path, &queue_);
    call_->StartCall(this);
    Wait();
  }
  ~OpenCallOf() {
    context_.TryCancel();
    if (!ended_) End();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) continue;
  }
  void Send(const std::string& message) {
    const grpc::Slice slice(message);
    call_->Write(grpc::ByteBuffer(&slice, 1), this);
    Wait();
  }
  void SendNoMore() {
    call_->WritesDone(this);
    Wait();
  }
  std::string Read() {
    grpc::ByteBuffer message;
    call_->Read(&message, this);
    return Wait() ? std::string(ToCord(message)) : "the end";
  }
  grpc::StatusCode End() {
    ended_ = true;
    grpc::Status status;
    call_->Finish(&status, this);
    Wait();
    return status.error_code();
  }

 private:
  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool ended_ = false;
};

TEST_F(GrpcCalls, MessagesAfterTheRequestAreRead) {
  OpenCallOf call(address_, "/s/Echoes");
  for (const char* message : {"one", "", "three"}) {
    call.Send(message);
    EXPECT_EQ(call.Read(), message);
  }
  call.SendNoMore();
  EXPECT_EQ(call.Read(), "the end");
  EXPECT_EQ(call.End(), grpc::StatusCode::OK);
}

TEST_F(GrpcCalls, ACallWithoutARequestIsRefused) {
  OpenCallOf call(address_, "/s/Sends");
  call.SendNoMore();
  EXPECT_EQ(call.End(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcCalls, ARequestThatDoesNotArriveIsNotAwaited) {
  OpenCallOf call(address_, "/s/Sends");
  EXPECT_EQ(call.End(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(test::Eventually([&] { return exposed_.halves().calls().open_streams() == 0; }));
}

// Four places: two for one method, one of the rest for the next.
TEST_F(GrpcCalls, HalfRequestsOfAMethodAreFewAndLeaveRoomForOthers) {
  const OpenCallOf one(address_, "/s/Sends");
  const OpenCallOf two(address_, "/s/Sends");
  ASSERT_TRUE(test::Eventually([&] { return exposed_.halves().calls().open_streams() == 2; }));
  OpenCallOf three(address_, "/s/Sends");
  EXPECT_EQ(three.End(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Ask("/s/Refuses").status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(GrpcCalls, HalfRequestsEndWhenTheServiceDrains) {
  OpenCallOf call(address_, "/s/Sends");
  ASSERT_TRUE(test::Eventually([&] { return exposed_.halves().calls().open_streams() == 1; }));
  exposed_.halves().calls().StartDrain(std::chrono::milliseconds(0));
  exposed_.halves().calls().FinishDrain();
  EXPECT_EQ(exposed_.halves().calls().open_streams(), 0u);
  EXPECT_EQ(call.End(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GrpcCalls, CompressedRequestsAreUnimplemented) {
  grpc::ChannelArguments arguments;
  arguments.SetCompressionAlgorithm(GRPC_COMPRESS_GZIP);
  const auto channel =
      grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
  test::RawCall call(channel, "/s/Sends", std::string(3000, 'x'));
  EXPECT_FALSE(call.Read().has_value());
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

// A plugin's own server, with another kind of service beside ours.
class Embedded : public testing::Test {
 protected:
  Embedded()
      : provider_([](const test::FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
          if (call.target == "none") return absl::NotFoundError("no such snapshot");
          return test::Extents(call.target == "endless"
                                   ? test::AlternatingCursor(uint64_t{1} << 46, 512)
                                   : test::CursorOver({{0, 1}, {4096, 8192}}, kMiB));
        }) {}
  ~Embedded() override { Stop(); }

  void Start(const ServiceOptions& options) {
    service_ = test::ValueOf(GrpcService::Create(provider_, options));
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&other_);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  void Stop() {
    if (server_ == nullptr) return;
    service_->Shutdown(std::chrono::milliseconds(0));
    server_->Shutdown();
    server_ = nullptr;
  }

  absl::StatusOr<std::unique_ptr<RemoteCursor>> Open(const std::string& snapshot) const {
    ListRequest request;
    request.address = address_;
    request.snapshot_id = snapshot;
    request.retry_for = {};
    return RemoteCursor::Open(request);
  }

  const test::TempDir dir_;
  const std::string address_ = "unix:" + (dir_ / "s");
  test::FunctionProvider provider_;
  const Services services_;
  Exposed other_{services_};
  std::unique_ptr<GrpcService> service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(Embedded, ServesBesideOthers) {
  Start({});
  ASSERT_OK_AND_ASSIGN(const auto cursor, Open("s"));
  ASSERT_OK_AND_ASSIGN(const auto extents, test::Drain(*cursor));
  EXPECT_EQ(extents.size(), 2u);
  const auto none = Open("none");
  EXPECT_EQ(none.ok() ? test::Drain(**none).status().code() : none.status().code(),
            StatusCode::kNotFound);
  test::RawCall call(test::Connect(address_), "/s/Sends", "request");
  while (call.Read().has_value()) continue;
  EXPECT_TRUE(call.Finish().ok());
}

TEST_F(Embedded, IdentityIsThePluginsUnlessItIsAskedFor) {
  for (const bool identity : {false, true}) {
    Start({.identity = identity, .plugin_name = "block.example.com"});
    test::RawCall call(test::Connect(address_), "/csi.v1.Identity/GetPluginInfo", "");
    const std::optional<std::string> answer = call.Read();
    EXPECT_EQ(answer.has_value(), identity);
    if (identity) {
      csi::v1::GetPluginInfoResponse info;
      ASSERT_TRUE(info.ParseFromString(answer.value()));
      EXPECT_EQ(info.name(), "block.example.com");
    } else {
      EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
    }
    Stop();
  }
}

// Shutdown waits neither for a stream's end nor for its client.
TEST_F(Embedded, AShutdownEndsStreamsAsUnavailable) {
  Start({});
  const std::string request = test::Ask{.snapshot = "endless"}.bytes();
  test::RawCall reading(test::Connect(address_), test::kAllocatedPath, request);
  test::RawCall stalled(test::Connect(address_), test::kAllocatedPath, request);
  ASSERT_TRUE(reading.Read().has_value());
  ASSERT_TRUE(stalled.Read().has_value());
  EXPECT_EQ(service_->open_streams(), 2u);
  std::thread shutdown([&] { service_->Shutdown(std::chrono::milliseconds(50)); });
  while (reading.Read().has_value()) continue;
  EXPECT_EQ(reading.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  shutdown.join();
  EXPECT_EQ(service_->open_streams(), 0u);
  while (stalled.Read().has_value()) continue;
  EXPECT_FALSE(stalled.Finish().ok());
  test::RawCall late(test::Connect(address_), test::kAllocatedPath, request);
  EXPECT_FALSE(late.Read().has_value());
  EXPECT_EQ(late.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(Embedded, StreamsAreLimited) {
  ServiceOptions options;
  options.stream.max_streams = 1;
  Start(options);
  const std::string request = test::Ask{.snapshot = "endless"}.bytes();
  test::RawCall one(test::Connect(address_), test::kAllocatedPath, request);
  ASSERT_TRUE(one.Read().has_value());
  test::RawCall two(test::Connect(address_), test::kAllocatedPath, request);
  EXPECT_FALSE(two.Read().has_value());
  EXPECT_EQ(two.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// Why streams ended, in order.
class Ends final : public StreamObserver {
 public:
  void OnOpen(const StreamKind&) noexcept override {}
  void OnClose(const StreamReport& report) noexcept override {
    const std::lock_guard<std::mutex> lock(mutex_);
    reports_.push_back(report);
    changed_.notify_all();
  }
  StreamReport Wait(size_t index) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return reports_.size() > index; });
    return reports_[index];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<StreamReport> reports_;
};

TEST_F(Embedded, CompleteStreamsAreProvenAndCounted) {
  Ends ends;
  Start({.telemetry = {.observer = &ends}});
  ASSERT_OK_AND_ASSIGN(const auto cursor, Open("s"));
  ASSERT_OK(test::Drain(*cursor));
  EXPECT_EQ(cursor->completeness(), Completeness::kProven);
  const StreamReport report = ends.Wait(0);
  EXPECT_EQ(report.reason, EndReason::kCompleted);
  EXPECT_EQ(report.tuples, 2u);
  Stop();
}

TEST_F(Embedded, CancelledStreamsEnd) {
  Ends ends;
  Start({.telemetry = {.observer = &ends}});
  {
    test::RawCall call(test::Connect(address_), test::kAllocatedPath,
                       test::Ask{.snapshot = "endless"}.bytes());
    ASSERT_TRUE(call.Read().has_value());
    EXPECT_EQ(service_->open_streams(), 1u);
    call.Cancel();
  }
  EXPECT_EQ(ends.Wait(0).reason, EndReason::kClient);
  Stop();
  EXPECT_EQ(service_->open_streams(), 0u);
}

// An asynchronous service from generated code, with its own queue.
class AsyncOther final : public grpc::Service {
 public:
  AsyncOther() {
    AddMethod(new grpc::internal::RpcServiceMethod("/a/Ask", grpc::internal::RpcMethod::NORMAL_RPC,
                                                   nullptr));
    MarkMethodAsync(0);
  }
  // Answers one call with its own request.
  void Serve(grpc::ServerCompletionQueue& queue) {
    grpc::ServerContext context;
    grpc::ByteBuffer message;
    grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> writer(&context);
    RequestAsyncUnary(0, &context, &message, &writer, &queue, &queue, this);
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
    writer.Finish(message, grpc::Status::OK, this);
    ASSERT_TRUE(queue.Next(&tag, &ok) && ok);
  }
};

TEST_F(Embedded, ServesBesideAnAsynchronousService) {
  service_ = test::ValueOf(GrpcService::Create(provider_, {}));
  AsyncOther other;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
  builder.RegisterService(&other);
  builder.RegisterService(service_.get());
  const std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
  server_ = builder.BuildAndStart();
  ASSERT_NE(server_, nullptr);
  std::thread serving([&] { other.Serve(*queue); });
  test::RawCall call(test::Connect(address_), "/a/Ask", "question");
  EXPECT_EQ(call.Read(), "question");
  EXPECT_TRUE(call.Finish().ok());
  serving.join();
  ASSERT_OK_AND_ASSIGN(const auto cursor, Open("s"));
  EXPECT_OK(test::Drain(*cursor));
  Stop();
  queue->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) continue;
}

TEST_F(Embedded, OptionsOutOfRangeAreNamed) {
  ServiceOptions options;
  options.stream.message_bytes = 1;
  const absl::Status status = GrpcService::Create(provider_, options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("message_bytes"));
}

TEST(GrpcConvert, RefersToLargePiecesAndFreesThem) {
  const absl::Cord message = InPieces(2, 10'000);
  const auto used = std::make_shared<std::string>(20'000, 'x');
  {
    const absl::Cord one = absl::MakeCordFromExternal(*used, [used](absl::string_view) {});
    const grpc::ByteBuffer buffer = ToByteBuffer(one);
    const absl::Cord back = ToCord(buffer);
    const auto flat = back.TryFlat();
    ASSERT_TRUE(flat.has_value());
    EXPECT_EQ(flat->data(), used->data());
    EXPECT_EQ(used.use_count(), 2);
  }
  EXPECT_EQ(used.use_count(), 1);
  const absl::Cord back = ToCord(ToByteBuffer(message));
  EXPECT_EQ(back, message);
  std::vector<const char*> before;
  for (const absl::string_view piece : message.Chunks()) before.push_back(piece.data());
  std::vector<const char*> after;
  for (const absl::string_view piece : back.Chunks()) after.push_back(piece.data());
  EXPECT_EQ(before, after);
}

}  // namespace service_test
}  // namespace cbt::rpc
