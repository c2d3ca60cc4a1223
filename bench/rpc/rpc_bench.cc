// rpc/<style>-<transport>/<max_results>/<impl>: a stream of 20 M tuples from a pair of bitmaps to a
// client that decodes and checks them, both ends in this process. max_results 0 leaves the size of
// messages to the server.
//
//   cbt        diff, encode, gRPC, decode and check
//   generated  the straightforward way: message objects of libprotobuf on a synchronous server and
//              client; the tuples come from the same diff
//   ceiling    the same messages, encoded beforehand, and dropped by the receiver: what gRPC can do
//
// relay/<style>-<transport>/<max_results>/<impl>: the same with a relay between server and client.
//
//   cbt        our server, relay and client, every tuple checked on the way
//   unchecked  tuples forwarded unchecked; the client leaves max_results to the server, because a
//              limit has to be checked
//   generated  the straightforward server and client, and between them a sidecar that decodes each
//              message, checks it, copies its tuples into another and encodes that
//
// first/64TiB/<changed>/cbt: the time to the first message of a delta of 64 TiB in blocks of 64
// KiB.
//
// Items are tuples.
#include <benchmark/benchmark.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/bitmaps.h"
#include "cbt/bitmap.h"
#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "cbt/transform.h"
#include "csi.grpc.pb.h"
#include "rpc/grpc/convert.h"
#include "rpc/transport/message_builder.h"
#include "tests/rpc/support/raw_service.h"

namespace cbt::bench {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr size_t kWords = (size_t{64} << 20) / 8;
constexpr uint64_t kCapacity = uint64_t{kWords} * 64 * kBlock;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "rpc_bench: %s\n", what);
  std::abort();
}

// Two bitmaps of 64 MiB that differ in about 4 % of their bits.
class Volume {
 public:
  static const Volume& Instance() {
    static const Volume volume;
    return volume;
  }

  std::unique_ptr<ExtentCursor> Open(bool blocks) const {
    const auto view = [](const std::vector<uint64_t>& words) {
      return *BitmapView::Create({reinterpret_cast<const uint8_t*>(words.data()), words.size() * 8},
                                 0, words.size() * 64);
    };
    auto cursor = MakeBitmapCursor(view(base_), view(target_), BitmapOp::kXor, kCapacity, kBlock);
    Check(cursor.ok(), "no cursor");
    return blocks ? *ToBlocks(*std::move(cursor), kBlock) : *std::move(cursor);
  }

 private:
  Volume() : base_(kWords), target_(Differences({"", 0.041, 0}, kWords)) {
    std::mt19937_64 random(7);
    for (size_t i = 0; i < kWords; ++i) target_[i] ^= base_[i] = random();
  }

  std::vector<uint64_t> base_;
  std::vector<uint64_t> target_;
};

class Provider final : public SnapshotProvider {
 public:
  explicit Provider(bool blocks) : blocks_(blocks) {}
  absl::StatusOr<MetadataSource> OpenAllocated(std::string_view, const StreamContext&) override {
    return MetadataSource{
        .cursor = Volume::Instance().Open(false),
        .type = blocks_ ? BlockMetadataType::kFixedLength : BlockMetadataType::kVariableLength,
        .block_size = kBlock};
  }
  absl::StatusOr<MetadataSource> OpenDelta(std::string_view, std::string_view id,
                                           const StreamContext& context) override {
    return OpenAllocated(id, context);
  }

 private:
  const bool blocks_;
};

// --- the straightforward way ---------------------------------------------------------------------

using Request = csi::v1::GetMetadataAllocatedRequest;
using Response = csi::v1::GetMetadataAllocatedResponse;

class GeneratedService final : public csi::v1::SnapshotMetadata::Service {
 public:
  explicit GeneratedService(bool blocks) : blocks_(blocks) {}

