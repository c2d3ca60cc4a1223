// A caller without access cannot distinguish existing snapshots from missing ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cbt/rpc/access.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "cbt/units.h"
#include "rpc/contract/contract.h"
#include "tests/rpc/support/providers.h"
#include "tests/rpc/support/raw_call.h"
#include "tests/support/figures.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {
namespace existence_test {

using std::chrono::microseconds;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

// Snapshots in two namespaces; the caller's token and session are only for "mine".
class TwoNamespaces {
 public:
  TwoNamespaces()
      : provider_([this](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
          for (const std::string& handle : {call.target, call.base.value_or(call.target)}) {
            if (!present.contains(handle)) return absl::NotFoundError("no such snapshot");
          }
          return Extents(CursorOver({{0, 4096}}, kMiB));
        }) {
    std::vector<rpc::TokenGrant> grants(1);
    grants[0] = {.token = Secret(kToken), .name = "operator", .name_spaces = {"mine"}};
    access_ = rpc::MakeTokenAccess(std::move(grants));
    directories_ = rpc::MakeDirectoryResolver();
    sessions_ = rpc::MemorySessionStore::Create();
    present.insert("mine/target");
    for (int i = 0; i < 400; ++i) {
      names.push_back(Name(random));
      present.insert("theirs/" + names.back());
    }
    const auto opened =
        sessions_->Open({.name_space = "mine",
                         .snapshots = {"target"},
                         .expires = std::chrono::system_clock::now() + std::chrono::hours(1)});
    session = std::string(opened->Reveal());

    rpc::ServerOptions server;
    server.listen = "unix://" + (dir_ / "server");
    server.service.apis = {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession};
    server.service.access = Access();
    server.service.sessions = sessions_.get();
    server_ = ValueOf(rpc::Server::Start(provider_, server));
    rpc::RelayOptions relay;
    relay.listen = "unix://" + (dir_ / "relay");
    relay.plugin = server.listen;
    relay.service.apis = {rpc::Api::kKubernetes, rpc::Api::kSession};
    relay.service.access = Access();
    relay.service.sessions = sessions_.get();
    relay_ = ValueOf(rpc::Relay::Start(relay));
    channels = {Connect(server_->address()), Connect(relay_->address())};
  }

  static std::string Name(std::mt19937_64& random) {
    std::string name = "snap-";
    for (int i = 0; i < 12; ++i) name += static_cast<char>('a' + random() % 26);
    return name;
  }

  int asked() const { return provider_.calls; }

  std::mt19937_64 random{22};
  std::set<std::string> present;   // handles
  std::vector<std::string> names;  // of "theirs"
  std::string session;
  std::vector<std::shared_ptr<grpc::Channel>> channels;

 private:
  rpc::AccessControl Access() const {
    return {.authenticator = access_.get(),
            .authorizer = access_.get(),
            .resolver = directories_.get()};
  }

