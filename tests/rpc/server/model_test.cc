// A client, a server and possibly a relay under random faults of the wire, the provider and the
// processes. The model is the set of ranges. At any time the client holds a prefix of the answer
// without gaps, reports completeness only if it is complete, and gets the rest when it asks again.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <ostream>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/rpc/support/fault_world.h"
#include "tests/rpc/support/fixture.h"
#include "tests/support/figures.h"
#include "tests/support/generators.h"
#include "tests/support/properties.h"

namespace cbt::test {
namespace model_test {

using absl::StatusCode;
using std::chrono::milliseconds;
using Kind = WireFault::Kind;

enum class Act {
  kOpen,
  kRead,
  kReadAll,
  kCancel,
  kStop,
  kBreakWire,
  kBreakPluginWire,
  kCutNow,
  kRestartServer,
  kRestartServerUnderRead,
  kRestartRelay,
  kRestartRelayUnderRead,
  kProviderFails,
  kProviderIsSlow,
  kDeadline,
  kSilence,
  kAnotherClient,
};
constexpr int kActs = static_cast<int>(Act::kAnotherClient) + 1;
constexpr const char* kNames[kActs] = {"open",           "read",          "read all",
                                       "cancel",         "stop",          "break wire",
                                       "break plugin's", "cut now",       "restart",
                                       "restart + read", "relay restart", "relay restart + read",
                                       "provider fails", "provider slow", "deadline",
                                       "silence",        "another client"};

struct Command {
  Act act = Act::kOpen;
  uint32_t a = 0;
  uint32_t b = 0;
};

void showValue(const Command& command, std::ostream& out) {
  out << kNames[static_cast<size_t>(command.act)] << '(' << command.a << ", " << command.b << ')';
}

rc::Gen<std::vector<Command>> Commands() {
  const auto number =
      rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint32_t>(0, uint32_t{1} << 16));
  // Everything else happens to opening and reading.
  const auto act = rc::gen::resize(
      rc::kNominalSize,
      rc::gen::weightedOneOf<int>({{2, rc::gen::inRange(0, 3)}, {3, rc::gen::inRange(3, kActs)}}));
  const auto command = rc::gen::map(rc::gen::tuple(act, number, number), [](const std::tuple<
                                                                             int, uint32_t,
                                                                             uint32_t>& drawn) {
    return Command{static_cast<Act>(std::get<0>(drawn)), std::get<1>(drawn), std::get<2>(drawn)};
  });
  return rc::gen::resize(14, rc::gen::container<std::vector<Command>>(command));
}

struct Totals {
  uint64_t runs = 0;
  uint64_t commands = 0;
  uint64_t wire_faults = 0;
  uint64_t streams = 0;
  uint64_t broken = 0;
  uint64_t whole = 0;
} totals;

class Machine {
 public:
  Machine(Truth truth, bool relayed, uint64_t start, size_t chunk)
      : world_(std::move(truth), relayed, {.message_bytes = 4096}, chunk), client_(world_, start) {}

  void Do(const Command& command) {
    ++totals.commands;
    Perform(command);
    Require(client_.HoldsAPrefix());
  }

  // All faults are over: what the client holds plus what it gets now is the answer.
  void Converge() {
    world_.wire->Arm(std::nullopt);
    world_.wire->Release();
    if (world_.relayed()) {
      world_.plugin_wire->Arm(std::nullopt);
      world_.plugin_wire->Release();
    }
    world_.faults.fail_after = -1;
    world_.faults.slow = 0;
    totals.wire_faults += static_cast<uint64_t>(world_.wire->fired());
    if (world_.relayed()) totals.wire_faults += static_cast<uint64_t>(world_.plugin_wire->fired());
    client_.Drop();
    // A relay that lost its plugin needs a moment to reconnect.
    const bool came = Eventually(
        [this] {
          Begin(world_.Request(client_.at(), 0));
          return client_.streaming() && ReadOn(SIZE_MAX, 64);
        },
        std::chrono::seconds(60));
    RC_ASSERT(came);
    Require(client_.HoldsAll());
  }

