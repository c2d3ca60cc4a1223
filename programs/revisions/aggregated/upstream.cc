#include "programs/revisions/aggregated/upstream.h"

#include <algorithm>
#include <future>
#include <string_view>

namespace cbt::kube::aggregated {
namespace {

constexpr std::chrono::seconds kConnectTime{5};

}  // namespace

absl::StatusOr<Upstream::ClientPtr> Upstream::ClientOf(const DriverDiscovery& service) {
  const std::string server = service.endpoint().server;
  // Its end waits for its thread: not under the lock.
  ClientPtr oldest;
  const std::lock_guard lock(mutex_);
  if (stopped_) return absl::CancelledError("the server ends");
  const auto found = std::find_if(clients_.begin(), clients_.end(), [&](const Entry& one) {
    return one.server == server && one.ca == service.ca;
  });
  if (found != clients_.end()) {
    clients_.splice(clients_.end(), clients_, found);
    return found->client;
  }
  Config config;
  config.server = server;
  config.ca = service.ca;
  config.client_certificate_file = certificate_file_;
  config.client_key_file = key_file_;
  ClientOptions options;
  options.qps = 0;
  options.connect_timeout = kConnectTime;
  options.max_body = kMaxPageLine;
  options.user_agent = "cbt-aggregated-api";
  absl::StatusOr<std::unique_ptr<Client>> client = Client::Create(std::move(config), options);
  if (!client.ok()) return client.status();
  if (clients_.size() >= kMaxServices) {
    oldest = std::move(clients_.front().client);
    clients_.pop_front();
  }
  clients_.push_back({.server = server, .ca = service.ca, .client = *std::move(client)});
  return clients_.back().client;
}

absl::Status Upstream::ReadPage(const DriverDiscovery& service, const DeltaPageRequest& request,
                                std::chrono::milliseconds timeout, PageReader& reader,
                                const std::function<void(const PageBlock&)>& take) {
  const absl::StatusOr<ClientPtr> client = ClientOf(service);
  if (!client.ok()) return client.status();
  Request call = {.method = "POST",
                  .path = service.endpoint().path + kDeltaPagesPath,
                  .content_type = "application/json",
                  .accept = "application/x-ndjson",
                  .body = request.ToJson()};
  StreamCallOptions options;
  options.open_timeout = timeout;
  options.timeout = timeout;
  options.max_line = kMaxPageLine;
  std::promise<absl::Status> ended;
  const Call started = (*client)->StreamAsync(
      std::move(call), options, {},
      [&](std::string_view line) -> absl::Status {
        const absl::StatusOr<const PageBlock*> block = reader.Take(line);
        if (!block.ok()) return block.status();
        if (*block != nullptr) take(**block);
        return absl::OkStatus();
      },
      [&](const absl::Status& status) { ended.set_value(status); });
  std::list<Call>::iterator place;
  {
    const std::lock_guard lock(mutex_);
    place = calls_.insert(calls_.end(), started);
    if (stopped_) started.Cancel();
  }
  absl::Status status = ended.get_future().get();
  {
    const std::lock_guard lock(mutex_);
    calls_.erase(place);
  }
  return status.ok() ? reader.Finish() : status;
}

void Upstream::Stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  for (const Call& one : calls_) one.Cancel();
}

absl::Status Upstream::Check(const DriverDiscovery& service, std::chrono::milliseconds timeout) {
  const absl::StatusOr<ClientPtr> client = ClientOf(service);
  if (!client.ok()) return client.status();
  CallOptions options;
  options.timeout = timeout;
  return (*client)
      ->Send({.path = service.endpoint().path + "/readyz", .accept = "*/*"}, options)
      .status();
}

}  // namespace cbt::kube::aggregated
