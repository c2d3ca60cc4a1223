// The sidecar in front of a real kube-apiserver, both in this machine; with KUBEBUILDER_ASSETS and
// CBT_SNAPSHOT_CRDS (tests/kube/support/control_plane.h), otherwise nothing is measured.
//
// sidecar/open/<clients>/<impl>: a stream is opened and its only tuple has arrived; items are
// opens. Each client has a connection of its own, over TLS, that is there already.
//
//   cbt      a token that the sidecar has not seen: two requests to the API server
//   known    one token for all
//   connect  the same, on a new connection
//   plugin   the plugin itself over TLS, which checks nothing
//
// sidecar/stream/<tuples>/<impl>: a stream over TLS to a client that checks and proves it; items
// are tuples.
//
//   cbt      through the sidecar
//   plugin   the plugin itself over TLS
#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/kube/client.h"
#include "cbt/rpc/client.h"
#include "cbt/rpc/server.h"
#include "net/address.h"
#include "programs/sidecar/stranger_limit.h"
#include "rpc/client/connect.h"
#include "rpc/client/remote_cursor.h"
#include "tests/kube/support/control_plane.h"
#include "tests/kube/support/sidecar_world.h"
#include "tests/rpc/support/providers.h"
#include "tests/support/status.h"

namespace cbt::bench {
namespace {

using test::ControlPlane;
using test::FunctionProvider;
using test::SidecarWorld;
using test::ValueOf;

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kTuples = 2'000'000;
// Each of their opens has a token of its own.
// As many tokens as a sidecar takes at once that it does not know: more would measure the limit.
constexpr int kOpens = kube::sidecar::StrangerLimit::kBurst - 20;
constexpr int kMaxClients = 8;

void Check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "sidecar_bench: %s\n", what);
  std::exit(1);
}

absl::StatusOr<MetadataSource> Answer(const FunctionProvider::Call& call) {
  const uint64_t tuples = call.target == "large" ? kTuples : 1;
  return test::Extents(test::AlternatingCursor(2 * tuples * kBlock, kBlock));
}

// What all rows share; made by the first.
class Cluster {
 public:
  static Cluster& Shared() {
    static Cluster cluster;
    return cluster;
  }

  rpc::ListRequest ToSidecar(const std::string& snapshot) const {
    rpc::ListRequest request;
    request.address = world_.sidecar_address();
    request.api = rpc::Api::kKubernetes;
    request.tls = {.enabled = true, .ca = world_.ca()};
    request.name_space = world_.name_space();
    request.snapshot_id = snapshot;
    request.token = Secret(one_token_);
    return request;
  }

  rpc::ListRequest ToPlugin(const std::string& snapshot) const {
    rpc::ListRequest request;
    request.address = plugin_->address();
    request.tls = {.enabled = true, .ca = world_.ca()};
    request.snapshot_id = snapshot;
    return request;
  }

  // Tokens that no row has used.
  std::vector<std::string> NewTokens(int count) {
    const std::shared_ptr<kube::Client> client = world_.ClientOf("reader");
    std::vector<std::string> tokens;
    kube::TokenOptions options;
    options.audiences = {world_.audience()};
    for (int i = 0; i < count; ++i) {
      // Tokens of the same second differ by their ids.
      const auto made = client->CreateToken(world_.name_space(), "reader", options);
      Check(made.ok(), "no token");
      tokens.emplace_back(made->token.Reveal());
    }
    return tokens;
  }

 private:
  Cluster() {
    world_.AddClient("reader");
    world_.AddSnapshot("small", "small");
    world_.AddSnapshot("large", "large");
    one_token_ = NewTokens(1).front();
    rpc::ServerOptions options;
    options.listen = "127.0.0.1:0";
    options.tls = world_.server_tls();
    plugin_ = ValueOf(rpc::Server::Start(provider_, options));
  }