 private:
  void Perform(const Command& command) {
    const uint32_t a = command.a;
    const uint32_t b = command.b;
    const bool on_plugin = world_.relayed() && a % 2 == 1;
    FaultProxy& either = on_plugin ? *world_.plugin_wire : *world_.wire;
    switch (command.act) {
      case Act::kOpen:
        Begin(Ask(a, b));
        break;
      case Act::kRead:
        ReadOn(1 + a % 8, 1 + b % 50);
        break;
      case Act::kReadAll:
        ReadOn(SIZE_MAX, 1 + b % 50);
        break;
      case Act::kCancel:
        client_.Drop();
        break;
      case Act::kStop: {
        std::stop_source source;
        rpc::ListRequest request = Ask(a, b);
        request.stop = source.get_token();
        std::jthread stopper([&source] { source.request_stop(); });
        Begin(request);
        ReadOn(SIZE_MAX, 8);
        stopper.join();
        client_.Drop();
        break;
      }
      case Act::kBreakWire:
        Arm(*world_.wire, a, b);
        ReadIntoTheFault(a, b);
        break;
      case Act::kBreakPluginWire:
        if (!world_.relayed()) break;
        Arm(*world_.plugin_wire, a, b);
        ReadIntoTheFault(a, b);
        break;
      case Act::kCutNow:
        either.Cut();
        break;
      case Act::kRestartServer:
        world_.StopServer(milliseconds(0));
        world_.StartServer();
        break;
      case Act::kRestartServerUnderRead: {
        if (!client_.streaming()) Begin(Ask(a, b));
        std::jthread restart([&] {
          world_.StopServer(milliseconds(b % 2 * 20));
          world_.StartServer();
        });
        ReadOn(1 + a % 100, 1 + b % 50);
        restart.join();
        break;
      }
      case Act::kRestartRelay:
        if (!world_.relayed()) break;
        world_.StopRelay(milliseconds(0));
        world_.StartRelay();
        break;
      case Act::kRestartRelayUnderRead: {
        if (!world_.relayed()) break;
        if (!client_.streaming()) Begin(Ask(a, b));
        std::jthread restart([&] {
          world_.StopRelay(milliseconds(b % 2 * 20));
          world_.StartRelay();
        });
        ReadOn(1 + a % 100, 1 + b % 50);
        restart.join();
        break;
      }
      case Act::kProviderFails:
        world_.faults.fail_after = static_cast<int>(a % 60);
        provider_fails_ = true;
        break;
      case Act::kProviderIsSlow:
        world_.faults.slow = static_cast<int>(a % 30);
        break;
      case Act::kDeadline: {
        rpc::ListRequest request = Ask(a, b);
        request.timeout = milliseconds(1 + b % 20);
        Begin(request);
        ReadOn(SIZE_MAX, 8);
        client_.Drop();
        break;
      }
      case Act::kSilence: {
        either.Arm(WireFault{.kind = Kind::kSilence, .after = b % 3000, .upward = a % 8 < 2});
        rpc::ListRequest request = Ask(a, 1);
        request.timeout = milliseconds(60);
        Begin(request);
        ReadOn(SIZE_MAX, 8);
        client_.Drop();
        either.Arm(std::nullopt);
        either.Release();
        break;
      }
      case Act::kAnotherClient: {
        // Our client does not read meanwhile. What happens to the other is not checked.
        Collector other(world_, a % (world_.truth.capacity + 1));
        if (!other.Open(world_.Request(other.at(), 1 + static_cast<int32_t>(b % 9))).ok()) break;
        const absl::StatusOr<bool> complete = other.Read(SIZE_MAX, 16);
        Require(other.HoldsAPrefix());
        if (!complete.ok()) break;
        Require(other.HoldsAll());
        RC_ASSERT(other.proven());
        break;
      }
    }
  }

  rpc::ListRequest Ask(uint32_t a, uint32_t b) {
    rpc::ListRequest request =
        world_.Request(client_.at(), a % 5 == 0 ? 0 : static_cast<int32_t>(1 + a % 20));
    if (a % 3 == 0) request.base_snapshot_id = std::string(FaultWorld::kBase);
    // The client's own resuming, which waits between attempts.
    if (b % 5 == 0) request.retry_for = std::chrono::milliseconds(250);
    return request;
  }

  // Otherwise the fault hits whatever comes next.
  void ReadIntoTheFault(uint32_t a, uint32_t b) {
    if (b % 4 == 0) return;
    if (!client_.streaming() || b % 4 != 1) Begin(Ask(a, b));
    ReadOn(SIZE_MAX, 1 + a % 50);
  }

