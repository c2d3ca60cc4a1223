// A server that sends whatever bytes a test wants.
#ifndef CBT_TESTS_RPC_SUPPORT_FAKE_SERVER_H_
#define CBT_TESTS_RPC_SUPPORT_FAKE_SERVER_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <concepts>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "csi.pb.h"
#include "rpc/contract/metadata.h"
#include "tests/reference/volume.h"
#include "tests/rpc/support/raw_call.h"
#include "tests/rpc/support/raw_service.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {

// The answer to one call: messages, then a status, or silence after the messages.
struct Script {
  std::vector<std::string> messages = {};
  grpc::Status status = grpc::Status::OK;
  bool hang = false;
  rpc::Metadata initial = {};
  rpc::Metadata trailing = {};
};

inline std::string Message(csi::v1::BlockMetadataType type, uint64_t capacity,
                           const reference::Ranges& tuples) {
  Response message;
  message.set_block_metadata_type(type);
  message.set_volume_capacity_bytes(static_cast<int64_t>(capacity));
  for (const auto& [offset, length] : tuples) {
    auto* tuple = message.add_block_metadata();
    tuple->set_byte_offset(static_cast<int64_t>(offset));
    tuple->set_size_bytes(static_cast<int64_t>(length));
  }
  return message.SerializeAsString();
}

inline std::string Variable(uint64_t capacity, const reference::Ranges& tuples) {
  return Message(csi::v1::VARIABLE_LENGTH, capacity, tuples);
}

inline std::string Fixed(uint64_t capacity, const reference::Ranges& tuples) {
  return Message(csi::v1::FIXED_LENGTH, capacity, tuples);
}

class FakeServer {
 public:
  using Request = csi::v1::GetMetadataAllocatedRequest;
  using Answer = std::function<Script(const Request&)>;

  // `answer` is anything an Answer can hold. A template, so that braces always mean a Script.
  template <std::invocable<const Request&> Function>
  explicit FakeServer(Function answer) : service_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + (dir_ / "s"), grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~FakeServer() { server_->Shutdown(std::chrono::system_clock::now()); }

  // Sends the same messages on every call.
  explicit FakeServer(Script script)
      : FakeServer([script = std::move(script)](const Request&) { return script; }) {}

  std::string address() const { return "unix://" + (dir_ / "s"); }
  int calls() const { return service_.calls; }

 private:
  class Reactor final : public RawService::WriteReactor {
   public:
    explicit Reactor(Script script) : script_(std::move(script)) { Step(); }
    void OnWriteDone(bool ok) override { ok ? Step() : End(grpc::Status::CANCELLED); }
    void OnCancel() override {
      if (script_.hang) End(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    void Step() {
      if (next_ < script_.messages.size()) {
        buffer_ = BufferOf(script_.messages[next_++]);
        StartWrite(&buffer_);
      } else if (!script_.hang) {
        End(script_.status);
      }
    }
    void End(const grpc::Status& status) {
      std::call_once(ended_, [&] { Finish(status); });
    }

    const Script script_;
    size_t next_ = 0;
    grpc::ByteBuffer buffer_;
    std::once_flag ended_;
  };

  class Service final : public RawService {
   public:
    explicit Service(Answer answer) {
      AddStream(kAllocatedPath,
                [this, answer](grpc::CallbackServerContext* context,
                               const grpc::ByteBuffer* bytes) -> WriteReactor* {
                  ++calls;
                  Request request;
                  request.ParseFromString(BytesOf(*bytes));
                  Script script = answer(request);
                  for (const auto& [key, value] : script.initial) {
                    context->AddInitialMetadata(key, value);
                  }
                  for (const auto& [key, value] : script.trailing) {
                    context->AddTrailingMetadata(key, value);
                  }
                  return new Reactor(std::move(script));
                });
    }
    std::atomic<int> calls = 0;
  };

  const TempDir dir_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_FAKE_SERVER_H_
