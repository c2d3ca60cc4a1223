// rpc/<style>-<transport>/<max_results>/<impl>: a stream of 20 M tuples from a pair of bitmaps to a
// client that decodes and checks them, both ends in this process. max_results 0 leaves the size of
// messages to the server.
//
//   cbt        diff, encode, transport, decode, check and prove
//   generated  the straightforward way: message objects of libprotobuf on a synchronous server and
//              client of the gRPC library; the tuples come from the same diff
//   ceiling    the same messages, encoded beforehand, and dropped by the receiver: what the gRPC
//              library can do
//   work       what `cbt` does with the tuples at both ends, in one thread and without a transport
//   plain      of rows with TLS: `cbt` without it
//
// transport/<transport>/<max_results>/<impl>: messages that are in memory, dropped by the receiver.
//
//   cbt        our server and client without services
//   ceiling    the gRPC library
//   socket     the same bytes through a socket, without a protocol: what the system allows
//
// relay/<style>-<transport>/<max_results>/<impl>: a stream with a relay between server and client.
//
//   cbt        our server, relay and client, every tuple checked on the way
//   unchecked  tuples forwarded unchecked; the client leaves max_results to the server, because a
//              limit has to be checked
//   direct     `cbt` without a relay
//   generated  the straightforward server and client, and between them a sidecar that decodes each
//              message, checks it, copies its tuples into another and encodes that
//
// first/64TiB/<changed>/cbt: the time to the first message of a delta of 64 TiB in blocks of 64
// KiB. first/<transport>/256/<impl>: the same of a stream of `rpc`; every stream has a connection
// of its own.
//
// Items are tuples. Counters: see CpuClock.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/rpc/grpc_peer.h"
#include "bench/rpc/parts.h"
#include "bench/rpc/transport_rows.h"
#include "cbt/bitmap.h"
#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "cbt/units.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/digest.h"
#include "cbt/wire/message.h"
#include "rpc/transport/message_builder.h"

