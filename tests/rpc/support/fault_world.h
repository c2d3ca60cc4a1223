// A provider, a server and possibly a relay, each behind a wire that can break, and a client that
// records what it receives.
#ifndef CBT_TESTS_RPC_SUPPORT_FAULT_WORLD_H_
#define CBT_TESTS_RPC_SUPPORT_FAULT_WORLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cbt/rpc/client.h"
#include "cbt/rpc/relay.h"
#include "cbt/rpc/server.h"
#include "tests/reference/volume.h"
#include "tests/rpc/support/fault_proxy.h"
#include "tests/rpc/support/providers.h"
#include "tests/rpc/support/truth.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {

// Faults inside the provider; each happens once whenever it is set.
struct ProviderFaults {
  std::atomic<int> fail_after{-1};  // tuples in the next stream before ABORTED
  std::atomic<int> slow{0};         // calls of Next() that return nothing after a millisecond
};

class FaultWorld {
 public:
  static constexpr char kTarget[] = "target-snapshot";
  static constexpr char kBase[] = "base-snapshot";

  FaultWorld(Truth what, bool relayed, rpc::StreamOptions stream = {}, size_t chunk = 16384)
      : truth(std::move(what)),
        stream_(stream),
        provider_([this](const FunctionProvider::Call& call) { return Open(call); }) {
    StartServer();
    if (relayed) {
      plugin_wire = std::make_unique<FaultProxy>(server_address(), chunk);
      StartRelay();
    }
    wire = std::make_unique<FaultProxy>(relayed ? relay_address() : server_address(), chunk);
  }
  ~FaultWorld() {
    wire.reset();
    relay_.reset();
    plugin_wire.reset();
    server_.reset();
  }

  void StartServer() {
    rpc::ServerOptions options;
    options.listen = server_address();
    options.service.stream = stream_;
    options.service.reflection = false;
    server_ = ValueOf(rpc::Server::Start(provider_, options));
  }
  void StopServer(std::chrono::milliseconds grace) { server_->Shutdown(grace); }

  void StartRelay() {
    rpc::RelayOptions options;
    options.listen = relay_address();
    options.service.apis = {rpc::Api::kCsi};
    options.plugin = plugin_wire->address();
    options.service.stream = stream_;
    options.service.reflection = false;
    relay_ = ValueOf(rpc::Relay::Start(options));
  }
  void StopRelay(std::chrono::milliseconds grace) { relay_->Shutdown(grace); }

  bool relayed() const { return plugin_wire != nullptr; }

  rpc::ListRequest Request(uint64_t offset, int32_t max_results) const {
    rpc::ListRequest request;
    request.address = wire->address();
    request.snapshot_id = std::string(kTarget);
    request.starting_offset = offset;
    request.max_results = max_results;
    request.retry_for = {};
    request.wire_tuples = true;
    request.timeout = kHang;
    return request;
  }

  // Only a hang takes that long.
  static constexpr std::chrono::milliseconds kHang = std::chrono::seconds(120);

  const Truth truth;
  ProviderFaults faults;
  std::unique_ptr<FaultProxy> wire;         // between the client and its server
  std::unique_ptr<FaultProxy> plugin_wire;  // between the relay and the server

 private:
  std::string server_address() const { return "unix://" + (dir_ / "server"); }
  std::string relay_address() const { return "unix://" + (dir_ / "relay"); }

  absl::StatusOr<MetadataSource> Open(const FunctionProvider::Call& call) {
    // A request whose names were altered on the wire is not for this volume.
    if (call.target != kTarget || call.base.value_or(kBase) != kBase) {
      return absl::NotFoundError("no such snapshot");
    }
    auto cursor = CursorOver(truth.changes, truth.capacity);
    const int fail_after = faults.fail_after.exchange(-1);
    const int slow = faults.slow.exchange(0);
    if (fail_after >= 0 || slow > 0) {
      cursor = std::make_unique<Faulty>(std::move(cursor), fail_after, slow);
    }
    return truth.block == 0 ? Extents(std::move(cursor)) : Blocks(std::move(cursor), truth.block);
  }

  class Faulty final : public ExtentCursor {
   public:
    Faulty(std::unique_ptr<ExtentCursor> inner, int fail_after, int slow)
        : ExtentCursor(inner->geometry()),
          inner_(std::move(inner)),
          fail_after_(fail_after),
          slow_(slow) {}

