#include "rpc/http2/channel.h"

#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "net/tls_context.h"
#include "rpc/contract/status.h"
#include "rpc/http2/call_core.h"
#include "rpc/http2/channel_core.h"
#include "rpc/http2/driven_loop.h"
#include "rpc/http2/tls_options.h"

namespace cbt::rpc::http2 {
namespace {

class Http2Call final : public ClientCall {
 public:
  explicit Http2Call(std::shared_ptr<CallCore> core) : core_(std::move(core)) {}

  void Start(const std::string& path, const std::string& request,
             ClientCallHandler& handler) override {
    core_->Start(path, request, handler);
  }
  void ReadOn() noexcept override { core_->ReadOn(); }
  void Cancel() noexcept override { core_->Cancel(); }
  std::optional<std::string_view> Initial(std::string_view key) const override {
    return core_->response().Initial(key);
  }
  std::optional<std::string_view> Trailing(std::string_view key) const override {
    return core_->response().Trailing(key);
  }

 private:
  const std::shared_ptr<CallCore> core_;
};

class Http2Channel final : public Channel {
 public:
  // `driven`: the core's loop, if this channel's users run it.
  Http2Channel(std::shared_ptr<ChannelCore> core, std::shared_ptr<DrivenLoop> driven)
      : driven_(std::move(driven)), core_(std::move(core)) {}
  ~Http2Channel() override {
    // Closes the connection now, not at the caretaker's next check.
    core_.reset();
    if (driven_ != nullptr) RunOneTurn();
  }

  std::unique_ptr<ClientCall> NewCall(Deadline deadline) override {
    return std::make_unique<Http2Call>(std::make_shared<CallCore>(core_, deadline));
  }
  absl::Status Connect(std::chrono::system_clock::time_point deadline) override {
    return core_->Connect(deadline, driven_.get());
  }
  bool IsTransient() noexcept override { return core_->IsTransient(); }
  bool HandleEvents(absl::FunctionRef<bool()> done,
                    net::EventLoop::Clock::time_point until) noexcept override {
    if (driven_ == nullptr) return false;
    driven_->RunUntil(done, until);
    return true;
  }

 private:
  void RunOneTurn() noexcept {
    bool again = false;
    driven_->RunUntil([&] { return std::exchange(again, true); },
                      net::EventLoop::Clock::now() + std::chrono::milliseconds(1));
  }

  const std::shared_ptr<DrivenLoop> driven_;
  std::shared_ptr<ChannelCore> core_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Channel>> MakeChannel(const net::Address& address,
                                                     const ClientTlsOptions& tls,
                                                     const ChannelOptions& options,
                                                     std::shared_ptr<const ClientLoop> loop) try {
  std::unique_ptr<net::ClientTls> context;
  if (tls.enabled) {
    absl::StatusOr<std::unique_ptr<net::ClientTls>> made = MakeClientTls(tls);
    if (!made.ok()) return made.status();
    context = *std::move(made);
  }
  std::shared_ptr<DrivenLoop> driven;
  if (loop == nullptr && options.events_in_waiting_threads) {
    absl::StatusOr<std::shared_ptr<DrivenLoop>> made = DrivenLoop::Create();
    if (!made.ok()) return made.status();
    driven = *std::move(made);
    loop = std::shared_ptr<const ClientLoop>(driven, &driven->parts());
  } else if (loop == nullptr) {
    absl::StatusOr<std::shared_ptr<const ClientLoop>> shared = SharedClientLoop();
    if (!shared.ok()) return shared.status();
    loop = *std::move(shared);
  }
  return std::make_shared<Http2Channel>(
      ChannelCore::Create(address, std::move(context), options, std::move(loop)),
      std::move(driven));
} catch (const std::bad_alloc&) {
  return OutOfMemory();
}

}  // namespace cbt::rpc::http2