namespace cbt::bench {
namespace {

rpc::ListRequest RequestTo(const std::string& address, Path path, uint32_t max_results) {
  rpc::ListRequest request;
  request.address = address;
  request.tls = ClientTls(path);
  request.snapshot_id = "snapshot";
  request.max_results = static_cast<int32_t>(max_results);
  return request;
}

void OurClient(benchmark::State& state, const std::string& address, bool blocks, Path path,
               uint32_t max_results) {
  // Before timing starts.
  const uint64_t expected = TuplesOf(blocks, max_results);
  const rpc::ListRequest request = RequestTo(address, path, max_results);
  ExtentBatch batch;
  const CpuClock clock;
  for (auto _ : state) {
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
  clock.Report(state, expected);
}

// The work of both ends on the tuples, in one thread and without a transport.
void Work(benchmark::State& state, bool blocks, Path, uint32_t max_results) {
  const uint64_t expected = TuplesOf(blocks, max_results);
  const BlockMetadataType type =
      blocks ? BlockMetadataType::kFixedLength : BlockMetadataType::kVariableLength;
  const size_t most_bytes = rpc::StreamOptions().message_bytes;
  ExtentBatch batch;
  ExtentBatch received;
  MetadataMessage message;
  const CpuClock clock;
  for (auto _ : state) {
    const std::unique_ptr<ExtentCursor> cursor = OpenVolume(blocks);
    rpc::MessageBuilder builder(rpc::SlicePool::Create(most_bytes, most_bytes), type, kCapacity,
                                max_results, most_bytes);
    StreamDigest sent;
    StreamDigest came;
    StreamChecker checker(0, max_results);
    const auto pass = [&] {
      const absl::Cord encoded = builder.Take();
      const absl::string_view bytes = *encoded.TryFlat();
      Check(DecodeMetadataMessage({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                                  message)
                    .ok() &&
                checker.Check(message).ok(),
            "not a message");
      const TupleList& tuples = message.tuples;
      came.Add(tuples.offsets(), tuples.lengths());
      for (size_t at = 0; at < tuples.size(); at += received.capacity()) {
        const size_t count = std::min(received.capacity(), tuples.size() - at);
        std::copy_n(tuples.offsets().data() + at, count, received.mutable_offsets());
        std::copy_n(tuples.lengths().data() + at, count, received.mutable_lengths());
        benchmark::DoNotOptimize(received.mutable_offsets());
      }
    };
    for (Step step = Step::kMore; step != Step::kComplete;) {
      step = *cursor->Next(batch);
      for (size_t at = 0; at < batch.size();) {
        const size_t done =
            builder.Append(batch.offsets().subspan(at), batch.lengths().subspan(at));
        sent.Add(batch.offsets().subspan(at, done), batch.lengths().subspan(at, done));
        at += done;
        if (builder.full()) pass();
      }
    }
    pass();
    Check(came.tuples() == expected && came.digest() == sent.digest(), "tuples are missing");
  }
  clock.Report(state, expected);
}

std::unique_ptr<rpc::Server> StartServer(SnapshotProvider& provider, Path path) {
  rpc::ServerOptions options;
  options.listen = Listen(path);
  options.tls = ServerTls(path);
  auto server = rpc::Server::Start(provider, options);
  Check(server.ok(), "no server");
  return *std::move(server);
}

void Cbt(benchmark::State& state, bool blocks, Path path, uint32_t max_results) {
  VolumeProvider provider(blocks);
  const auto server = StartServer(provider, path);
  OurClient(state, server->address(), blocks, path, max_results);
}

void CbtWithoutTls(benchmark::State& state, bool blocks, Path path, uint32_t max_results) {
  Cbt(state, blocks, path == Path::kUnixTls ? Path::kUnix : Path::kTcp, max_results);
}

void Relayed(benchmark::State& state, bool blocks, Path path, uint32_t max_results, bool check) {
  VolumeProvider provider(blocks);
  const auto server = StartServer(provider, Path::kUnix);
  rpc::RelayOptions options;
  options.listen = Listen(path);
  options.plugin = server->address();
  options.service.apis = {rpc::Api::kCsi};
  options.check_tuples = check;
  const auto relay = rpc::Relay::Start(options);
  Check(relay.ok(), "no relay");
  OurClient(state, (*relay)->address(), blocks, path, check ? max_results : 0);
}

void RelayedCbt(benchmark::State& state, bool blocks, Path path, uint32_t max_results) {
  Relayed(state, blocks, path, max_results, true);
}
void RelayedUnchecked(benchmark::State& state, bool blocks, Path path, uint32_t max_results) {
  Relayed(state, blocks, path, max_results, false);
}

void RunFirst(benchmark::State& state, const rpc::ListRequest& request) {
  ExtentBatch batch;
  const CpuClock clock;
  for (auto _ : state) {
    const auto cursor = rpc::RemoteCursor::Open(request);
    Check(cursor.ok() && (*cursor)->Next(batch).ok() && !batch.empty(), "no stream");
  }
  clock.Report(state, 1);
}

void FirstCbt(benchmark::State& state, bool, Path path, uint32_t max_results) {
  VolumeProvider provider(false);
  const auto server = StartServer(provider, path);
  RunFirst(state, RequestTo(server->address(), path, max_results));
}

void FirstOfGrpc(benchmark::State& state, bool, Path path, uint32_t max_results) {
  static const Messages messages = EncodeVolume(false, max_results);
  FirstCeiling(state, path, messages);
}

// Opens a delta of 64 TiB and takes its first batch. Scattered changes are one block in a million;
// a fully changed volume is reported as blocks, so that there is more than one tuple.
void First(benchmark::State& state, bool scattered) {
  constexpr uint64_t kLarge = 64 * kTiB;
  constexpr uint64_t kLargeBlock = 64 * kKiB;
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
      auto cursor = MakeBorrowedBitmapCursor(
          *BitmapView::Create({reinterpret_cast<const uint8_t*>(bits_.data()), bits_.size() * 8}, 0,
                              kBits),
          {.capacity = kLarge, .granularity = kLargeBlock});
      if (!cursor.ok()) return cursor.status();
      return MetadataSource{
          .cursor = *std::move(cursor),
          .type = scattered_ ? BlockMetadataType::kVariableLength : BlockMetadataType::kFixedLength,
          .block_size = kLargeBlock,
          .never_blocks = true};
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
  const auto server = StartServer(provider, Path::kUnix);
  rpc::ListRequest request = RequestTo(server->address(), Path::kUnix, 256);
  request.base_snapshot_id = "base";
  RunFirst(state, request);
}

void AddStreamRows() {
  struct Impl {
    const char* name;
    void (*run)(benchmark::State&, bool, Path, uint32_t);
  };
  for (const bool blocks : {false, true}) {
    const std::string style = blocks ? "blocks-" : "extents-";
    for (const Path path : {Path::kUnix, Path::kTcp, Path::kUnixTls, Path::kTcpTls}) {
      const std::string place = "rpc/" + style + std::string(NameOf(path)) + "/";
      for (const uint32_t max_results : {256u, 8192u, 65536u}) {
        if (IsTls(path) && max_results != 8192) continue;
        for (const Impl& impl :
             {Impl{"cbt", Cbt}, Impl{"generated", Generated}, Impl{"ceiling", Ceiling}}) {
          AddRow(place + std::to_string(max_results) + "/" + impl.name, impl.run, blocks, path,
                 max_results);
        }
        if (IsTls(path)) AddRow(place + "8192/plain", CbtWithoutTls, blocks, path, max_results);
        if (path == Path::kUnix && max_results == 8192) {
          AddRow(place + "8192/work", Work, blocks, path, max_results);
        }
      }
    }
    for (const Impl& impl : {Impl{"cbt", RelayedCbt}, Impl{"unchecked", RelayedUnchecked},
                             Impl{"direct", Cbt}, Impl{"generated", RelayedGenerated}}) {
      AddRow("relay/" + style + "unix/8192/" + impl.name, impl.run, blocks, Path::kUnix, 8192);
    }
  }
}

void AddFirstRows() {
  for (const char* changed : {"scattered", "full"}) {
    benchmark::RegisterBenchmark((std::string("first/64TiB/") + changed + "/cbt").c_str(),
                                 [scattered = std::string(changed) == "scattered"](
                                     benchmark::State& state) { First(state, scattered); })
        ->UseRealTime();
  }
  for (const Path path : {Path::kUnix, Path::kTcp, Path::kUnixTls, Path::kTcpTls}) {
    const std::string place = "first/" + std::string(NameOf(path)) + "/256/";
    AddRow(place + "cbt", FirstCbt, false, path, 256);
    AddRow(place + "ceiling", FirstOfGrpc, false, path, 256);
  }
}

const bool registered = [] {
  AddStreamRows();
  AddTransportRows();
  AddFirstRows();
  return true;
}();

}  // namespace
}  // namespace cbt::bench