  FunctionProvider provider_{Answer};
  SidecarWorld world_{ControlPlane::Shared(), provider_};
  std::unique_ptr<rpc::Server> plugin_;
  std::string one_token_;
};

uint64_t Drain(rpc::RemoteCursor& cursor) {
  ExtentBatch batch;
  uint64_t tuples = 0;
  for (;;) {
    const auto step = cursor.Next(batch);
    Check(step.ok(), "the stream failed");
    tuples += batch.size();
    if (*step == Step::kComplete) break;
  }
  Check(cursor.completeness() == rpc::Completeness::kProven, "not proven");
  return tuples;
}

enum class Impl { kDistinct, kKnown, kConnect, kPlugin };

void Open(benchmark::State& state, Impl impl) {
  // Set by the first thread before any of them begins to measure.
  static std::vector<std::string> tokens;
  static std::atomic<size_t> next;
  Cluster& cluster = Cluster::Shared();
  if (state.thread_index() == 0) {
    if (impl == Impl::kDistinct) {
      tokens = cluster.NewTokens(kOpens);
      // Until that many are free again.
      std::this_thread::sleep_for(std::chrono::seconds(3));
    }
    next = 0;
  }
  rpc::ListRequest request =
      impl == Impl::kPlugin ? cluster.ToPlugin("small") : cluster.ToSidecar("small");
  std::shared_ptr<rpc::Channel> channel;
  const auto open = [&] {
    if (channel == nullptr || impl == Impl::kConnect) {
      channel = ValueOf(
          rpc::ConnectForConsumer(ValueOf(net::ParseAddress(request.address)), request.tls));
    }
    const auto cursor = rpc::OpenRemoteCursor(request, [&] { return channel; }, {});
    Check(cursor.ok(), "no stream");
    Check(Drain(**cursor) == 1, "not the tuple");
  };
  open();
  for (auto _ : state) {
    if (impl == Impl::kDistinct) {
      const size_t number = next++;
      Check(number < tokens.size(), "too few tokens");
      request.token = Secret(tokens[number]);
    }
    open();
  }
  state.SetItemsProcessed(state.iterations());
}

void Stream(benchmark::State& state, bool sidecar) {
  const rpc::ListRequest request =
      sidecar ? Cluster::Shared().ToSidecar("large") : Cluster::Shared().ToPlugin("large");
  for (auto _ : state) {
    const auto cursor = ValueOf(rpc::RemoteCursor::Open(request));
    Check(Drain(*cursor) == kTuples, "tuples are missing");
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kTuples));
}

const bool registered = [] {
  if (!ControlPlane::Available() || ControlPlane::SnapshotCrds().empty()) {
    std::fputs("sidecar_bench: KUBEBUILDER_ASSETS or CBT_SNAPSHOT_CRDS is not set\n", stderr);
    return false;
  }
  const std::pair<const char*, Impl> impls[] = {{"cbt", Impl::kDistinct},
                                                {"known", Impl::kKnown},
                                                {"connect", Impl::kConnect},
                                                {"plugin", Impl::kPlugin}};
  for (const int clients : {1, kMaxClients}) {
    for (const auto& [name, impl] : impls) {
      auto* const row = benchmark::RegisterBenchmark(
          ("sidecar/open/" + std::to_string(clients) + "/" + name).c_str(),
          [impl = impl](benchmark::State& state) { Open(state, impl); });
      row->Threads(clients)->UseRealTime()->Unit(benchmark::kMillisecond);
      if (impl == Impl::kDistinct) row->Iterations(kOpens / clients);
    }
  }
  for (const bool sidecar : {true, false}) {
    const std::string place = "sidecar/stream/" + std::to_string(kTuples) + "/";
    benchmark::RegisterBenchmark((place + (sidecar ? "cbt" : "plugin")).c_str(),
                                 [sidecar](benchmark::State& state) { Stream(state, sidecar); })
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace cbt::bench