  grpc::Status GetMetadataAllocated(grpc::ServerContext*, const Request* request,
                                    grpc::ServerWriter<Response>* writer) override {
    const std::unique_ptr<ExtentCursor> cursor = Volume::Instance().Open(blocks_);
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

// --- the ceiling ---------------------------------------------------------------------------------

class CeilingService final : public test::RawService {
 public:
  CeilingService(bool blocks, uint32_t max_results) {
    const std::unique_ptr<ExtentCursor> cursor = Volume::Instance().Open(blocks);
    rpc::MessageBuilder builder(
        rpc::SlicePool::Create(rpc::StreamOptions().message_bytes, 0),
        blocks ? BlockMetadataType::kFixedLength : BlockMetadataType::kVariableLength, kCapacity,
        max_results, rpc::StreamOptions().message_bytes);
    ExtentBatch batch;
    for (;;) {
      const auto step = cursor->Next(batch);
      Check(step.ok(), "the cursor failed");
      for (size_t at = 0; at < batch.size();) {
        at += builder.Append(batch.offsets().subspan(at), batch.lengths().subspan(at));
        if (builder.full()) Add(builder.Take());
      }
      tuples_ += batch.size();
      if (*step == Step::kComplete) break;
    }
    Add(builder.Take());
    AddStream(kPath, [this](grpc::CallbackServerContext*, const grpc::ByteBuffer*) {
      return new Reactor(messages_);
    });
  }

  static constexpr char kPath[] = "/csi.v1.SnapshotMetadata/GetMetadataAllocated";
  uint64_t tuples() const { return tuples_; }
  uint64_t bytes() const { return bytes_; }

 private:
  class Reactor final : public WriteReactor {
   public:
    explicit Reactor(const std::vector<grpc::ByteBuffer>& messages) : messages_(messages) {
      OnWriteDone(true);
    }
    void OnWriteDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::CANCELLED);
      if (next_ == messages_.size()) return Finish(grpc::Status::OK);
      current_ = messages_[next_++];
      StartWrite(&current_);
    }
    void OnDone() override { delete this; }

   private:
    const std::vector<grpc::ByteBuffer>& messages_;
    size_t next_ = 0;
    grpc::ByteBuffer current_;
  };

  void Add(const absl::Cord& message) {
    bytes_ += message.size();
    messages_.push_back(rpc::ToByteBuffer(message));
  }

  std::vector<grpc::ByteBuffer> messages_;
  uint64_t tuples_ = 0;
  uint64_t bytes_ = 0;
};

// --- both ends -----------------------------------------------------------------------------------

std::string Address(const char* name, bool tcp) {
  return tcp ? "127.0.0.1:0"
             : "unix:///tmp/cbt-bench-" + std::to_string(getpid()) + "-" + name + ".sock";
}

// A server of a generic gRPC service, and where it listens.
struct Host {
  Host(grpc::Service& service, const char* name, bool tcp) : address(Address(name, tcp)) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(tcp ? address : "unix:" + address.substr(7),
                             grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    server = builder.BuildAndStart();
    Check(server != nullptr, "no server");
    if (tcp) address = "127.0.0.1:" + std::to_string(port);
  }
  ~Host() { server->Shutdown(std::chrono::system_clock::now()); }

  std::shared_ptr<grpc::Channel> Channel() const {
    return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
  }

  std::string address;
  std::unique_ptr<grpc::Server> server;
};

// What a stream holds; the same for all impls.
std::pair<uint64_t, uint64_t> Size(bool blocks, uint32_t max_results) {
  static std::map<std::pair<bool, uint32_t>, std::pair<uint64_t, uint64_t>> sizes;
  auto& size = sizes[{blocks, max_results}];
  if (size.first == 0) {
    const CeilingService service(blocks, max_results);
    size = {service.tuples(), service.bytes()};
  }
  return size;
}

void Report(benchmark::State& state, bool blocks, uint32_t max_results) {
  const uint64_t tuples = Size(blocks, max_results).first;
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(tuples));
}