  static void Arm(FaultProxy& wire, uint32_t a, uint32_t b) {
    constexpr Kind kKinds[] = {Kind::kHalfClose, Kind::kClose, Kind::kReset};
    const bool upward = a % 8 == 7;
    wire.Arm(
        WireFault{.kind = kKinds[a % 3], .after = b % (upward ? 400u : 2000u), .upward = upward});
  }

  void Begin(const rpc::ListRequest& request) {
    ++totals.streams;
    short_ = request.timeout != FaultWorld::kHang;
    if (const absl::Status status = client_.Open(request); !status.ok()) Judge(status);
  }

  // Returns true if the stream has reported its end.
  bool ReadOn(size_t batches, size_t batch_capacity) {
    if (!client_.streaming()) return false;
    const absl::StatusOr<bool> complete = client_.Read(batches, batch_capacity);
    if (!complete.ok()) {
      Judge(complete.status());
      return false;
    }
    if (!*complete) return false;
    ++totals.whole;
    RC_ASSERT(client_.proven());
    Require(client_.HoldsAll());
    return true;
  }

  // A broken stream must report its cause and must not claim that the server lied.
  void Judge(const absl::Status& status) {
    ++totals.broken;
    switch (status.code()) {
      case StatusCode::kUnavailable:
      case StatusCode::kCancelled:
        return;
      case StatusCode::kDeadlineExceeded:
        if (short_) return;
        RC_FAIL(absl::StrCat("hangs: ", status.ToString()));
      case StatusCode::kAborted:
        if (provider_fails_) return;
        break;
      default:
        break;
    }
    RC_FAIL(status.ToString());
  }

  FaultWorld world_;
  Collector client_;
  bool short_ = false;           // the stream has a short deadline
  bool provider_fails_ = false;  // the provider may fail
};

// Runs rapidcheck with a fixed seed and count, unless RC_PARAMS is set.
template <typename Property>
void Check(int runs, Property property) {
  const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
  rc::detail::TestMetadata metadata;
  metadata.id = absl::StrCat(info->test_suite_name(), "/", info->name());
  metadata.description = info->name();
  rc::detail::TestParams params;
  params.seed = 20240229;
  params.maxSuccess = runs;
  if (std::getenv("RC_PARAMS") != nullptr) {
    params = rc::detail::configuration().testParams;
  }
  std::cout << "seed " << params.seed << ", runs " << params.maxSuccess << '\n';
  const rc::detail::TestResult result =
      rc::detail::checkProperty(rc::detail::toProperty(property), metadata, params);
  if (result.is<rc::detail::SuccessResult>()) return;
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  FAIL() << text.str();
}

void RunModel(bool relayed) {
  std::mt19937_64 random = AnyRandom();
  const auto capacity =
      Between(0, 8) == 0 ? Between<size_t>(0, 200'000) : Between<size_t>(0, 20'000);
  const uint64_t block = Between(0, 2) == 0 ? 0 : uint64_t{1} << Between(0, 10);
  const auto spacing = Between<size_t>(1, 60);
  const uint64_t start = Between(0, 2) == 0 ? 0 : Between<uint64_t>(0, capacity + 1);
  const size_t chunk = Between(0, 3) == 0 ? Between<size_t>(1, 100) : 16384;
  const std::vector<Command> commands = *Commands();
  ++totals.runs;
  Machine machine(Truth::Random(random, capacity, block, spacing), relayed, start, chunk);
  for (const Command& command : commands) machine.Do(command);
  machine.Converge();
}

void PrintTotals(const char* what) {
  const std::string name = absl::StrCat("r5_model_", what);
  PrintFigure(name + "_runs", totals.runs);
  PrintFigure(name + "_commands", totals.commands);
  PrintFigure(name + "_wire_faults", totals.wire_faults);
  PrintFigure(name + "_streams", totals.streams);
  PrintFigure(name + "_streams_broken", totals.broken);
  PrintFigure(name + "_streams_whole", totals.whole);
  totals = {};
}

TEST(Model, E3E13AClientHoldsWhatItSaysItHolds) {
  Check(static_cast<int>(100 * TestScale()), [] { RunModel(false); });
  PrintTotals("direct");
}

TEST(Model, E3E13AClientBehindARelayHoldsWhatItSaysItHolds) {
  Check(static_cast<int>(100 * TestScale()), [] { RunModel(true); });
  PrintTotals("relayed");
}

}  // namespace model_test
}  // namespace cbt::test
