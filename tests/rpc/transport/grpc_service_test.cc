// Services and calls on gRPC: nothing is lost, copied or made to look like something else.
#include "rpc/transport/grpc_service.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "rpc/contract/status.h"
#include "rpc/support/raw_call.h"
#include "rpc/transport/grpc_channel.h"
#include "rpc/transport/grpc_convert.h"
#include "support/status.h"
#include "support/temp_dir.h"

namespace cbt::rpc {
namespace {

using absl::StatusCode;

const absl::Status kLong = absl::NotFoundError(std::string(5000, 'x'));

// What a call gets: messages, each as soon as the one before it is gone, then OK.
class Sender final : public CallHandler {
 public:
  Sender(ServerCall& call, std::vector<absl::Cord> messages, bool hasty)
      : call_(call), messages_(std::move(messages)), hasty_(hasty) {
    call_.StartRead();
  }
  void OnReadDone(bool ok, absl::Cord) override {
    if (!ok) return call_.Finish(absl::AbortedError("no request"));
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

// A message in several pieces of `bytes` each.
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
    AddMethod("/s/Forgets",
              [](ServerCall&) -> absl::StatusOr<CallHandler*> { throw std::bad_alloc(); });
    AddMethod("/s/Forgets2", [](ServerCall& call) -> absl::StatusOr<CallHandler*> {
      call.StartRead();
      throw std::bad_alloc();
    });
    AddMethod("/s/Refuses", [](ServerCall&) { return kLong; });
    AddMethod("/s/Sends", [](ServerCall& call) { return new Sender(call, Messages(), false); });
    AddMethod("/s/Hastes", [](ServerCall& call) { return new Sender(call, Messages(), true); });
  }
};

// Everything that a call brings.
class End final : public ClientCallHandler {
 public:
  bool OnMessage(absl::Cord message) override {
    messages.push_back(std::string(message));
    return true;
  }
  void OnEnd(const absl::Status& status) override { ended.set_value(status); }

  std::vector<std::string> messages;
  std::promise<absl::Status> ended;
};

class GrpcServiceTest : public testing::Test {
 protected:
  GrpcServiceTest() {
    grpc::ServerBuilder builder;
    // Compressed messages arrive as they are.
    builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&exposed_);
    server_ = builder.BuildAndStart();
  }
  ~GrpcServiceTest() override { server_->Shutdown(); }

  absl::Status Ask(const std::string& path, End& end) {
    const auto call = channel_.NewCall(std::chrono::system_clock::now() + std::chrono::minutes(1));
    call->Start(path, "request", end);
    return end.ended.get_future().get();
  }

  const test::TempDir dir_;
  const std::string address_ = "unix:" + (dir_ / "s");
  const Services services_;
  GrpcService exposed_{services_};
  std::unique_ptr<grpc::Server> server_;
  GrpcChannel channel_{grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()),
                       GrpcChannel::Release::kAtOnce};
};

// UNIMPLEMENTED would send clients to a lower tier.
TEST_F(GrpcServiceTest, HandlersWithoutMemoryAreNotUnimplemented) {
  for (const char* path : {"/s/Forgets", "/s/Forgets2"}) {
    End end;
    EXPECT_EQ(Ask(path, end).code(), StatusCode::kResourceExhausted) << path;
  }
}

TEST_F(GrpcServiceTest, RefusalsArriveWithTheirTextCut) {
  End end;
  EXPECT_EQ(Ask("/s/Refuses", end), absl::NotFoundError(std::string(kMaxStatusText, 'x')));
}

TEST_F(GrpcServiceTest, UnknownMethodsAreUnimplemented) {
  End end;
  EXPECT_EQ(Ask("/s/None", end).code(), StatusCode::kUnimplemented);
}

TEST_F(GrpcServiceTest, MessagesArriveAsTheyAre) {
  std::vector<std::string> expected;
  for (const absl::Cord& message : Messages()) expected.emplace_back(message);
  End end;
  ASSERT_OK(Ask("/s/Sends", end));
  EXPECT_EQ(end.messages, expected);
  // The status waits for the message before it.
  End hasty;
  EXPECT_EQ(Ask("/s/Hastes", hasty), absl::NotFoundError(std::string(kMaxStatusText, 'x')));
  EXPECT_EQ(hasty.messages, expected);
}

TEST_F(GrpcServiceTest, CompressedRequestsAreUnimplemented) {
  grpc::ChannelArguments arguments;
  arguments.SetCompressionAlgorithm(GRPC_COMPRESS_GZIP);
  const auto channel =
      grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments);
  test::RawCall call(channel, "/s/Sends", std::string(3000, 'x'));
  EXPECT_FALSE(call.Read().has_value());
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(GrpcServiceTest, AConnectionIsThereOrItsErrorSaysWhy) {
  const auto until = [] { return std::chrono::system_clock::now() + std::chrono::minutes(1); };
  EXPECT_OK(channel_.Connect(until()));
  GrpcChannel nowhere(
      grpc::CreateChannel("unix:" + (dir_ / "none"), grpc::InsecureChannelCredentials()),
      GrpcChannel::Release::kAtOnce);
  const absl::Status status = nowhere.Connect(until());
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("No such file"));
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

}  // namespace
}  // namespace cbt::rpc
