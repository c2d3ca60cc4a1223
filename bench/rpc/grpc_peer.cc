#include "bench/rpc/grpc_peer.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cbt/batch.h"
#include "csi.grpc.pb.h"
#include "tests/rpc/support/raw_service.h"

namespace cbt::bench {
namespace {

using Request = csi::v1::GetMetadataAllocatedRequest;
using Response = csi::v1::GetMetadataAllocatedResponse;

class GeneratedService final : public csi::v1::SnapshotMetadata::Service {
 public:
  explicit GeneratedService(bool blocks) : blocks_(blocks) {}

  grpc::Status GetMetadataAllocated(grpc::ServerContext*, const Request* request,
                                    grpc::ServerWriter<Response>* writer) override {
    const std::unique_ptr<ExtentCursor> cursor = OpenVolume(blocks_);
    const int most = request->max_results() == 0 ? 8192 : request->max_results();
    ExtentBatch batch;
    Response response;
    const auto begin = [&] {
      response.Clear();
      response.set_block_metadata_type(blocks_ ? csi::v1::FIXED_LENGTH : csi::v1::VARIABLE_LENGTH);
      response.set_volume_capacity_bytes(static_cast<int64_t>(kCapacity));
    };
    begin();
    for (;;) {
      const auto step = cursor->Next(batch);
      Check(step.ok(), "the cursor failed");
      for (size_t i = 0; i < batch.size(); ++i) {
        auto* const tuple = response.add_block_metadata();
        tuple->set_byte_offset(static_cast<int64_t>(batch[i].offset));
        tuple->set_size_bytes(static_cast<int64_t>(batch[i].length));
        if (response.block_metadata_size() == most) {
          if (!writer->Write(response)) return grpc::Status::CANCELLED;
          begin();
        }
      }
      if (*step == Step::kComplete) break;
    }
    if (response.block_metadata_size() > 0) writer->Write(response);
    return grpc::Status::OK;
  }

 private:
  const bool blocks_;
};

// A straightforward sidecar: one stream to the plugin, one to the client.
class GeneratedRelay final : public csi::v1::SnapshotMetadata::Service {
 public:
  explicit GeneratedRelay(const std::shared_ptr<grpc::Channel>& plugin)
      : plugin_(csi::v1::SnapshotMetadata::NewStub(plugin)) {}

  grpc::Status GetMetadataAllocated(grpc::ServerContext*, const Request* request,
                                    grpc::ServerWriter<Response>* writer) override {
    grpc::ClientContext context;
    const auto reader = plugin_->GetMetadataAllocated(&context, *request);
    Response message;
    Response copy;
    int64_t end = 0;
    while (reader->Read(&message)) {
      copy.Clear();
      copy.set_block_metadata_type(message.block_metadata_type());
      copy.set_volume_capacity_bytes(message.volume_capacity_bytes());
      for (const auto& tuple : message.block_metadata()) {
        if (tuple.byte_offset() < end || tuple.size_bytes() <= 0) return grpc::Status::CANCELLED;
        end = tuple.byte_offset() + tuple.size_bytes();
        auto* const out = copy.add_block_metadata();
        out->set_byte_offset(tuple.byte_offset());
        out->set_size_bytes(tuple.size_bytes());
      }
      if (!writer->Write(copy)) return grpc::Status::CANCELLED;
    }
    return reader->Finish();
  }

 private:
  const std::unique_ptr<csi::v1::SnapshotMetadata::Stub> plugin_;
};

// Sends `count` messages, repeating the given ones.
class CeilingService final : public test::RawService {
 public:
  CeilingService(const Messages& messages, size_t count) {
    messages_.reserve(messages.encoded.size());
    for (const std::string& message : messages.encoded) {
      const grpc::Slice slice(message.data(), message.size(), grpc::Slice::STATIC_SLICE);
      messages_.emplace_back(&slice, 1);
    }
    AddStream(kPath, [this, count](grpc::CallbackServerContext*, const grpc::ByteBuffer*) {
      return new Reactor(messages_, count);
    });
  }

 private:
  class Reactor final : public WriteReactor {
   public:
    Reactor(const std::vector<grpc::ByteBuffer>& messages, size_t count)
        : messages_(messages), left_(count) {
      OnWriteDone(true);
    }
    void OnWriteDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      if (left_ == 0) return Finish(grpc::Status::OK);
      --left_;
      current_ = messages_[next_];
      next_ = next_ + 1 == messages_.size() ? 0 : next_ + 1;
      StartWrite(&current_);
    }
    void OnDone() override { delete this; }

   private:
    const std::vector<grpc::ByteBuffer>& messages_;
    size_t left_;
    size_t next_ = 0;
    grpc::ByteBuffer current_;
  };

  std::vector<grpc::ByteBuffer> messages_;
};

// A server of a generic gRPC service, and its address.
struct Host {
  Host(grpc::Service& service, Path on) : path(on), address(Listen(on)) {
    grpc::ServerBuilder builder;
    int port = 0;
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (IsTls(path)) {
      const rpc::TlsOptions tls = ServerTls(path);
      grpc::SslServerCredentialsOptions options;
      options.pem_key_cert_pairs.push_back({tls.private_key, tls.certificate});
      credentials = grpc::SslServerCredentials(options);
    }
    const bool tcp = !address.starts_with("unix://");
    builder.AddListeningPort(tcp ? address : "unix:" + address.substr(7), credentials, &port);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    Check(server != nullptr, "no server");
    if (tcp) address = "127.0.0.1:" + std::to_string(port);
  }
  ~Host() { server->Shutdown(std::chrono::system_clock::now()); }

