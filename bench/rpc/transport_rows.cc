#include "bench/rpc/transport_rows.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "bench/rpc/grpc_peer.h"
#include "bench/rpc/parts.h"
#include "cbt/units.h"
#include "net/address.h"
#include "rpc/client/connect.h"
#include "rpc/http2/server.h"
#include "rpc/http2/tls_options.h"
#include "rpc/transport/client_call.h"
#include "rpc/transport/server_call.h"

namespace cbt::bench {
namespace {

constexpr uint32_t kTuples = 8192;
// Per iteration: about 200 MB.
constexpr size_t kCount = 2000;
// As many as a server's pool has: they stay in the processor's cache.
constexpr size_t kDifferent = 16;

const Messages& Some() {
  static const Messages messages = [] {
    Messages all = EncodeVolume(false, kTuples);
    Messages some;
    for (size_t i = 0; i < kDifferent; ++i) {
      some.bytes += all.encoded[i].size();
      some.encoded.push_back(std::move(all.encoded[i]));
    }
    some.tuples = uint64_t{kDifferent} * kTuples;
    return some;
  }();
  return messages;
}

// Writes `kCount` messages, each in its own memory.
class Sender final : public rpc::CallHandler {
 public:
  Sender(rpc::ServerCall& call, const std::vector<absl::Cord>& messages)
      : call_(call), messages_(messages) {
    Next();
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return call_.Finish(absl::CancelledError(""));
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void Next() {
    if (left_ == 0) return call_.Finish(absl::OkStatus());
    --left_;
    call_.Write(messages_[left_ % messages_.size()]);
  }

  rpc::ServerCall& call_;
  const std::vector<absl::Cord>& messages_;
  size_t left_ = kCount;
};

class SenderService final : public rpc::Service {
 public:
  explicit SenderService(const Messages& messages) {
    for (const std::string& message : messages.encoded) {
      messages_.push_back(absl::MakeCordFromExternal(message, [] {}));
    }
    AddMethod(
        kPath,
        [this](rpc::ServerCall& call, const absl::Cord&) -> absl::StatusOr<rpc::CallHandler*> {
          return new Sender(call, messages_);
        });
  }

 private:
  std::vector<absl::Cord> messages_;
};

// Drops messages.
class Dropper final : public rpc::ClientCallHandler {
 public:
  bool OnMessage(absl::Cord message) override {
    ++came_;
    bytes_ += message.size();
    return true;
  }
  void OnEnd(const absl::Status& status) override {
    const std::lock_guard lock(mutex_);
    status_ = status;
    ended_ = true;
    changed_.notify_one();
  }
  void Await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    Check(status_.ok() && came_ == kCount, "the stream failed");
  }

 private:
  size_t came_ = 0;
  size_t bytes_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ended_ = false;
  absl::Status status_;
};

void TransportOfCbt(benchmark::State& state, bool, Path path, uint32_t) {
  SenderService service(Some());
  auto tls = rpc::http2::MakeServerTls(ServerTls(path), {});
  Check(tls.ok(), "no TLS");
  rpc::http2::NewServerSsl ssl;
  if (IsTls(path)) {
    ssl = [&]() -> absl::StatusOr<net::OwnedSsl> {
      auto made = (*tls)->NewConnection();
      if (!made.ok()) return made.status();
      return net::OwnedSsl(made->release());
    };
  }
  const auto address = net::ParseAddress(Listen(path));
  Check(address.ok(), "no address");
  const auto server = rpc::http2::Server::Start(*address, {}, {&service}, ssl, {});
  Check(server.ok(), "no server");
  const auto channel = rpc::ConnectForGood((*server)->address(), ClientTls(path));
  Check(channel.ok(), "no channel");
  const CpuClock clock;
  for (auto _ : state) {
    const auto call = (*channel)->NewCall(std::nullopt);
    Dropper dropper;
    call->Start(kPath, "", dropper);
    dropper.Await();
  }
  clock.Report(state, uint64_t{kCount} * kTuples);
}

void OfGrpc(benchmark::State& state, bool, Path path, uint32_t) {
  TransportCeiling(state, path, Some(), kCount);
}

// The system's limit: one thread writes two messages at a time, another reads 64 KiB at a time.
void Socket(benchmark::State& state, bool, Path, uint32_t) {
  const Messages& messages = Some();
  std::array<int, 2> ends = {};
  Check(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0, "no sockets");
  const auto send = [&] {
    for (size_t i = 0; i < kCount; i += 2) {
      std::array<iovec, 2> parts = {};
      for (size_t part = 0; part < 2; ++part) {
        const std::string& message = messages.encoded[(i + part) % kDifferent];
        parts[part] = {const_cast<char*>(message.data()), message.size()};
      }
      std::span<iovec> left(parts);
      while (!left.empty()) {
        const ssize_t sent = writev(ends[0], left.data(), static_cast<int>(left.size()));
        Check(sent > 0, "the socket failed");
        size_t bytes = static_cast<size_t>(sent);
        while (!left.empty() && bytes >= left.front().iov_len) {
          bytes -= left.front().iov_len;
          left = left.subspan(1);
        }
        if (left.empty()) break;
        left.front().iov_base = static_cast<char*>(left.front().iov_base) + bytes;
        left.front().iov_len -= bytes;
      }
    }
  };
  uint64_t bytes = 0;
  for (size_t i = 0; i < kCount; ++i) bytes += messages.encoded[i % kDifferent].size();
  std::vector<char> space(64 * kKiB);
  const CpuClock clock;
  for (auto _ : state) {
    std::thread sender(send);
    for (uint64_t came = 0; came < bytes;) {
      const ssize_t got = read(ends[1], space.data(), space.size());
      Check(got > 0, "the socket failed");
      came += static_cast<uint64_t>(got);
    }
    sender.join();
  }
  clock.Report(state, uint64_t{kCount} * kTuples);
  for (const int end : ends) close(end);
}

}  // namespace

void AddTransportRows() {
  for (const Path path : {Path::kUnix, Path::kTcp, Path::kUnixTls, Path::kTcpTls}) {
    const std::string place = "transport/" + std::string(NameOf(path)) + "/8192/";
    AddRow(place + "cbt", TransportOfCbt, false, path, kTuples);
    AddRow(place + "ceiling", OfGrpc, false, path, kTuples);
    if (path == Path::kUnix) AddRow(place + "socket", Socket, false, path, kTuples);
  }
}

}  // namespace cbt::bench