   private:
    absl::Status DoSeek(uint64_t offset) override { return inner_->Seek(offset); }
    absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
      if (slow_-- > 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return covered();
      }
      if (fail_after_ == 0) return absl::AbortedError("the provider failed");
      ExtentBatch few(fail_after_ < 0 ? 16 : static_cast<size_t>(std::min(fail_after_, 16)));
      absl::StatusOr<Step> step = inner_->Next(few);
      if (!step.ok()) return step.status();
      for (size_t i = 0; i < few.size(); ++i) batch.push_back(few[i]);
      if (fail_after_ > 0) fail_after_ -= static_cast<int>(few.size());
      return inner_->covered();
    }

    const std::unique_ptr<ExtentCursor> inner_;
    int fail_after_;
    int slow_;
  };

  const TempDir dir_;
  const rpc::StreamOptions stream_;
  FunctionProvider provider_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<rpc::Relay> relay_;
};

// A client that resumes from what it holds.
class Collector {
 public:
  Collector(const FaultWorld& world, uint64_t start) : world_(world), start_(start), at_(start) {}

  // Where the next stream must begin.
  uint64_t at() const { return at_; }
  uint64_t start() const { return start_; }
  const reference::Ranges& held() const { return held_; }
  bool streaming() const { return cursor_ != nullptr; }
  // The answer is complete and proven by the server.
  bool proven() const { return proven_; }

  absl::Status Open(const rpc::ListRequest& request) {
    cursor_.reset();
    proven_ = false;
    auto opened = rpc::RemoteCursor::Open(request);
    if (!opened.ok()) return opened.status();
    cursor_ = *std::move(opened);
    capacity_ = cursor_->capacity();
    return absl::OkStatus();
  }

  // Reads at most `batches`; an error ends the stream. Returns true once complete.
  absl::StatusOr<bool> Read(size_t batches, size_t batch_capacity) {
    ExtentBatch batch(batch_capacity);
    for (; batches > 0; --batches) {
      absl::StatusOr<Step> step = cursor_->Next(batch);
      if (!step.ok()) {
        cursor_.reset();
        return step.status();
      }
      for (size_t i = 0; i < batch.size(); ++i) Take({batch[i].offset, batch[i].length});
      if (*step == Step::kComplete) {
        proven_ = cursor_->completeness() == rpc::Completeness::kProven;
        cursor_.reset();
        return true;
      }
    }
    return false;
  }

  void Drop() { cursor_.reset(); }

  // Checks that everything received is a prefix of the answer, without gaps or repeated tuples.
  testing::AssertionResult HoldsAPrefix() const {
    const reference::Ranges all = world_.truth.From(start_);
    for (size_t i = 0; i < held_.size(); ++i) {
      if (i < all.size() && held_[i] == all[i]) continue;
      return testing::AssertionFailure()
             << "from " << start_ << ", tuple " << i << " of " << all.size() << ": expected "
             << (i < all.size() ? testing::PrintToString(all[i]) : "the end") << ", got "
             << testing::PrintToString(held_[i]);
    }
    return testing::AssertionSuccess();
  }
  testing::AssertionResult HoldsAll() const {
    if (testing::AssertionResult prefix = HoldsAPrefix(); !prefix) return prefix;
    const size_t all = world_.truth.From(start_).size();
    if (held_.size() == all && capacity_ == world_.truth.capacity) {
      return testing::AssertionSuccess();
    }
    return testing::AssertionFailure()
           << "from " << start_ << ": expected " << all << " tuples and a capacity of "
           << world_.truth.capacity << ", got " << held_.size() << " and " << capacity_;
  }

 private:
  void Take(std::pair<uint64_t, uint64_t> tuple) {
    const uint64_t end = tuple.first + tuple.second;
    // The block at the starting offset comes whole. Nothing else may reach back.
    if (held_.empty() && tuple.first < at_ && end > at_) tuple = {at_, end - at_};
    held_.push_back(tuple);
    at_ = std::min(end, world_.truth.capacity);
  }

  const FaultWorld& world_;
  const uint64_t start_;
  uint64_t at_;
  uint64_t capacity_ = 0;  // according to the last stream
  reference::Ranges held_;
  bool proven_ = false;
  std::unique_ptr<rpc::RemoteCursor> cursor_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_FAULT_WORLD_H_