  // With its own connection.
  std::shared_ptr<grpc::Channel> Channel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
    if (IsTls(path)) {
      arguments.SetSslTargetNameOverride("localhost");
      grpc::SslCredentialsOptions options;
      options.pem_root_certs = ClientTls(path).ca;
      credentials = grpc::SslCredentials(options);
    }
    return grpc::CreateCustomChannel(address, credentials, arguments);
  }

  const Path path;
  std::string address;
  std::unique_ptr<grpc::Server> server;
};

// A call whose messages are dropped on arrival.
class RawCall {
 public:
  explicit RawCall(const std::shared_ptr<grpc::Channel>& channel)
      : call_(grpc::GenericStub(channel).PrepareCall(&context_, kPath, &queue_)) {
    call_->StartCall(&context_);
    Wait();
    call_->WriteLast(grpc::ByteBuffer(), grpc::WriteOptions(), &context_);
    Wait();
  }
  ~RawCall() {
    queue_.Shutdown();
    while (queue_.Next(&tag_, &ok_)) continue;
  }
  RawCall(const RawCall&) = delete;
  RawCall& operator=(const RawCall&) = delete;

  // The length of the next message; 0 at the end.
  size_t Read() {
    call_->Read(&message_, &context_);
    if (!Wait()) return 0;
    const size_t bytes = message_.Length();
    message_.Clear();
    return bytes;
  }

  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, &context_);
    Wait();
    return status;
  }

  void Cancel() { context_.TryCancel(); }

 private:
  bool Wait() { return queue_.Next(&tag_, &ok_) && ok_; }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  void* tag_ = nullptr;
  bool ok_ = false;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer message_;
};

void RunGenerated(benchmark::State& state, const Host& host, bool blocks, uint32_t max_results) {
  const uint64_t expected = TuplesOf(blocks, max_results);
  const auto stub = csi::v1::SnapshotMetadata::NewStub(host.Channel());
  const CpuClock clock;
  for (auto _ : state) {
    grpc::ClientContext context;
    Request request;
    request.set_snapshot_id("snapshot");
    request.set_max_results(static_cast<int32_t>(max_results));
    const auto reader = stub->GetMetadataAllocated(&context, request);
    Response response;
    uint64_t tuples = 0;
    int64_t end = 0;
    while (reader->Read(&response)) {
      for (const auto& tuple : response.block_metadata()) {
        Check(tuple.byte_offset() >= end && tuple.size_bytes() > 0, "out of order");
        end = tuple.byte_offset() + tuple.size_bytes();
      }
      tuples += static_cast<uint64_t>(response.block_metadata_size());
    }
    Check(reader->Finish().ok(), "the stream failed");
    Check(tuples == expected, "tuples are missing");
  }
  clock.Report(state, expected);
}

}  // namespace

void Generated(benchmark::State& state, bool blocks, Path path, uint32_t max_results) {
  GeneratedService service(blocks);
  const Host host(service, path);
  RunGenerated(state, host, blocks, max_results);
}

void RelayedGenerated(benchmark::State& state, bool blocks, Path path, uint32_t max_results) {
  GeneratedService service(blocks);
  const Host plugin(service, Path::kUnix);
  GeneratedRelay relay(plugin.Channel());
  const Host host(relay, path);
  RunGenerated(state, host, blocks, max_results);
}

void Ceiling(benchmark::State& state, bool blocks, Path path, uint32_t max_results) {
  const Messages messages = EncodeVolume(blocks, max_results);
  CeilingService service(messages, messages.encoded.size());
  const Host host(service, path);
  const auto channel = host.Channel();
  const CpuClock clock;
  for (auto _ : state) {
    RawCall call(channel);
    uint64_t bytes = 0;
    while (const size_t length = call.Read()) bytes += length;
    Check(call.Finish().ok() && bytes == messages.bytes, "the stream failed");
  }
  clock.Report(state, messages.tuples);
}

void TransportCeiling(benchmark::State& state, Path path, const Messages& messages, size_t count) {
  CeilingService service(messages, count);
  const Host host(service, path);
  const auto channel = host.Channel();
  const CpuClock clock;
  for (auto _ : state) {
    RawCall call(channel);
    size_t came = 0;
    while (call.Read() != 0) ++came;
    Check(call.Finish().ok() && came == count, "the stream failed");
  }
  clock.Report(state, messages.tuples / messages.encoded.size() * count);
}

void FirstCeiling(benchmark::State& state, Path path, const Messages& messages) {
  CeilingService service(messages, messages.encoded.size());
  const Host host(service, path);
  const CpuClock clock;
  for (auto _ : state) {
    RawCall call(host.Channel());
    Check(call.Read() != 0, "no message");
    call.Cancel();
    call.Finish();
  }
  clock.Report(state, 1);
}

}  // namespace cbt::bench