void OurClient(benchmark::State& state, const std::string& address, bool blocks,
               uint32_t max_results) {
  // Before timing starts.
  const uint64_t expected = Size(blocks, max_results).first;
  ExtentBatch batch;
  for (auto _ : state) {
    rpc::ListRequest request;
    request.address = address;
    request.snapshot_id = "snapshot";
    request.max_results = static_cast<int32_t>(max_results);
    const auto cursor = rpc::RemoteCursor::Open(request);
    Check(cursor.ok(), "no stream");
    uint64_t tuples = 0;
    for (;;) {
      const auto step = (*cursor)->Next(batch);
      Check(step.ok(), "the stream failed");
      tuples += batch.size();
      benchmark::DoNotOptimize(batch.offsets().data());
      if (*step == Step::kComplete) break;
    }
    Check(tuples == expected, "tuples are missing");
    Check((*cursor)->completeness() == rpc::Completeness::kProven, "not proven");
  }
  Report(state, blocks, max_results);
}

void Cbt(benchmark::State& state, bool blocks, bool tcp, uint32_t max_results) {
  Provider provider(blocks);
  rpc::ServerOptions options;
  options.listen = Address("cbt", tcp);
  const auto server = rpc::Server::Start(provider, options);
  Check(server.ok(), "no server");
  OurClient(state, (*server)->address(), blocks, max_results);
}

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

void Relayed(benchmark::State& state, bool blocks, bool tcp, uint32_t max_results, bool check) {
  Provider provider(blocks);
  rpc::ServerOptions options;
  options.listen = Address("plugin", false);
  const auto server = rpc::Server::Start(provider, options);
  Check(server.ok(), "no server");
  rpc::RelayOptions relay_options;
  relay_options.listen = Address("relay", tcp);
  relay_options.plugin = (*server)->address();
  relay_options.apis = {rpc::Api::kCsi};
  relay_options.check_tuples = check;
  const auto relay = rpc::Relay::Start(relay_options);
  Check(relay.ok(), "no relay");
  OurClient(state, (*relay)->address(), blocks, check ? max_results : 0);
}

void RelayedCbt(benchmark::State& state, bool blocks, bool tcp, uint32_t max_results) {
  Relayed(state, blocks, tcp, max_results, true);
}
void RelayedUnchecked(benchmark::State& state, bool blocks, bool tcp, uint32_t max_results) {
  Relayed(state, blocks, tcp, max_results, false);
}

void RunGenerated(benchmark::State& state, const Host& host, bool blocks, uint32_t max_results) {
  const uint64_t expected = Size(blocks, max_results).first;
  const auto stub = csi::v1::SnapshotMetadata::NewStub(host.Channel());
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
  Report(state, blocks, max_results);
}

void Generated(benchmark::State& state, bool blocks, bool tcp, uint32_t max_results) {
  GeneratedService service(blocks);
  const Host host(service, "peer", tcp);
  RunGenerated(state, host, blocks, max_results);
}

void RelayedGenerated(benchmark::State& state, bool blocks, bool tcp, uint32_t max_results) {
  GeneratedService service(blocks);
  const Host plugin(service, "plugin", false);
  GeneratedRelay relay(plugin.Channel());
  const Host host(relay, "peer", tcp);
  RunGenerated(state, host, blocks, max_results);
}

void Ceiling(benchmark::State& state, bool blocks, bool tcp, uint32_t max_results) {
  CeilingService service(blocks, max_results);
  const Host host(service, "peer", tcp);
  const auto channel = host.Channel();
  for (auto _ : state) {
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    void* tag = nullptr;
    bool ok = false;
    const auto wait = [&] { return queue.Next(&tag, &ok) && ok; };
    const auto call =
        grpc::GenericStub(channel).PrepareCall(&context, CeilingService::kPath, &queue);
    call->StartCall(&context);
    wait();
    call->WriteLast(grpc::ByteBuffer(), grpc::WriteOptions(), &context);
    wait();
    uint64_t bytes = 0;
    grpc::ByteBuffer message;
    for (;;) {
      call->Read(&message, &context);
      if (!wait()) break;
      bytes += message.Length();
      message.Clear();
    }
    grpc::Status status;
    call->Finish(&status, &context);
    wait();
    queue.Shutdown();
    while (queue.Next(&tag, &ok)) continue;
    Check(status.ok() && bytes == service.bytes(), "the stream failed");
  }
  Report(state, blocks, max_results);
}

