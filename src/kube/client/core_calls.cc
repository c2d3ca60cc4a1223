// How a client, and its calls, begin.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kube/client/answer.h"
#include "kube/client/call_state.h"
#include "kube/client/core.h"
#include "kube/client/endpoint.h"
#include "kube/object/percent.h"

namespace cbt::kube {
namespace {

constexpr std::chrono::milliseconds kMaxTimeout = std::chrono::hours(24);

// A header for impersonation. A line break in it would begin another header.
absl::Status AddHeader(std::string_view name, std::string_view value,
                       std::vector<std::string>& headers) {
  const bool clean = std::none_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (!clean || value.empty()) {
    return absl::InvalidArgumentError("impersonation: a name is empty or has control characters");
  }
  headers.push_back(absl::StrCat(std::string(name), ": ", std::string(value)));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ImpersonationHeaders(const Impersonation& as) {
  std::vector<std::string> headers;
  if (as.user.empty()) {
    if (as.uid.empty() && as.groups.empty() && as.extra.empty()) return headers;
    return absl::InvalidArgumentError("impersonation: needs the name of a user");
  }
  absl::Status status = AddHeader("Impersonate-User", as.user, headers);
  if (!as.uid.empty()) status.Update(AddHeader("Impersonate-Uid", as.uid, headers));
  for (const std::string& group : as.groups) {
    status.Update(AddHeader("Impersonate-Group", group, headers));
  }
  for (const auto& [key, values] : as.extra) {
    for (const std::string& value : values) {
      status.Update(AddHeader("Impersonate-Extra-" + PercentEncode(key), value, headers));
    }
  }
  if (!status.ok()) return status;
  return headers;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Client::Core>> Client::Core::Create(const Config& config,
                                                                   const ClientOptions& options) {
  absl::StatusOr<Endpoint> endpoint = ParseEndpoint(config);
  if (!endpoint.ok()) return endpoint.status();
  const bool credentials = config.exec || !config.token.empty() || !config.token_file.empty() ||
                           !config.username.empty();
  if (!endpoint->tls && credentials) {
    return absl::InvalidArgumentError("credentials are sent over https only");
  }
  if (options.max_in_flight == 0 || options.timeout.count() <= 0 || options.max_retries < 0) {
    return absl::InvalidArgumentError(
        "options: max_in_flight and timeout must be positive, max_retries must not be negative");
  }
  absl::StatusOr<std::vector<std::string>> headers = ImpersonationHeaders(config.as);
  if (!headers.ok()) return headers.status();
  TransferSettings settings{
      .endpoint = *std::move(endpoint),
      .proxy_url = config.proxy_url,
      .insecure_skip_tls_verify = config.insecure_skip_tls_verify,
      .user_agent = absl::StrCat(options.user_agent, options.user_agent.empty() ? "" : " ",
                                 "libcbt/", kVersion),
      .connect_timeout = options.connect_timeout,
      .headers = *std::move(headers)};
  std::shared_ptr<Core> core(new Core(config, options, std::move(settings)));
  if (core->multi_ == nullptr) return absl::Status(absl::StatusCode::kResourceExhausted, "");
  absl::StatusOr<std::unique_ptr<Credentials>> made =
      Credentials::Create(config, [multi = core->multi_.get()] { Curl().multi_wakeup(multi); });
  if (!made.ok()) return made.status();
  core->credentials_ = *std::move(made);
  core->thread_ = std::thread([core = core.get()] { core->Run(); });
  return core;
}

Client::Core::Clock::time_point Client::Core::DeadlineOf(const Timeout& timeout) const {
  return Clock::now() + std::min(timeout.value_or(options_.timeout), kMaxTimeout);
}

Call Client::Core::Begin(absl::StatusOr<ApiRequest> request, const Timeout& timeout,
                         ResultCallback<Answer> done) {
  auto call = std::make_shared<CallState>(weak_from_this());
  if (request.ok()) call->request = std::move(request->wire);
  call->done = std::move(done);
  call->deadline = DeadlineOf(timeout);
  return Start(std::move(call), request.status());
}

Call Client::Core::BeginObject(absl::StatusOr<ApiRequest> request, const Timeout& timeout,
                               ResultCallback<Object> done) {
  Expected expected;
  if (request.ok()) expected = request->expected;
  return Begin(std::move(request), timeout,
               [expected = std::move(expected),
                done = std::move(done)](const absl::StatusOr<Answer>& answer) {
                 done(OrOutOfMemory([&]() -> absl::StatusOr<Object> {
                   if (!answer.ok()) return answer.status();
                   return ObjectOf(*answer, expected);
                 }));
               });
}

Call Client::Core::BeginSeries(absl::StatusOr<ApiRequest> request, const Timeout& timeout,
                               Next next, ResultCallback<Answer> done) {
  auto call = std::make_shared<CallState>(weak_from_this());
  if (request.ok()) call->request = std::move(request->wire);
  call->done = std::move(done);
  call->request_timeout = std::min(timeout.value_or(options_.timeout), kMaxTimeout);
  call->deadline = Clock::now() + call->request_timeout;
  call->next = [call = call.get(), next = std::move(next)](const absl::StatusOr<Answer>& answer) {
    absl::StatusOr<ApiRequest> following = next(answer);
    if (!following.ok()) return false;
    call->request = std::move(following->wire);
    return true;
  };
  return Start(std::move(call), request.status());
}

Call Client::Core::BeginStream(absl::StatusOr<WireRequest> request,
                               const StreamCallOptions& options, StreamSink sink,
                               StatusCallback done) {
  auto call = std::make_shared<CallState>(weak_from_this());
  if (request.ok()) call->request = *std::move(request);
  call->sink = std::move(sink);
  call->done = [done = std::move(done)](const absl::StatusOr<Answer>& answer) {
    done(answer.status());
  };
  call->open_deadline = DeadlineOf(options.open_timeout);
  if (options.timeout) call->deadline = DeadlineOf(options.timeout);
  if (options.idle_timeout) call->idle_timeout = std::min(*options.idle_timeout, kMaxTimeout);
  return Start(std::move(call), request.status());
}

Call Client::Core::Start(std::shared_ptr<CallState> call, absl::Status status) {
  call->refusal = std::move(status);
  Call handle = call->MakeCall();
  count_calls_.fetch_add(1);
  {
    const std::lock_guard lock(mutex_);
    new_calls_.push_back(std::move(call));
  }
  Curl().multi_wakeup(multi_.get());
  return handle;
}

}  // namespace cbt::kube