  const TempDir dir_;
  FunctionProvider provider_;
  std::unique_ptr<rpc::TokenAccess> access_;
  std::unique_ptr<rpc::SnapshotResolver> directories_;
  std::unique_ptr<rpc::MemorySessionStore> sessions_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<rpc::Relay> relay_;
};

// Ways to ask for a forbidden snapshot.
struct Way {
  const char* what;
  rpc::Api api;
  rpc::MetadataRequest (*request)(const TwoNamespaces&, const std::string& name);
};

rpc::MetadataRequest Kubernetes(const char* token, const char* name_space,
                                const std::string& target) {
  rpc::MetadataRequest request;
  request.token = Secret(std::string(token));
  request.name_space = std::string(name_space);
  request.target_snapshot_id = target;
  return request;
}

constexpr Way kWays[] = {
    {"a wrong token", rpc::Api::kKubernetes,
     [](const TwoNamespaces&, const std::string& name) {
       return Kubernetes("0123456789abcdef0123456789abcdeX", "theirs", name);
     }},
    {"a namespace that is not granted", rpc::Api::kKubernetes,
     [](const TwoNamespaces&, const std::string& name) {
       return Kubernetes(kToken, "theirs", name);
     }},
    {"a base handle of another namespace", rpc::Api::kKubernetes,
     [](const TwoNamespaces&, const std::string& name) {
       rpc::MetadataRequest request = Kubernetes(kToken, "mine", "target");
       request.base_snapshot_id = "theirs/" + name;
       return request;
     }},
    {"a name that leads out of the namespace", rpc::Api::kKubernetes,
     [](const TwoNamespaces&, const std::string& name) {
       return Kubernetes(kToken, "mine", "../theirs/" + name);
     }},
    {"a snapshot that the session does not open", rpc::Api::kSession,
     [](const TwoNamespaces& world, const std::string& name) {
       rpc::MetadataRequest request;
       request.token = Secret(world.session);
       request.volume_id = "volume";
       request.target_snapshot_id = name;
       return request;
     }},
    {"a base that the session does not open", rpc::Api::kSession,
     [](const TwoNamespaces& world, const std::string& name) {
       rpc::MetadataRequest request;
       request.token = Secret(world.session);
       request.volume_id = "volume";
       request.target_snapshot_id = std::string("target");
       request.base_snapshot_id = name;
       return request;
     }},
};

struct Reply {
  grpc::Status status;
  size_t messages = 0;
  microseconds time{0};
};

Reply AskFor(const TwoNamespaces& world, const std::shared_ptr<grpc::Channel>& channel,
             const Way& way, const std::string& name) {
  const rpc::MetadataRequest request = way.request(world, name);
  const rpc::Contract& contract = rpc::ContractOf(way.api);
  const rpc::MethodContract& method =
      request.base_snapshot_id.has_value() ? contract.delta : contract.allocated;
  const std::string bytes = rpc::EncodeRequest(method, request);
  Reply reply;
  const auto began = std::chrono::steady_clock::now();
  RawCall call(channel, method.path, bytes, std::chrono::seconds(60));
  while (call.Read().has_value()) ++reply.messages;
  reply.status = call.Finish();
  reply.time = std::chrono::duration_cast<microseconds>(std::chrono::steady_clock::now() - began);
  return reply;
}

int64_t Median(std::vector<microseconds> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2].count();
}

TEST(Existence, CantBeToldByWhoMayNotSee) {
  TwoNamespaces world;
  // 1,008 pairs at a scale of 4.
  const auto pairs = static_cast<size_t>(std::min<int64_t>(84, 21 * TestScale()));
  uint64_t tried = 0;
  uint64_t differences = 0;
  std::vector<microseconds> absent_times;
  std::vector<microseconds> present_times;
  for (const auto& channel : world.channels) {
    for (const Way& way : kWays) {
      for (size_t i = 0; i < pairs; ++i) {
        const std::string present = world.names[world.random() % world.names.size()];
        std::string absent;
        do {
          absent = TwoNamespaces::Name(world.random);
        } while (world.present.contains("theirs/" + absent));
        const bool absent_first = world.random() % 2 == 0;
        Reply first = AskFor(world, channel, way, absent_first ? absent : present);
        Reply second = AskFor(world, channel, way, absent_first ? present : absent);
        if (!absent_first) std::swap(first, second);
        absent_times.push_back(first.time);
        present_times.push_back(second.time);
        ++tried;
        EXPECT_FALSE(second.status.ok()) << way.what;
        if (first.status.error_code() == second.status.error_code() &&
            first.status.error_message() == second.status.error_message() &&
            first.status.error_details() == second.status.error_details() &&
            first.messages == second.messages) {
          continue;
        }
        ++differences;
        ADD_FAILURE() << way.what << ": " << first.status.error_message() << " or "
                      << second.status.error_message();
      }
    }
  }
  // The snapshots were not looked up.
  EXPECT_EQ(world.asked(), 0);
  const int64_t absent = Median(absent_times);
  const int64_t present = Median(present_times);
  PrintFigure("r22_pairs", tried);
  PrintFigure("r22_differences", differences);
  PrintFigure("r22_provider_calls", world.asked());
  PrintFigure("r22_absent_median_us", absent);
  PrintFigure("r22_present_median_us", present);
  PrintFigure("r22_median_difference_percent",
              100.0 * static_cast<double>(std::abs(absent - present)) /
                  static_cast<double>(std::max<int64_t>(absent, 1)));
}

// The same requests for what the caller may see: there, the two do differ.
TEST(Existence, IsToldToWhoMaySee) {
  TwoNamespaces world;
  const Way way = {"", rpc::Api::kKubernetes, [](const TwoNamespaces&, const std::string& name) {
                     return Kubernetes(kToken, "mine", name);
                   }};
  for (const auto& channel : world.channels) {
    EXPECT_OK(AskFor(world, channel, way, "target").status);
    EXPECT_EQ(AskFor(world, channel, way, "absent").status.error_code(),
              grpc::StatusCode::NOT_FOUND);
  }
}

}  // namespace existence_test
}  // namespace cbt::test