// Opens a delta of 64 TiB and takes its first batch. Scattered changes are one block in a million;
// a fully changed volume is reported as blocks, so that there is more than one tuple.
void First(benchmark::State& state, bool scattered) {
  constexpr uint64_t kLarge = uint64_t{64} << 40;
  constexpr uint64_t kLargeBlock = 64 << 10;
  constexpr uint64_t kBits = kLarge / kLargeBlock;
  class Large final : public SnapshotProvider {
   public:
    explicit Large(bool scattered) : bits_(kBits / 64, scattered ? 0 : ~uint64_t{0}) {
      for (uint64_t bit = 999'999; scattered && bit < kBits; bit += 1'000'000) {
        bits_[bit / 64] |= uint64_t{1} << (bit % 64);
      }
      scattered_ = scattered;
    }
    absl::StatusOr<MetadataSource> OpenAllocated(std::string_view, const StreamContext&) override {
      auto cursor = MakeBitmapCursor(
          *BitmapView::Create({reinterpret_cast<const uint8_t*>(bits_.data()), bits_.size() * 8}, 0,
                              kBits),
          kLarge, kLargeBlock);
      if (!cursor.ok()) return cursor.status();
      return MetadataSource{
          .cursor = *std::move(cursor),
          .type = scattered_ ? BlockMetadataType::kVariableLength : BlockMetadataType::kFixedLength,
          .block_size = kLargeBlock};
    }
    absl::StatusOr<MetadataSource> OpenDelta(std::string_view, std::string_view id,
                                             const StreamContext& context) override {
      return OpenAllocated(id, context);
    }

   private:
    std::vector<uint64_t> bits_;
    bool scattered_;
  };
  Large provider(scattered);
  rpc::ServerOptions options;
  options.listen = Address("first", false);
  const auto server = rpc::Server::Start(provider, options);
  Check(server.ok(), "no server");
  ExtentBatch batch;
  for (auto _ : state) {
    rpc::ListRequest request;
    request.address = (*server)->address();
    request.snapshot_id = "snapshot";
    request.base_snapshot_id = "base";
    request.max_results = 256;
    const auto cursor = rpc::RemoteCursor::Open(request);
    Check(cursor.ok() && (*cursor)->Next(batch).ok() && !batch.empty(), "no stream");
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
}

const bool registered = [] {
  struct Impl {
    const char* name;
    void (*run)(benchmark::State&, bool, bool, uint32_t);
  };
  const auto add = [](const std::string& name, void (*run)(benchmark::State&, bool, bool, uint32_t),
                      bool blocks, bool tcp, uint32_t max_results) {
    benchmark::RegisterBenchmark(
        name.c_str(), [=](benchmark::State& state) { run(state, blocks, tcp, max_results); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  };
  const auto place = [](bool blocks, bool tcp, uint32_t max_results) {
    return std::string(blocks ? "blocks-" : "extents-") + (tcp ? "tcp/" : "unix/") +
           std::to_string(max_results) + "/";
  };
  for (const bool blocks : {false, true}) {
    for (const bool tcp : {false, true}) {
      for (const uint32_t max_results : {256u, 8192u, 65536u}) {
        for (const Impl& impl :
             {Impl{"cbt", Cbt}, Impl{"generated", Generated}, Impl{"ceiling", Ceiling}}) {
          add("rpc/" + place(blocks, tcp, max_results) + impl.name, impl.run, blocks, tcp,
              max_results);
        }
      }
    }
    for (const Impl& impl : {Impl{"cbt", RelayedCbt}, Impl{"unchecked", RelayedUnchecked},
                             Impl{"generated", RelayedGenerated}}) {
      add("relay/" + place(blocks, false, 8192) + impl.name, impl.run, blocks, false, 8192);
    }
  }
  for (const char* changed : {"scattered", "full"}) {
    benchmark::RegisterBenchmark((std::string("first/64TiB/") + changed + "/cbt").c_str(),
                                 [scattered = std::string(changed) == "scattered"](
                                     benchmark::State& state) { First(state, scattered); })
        ->UseRealTime();
  }
  return true;
}();

}  // namespace
}  // namespace cbt::bench
