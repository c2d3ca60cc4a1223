#include "kube/client/core.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/percent.h"
#include "cbt/kube/status.h"
#include "kube/client/answer.h"
#include "kube/client/call_state.h"
#include "kube/client/endpoint.h"

namespace cbt::kube {
namespace {

// Without the server's word that it did nothing.
constexpr int kMaxDoubtfulRetries = 3;
constexpr std::chrono::milliseconds kFirstBackoff{100};
constexpr std::chrono::milliseconds kMaxBackoff{5000};
// The loop looks after everything at least this often.
constexpr std::chrono::milliseconds kLongestPoll{10'000};
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
      status.Update(AddHeader("Impersonate-Extra-" + PercentEncode(key, PercentPlain::kUnreserved),
                              value, headers));
    }
  }
  if (!status.ok()) return status;
  return headers;
}

}  // namespace

// ---- the beginning of a client and its calls

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

Client::Core::Core(const Config& config, const ClientOptions& options, TransferSettings settings)
    : options_(options),
      name_space_(config.name_space),
      settings_(std::move(settings)),
      multi_(Curl().multi_init()),
      bucket_(options.qps, options.burst, Clock::now()),
      random_(std::random_device()()) {
  if (multi_ != nullptr) Curl().multi_setopt(multi_.get(), CURLMOPT_PIPELINING, CURLPIPE_MULTIPLEX);
}

Client::Core::~Core() {
  Stop();
  // Its thread wakes the loop.
  credentials_.reset();
}

void Client::Core::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  if (multi_ != nullptr) Curl().multi_wakeup(multi_.get());
  if (thread_.joinable()) thread_.join();
}

void Client::Core::WakeForCancel() noexcept {
  cancelled_.store(true);
  Curl().multi_wakeup(multi_.get());
}

ClientCounters Client::Core::counters() const {
  return {.calls = count_calls_.load(),
          .requests = count_requests_.load(),
          .retries = count_retries_.load(),
          .connections = count_connections_.load()};
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

// ---- the thread

void Client::Core::Run() {
  // A server that closes a connection must not end the program.
  sigset_t broken_pipe;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
  thread_id_.store(std::this_thread::get_id());
  for (;;) {
    TakeNew();
    if (cancelled_.exchange(false)) EndCancelled();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ && new_calls_.empty()) {
        if (calls_.empty()) return;
      }
      if (stopping_) {
        for (const std::shared_ptr<CallState>& call : calls_) call->Cancel();
        for (const std::shared_ptr<CallState>& call : new_calls_) call->Cancel();
        cancelled_.store(true);
        continue;
      }
    }
    const Clock::time_point now = Clock::now();
    EndOverdue(now);
    StartWaiting(now);
    int running = 0;
    Curl().multi_perform(multi_.get(), &running);
    TakeFinished();
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(NextEvent(now) - Clock::now());
    bool idle = false;
    {
      const std::lock_guard lock(mutex_);
      idle = new_calls_.empty() && !stopping_;
    }
    if (idle && !cancelled_.load() && wait.count() > 0) {
      Curl().multi_poll(multi_.get(), nullptr, 0,
                        static_cast<int>(std::min(wait, kLongestPoll).count()), nullptr);
    }
  }
}

void Client::Core::TakeNew() {
  Calls taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(new_calls_);
  }
  while (!taken.empty()) {
    CallState& call = *taken.front();
    call.place = taken.begin();
    calls_.splice(calls_.end(), taken, call.place);
    if (call.cancelled()) cancelled_.store(true);
    if (!call.refusal.ok()) {
      End(call, call.refusal);
      continue;
    }
    try {
      if (waiting_.size() >= options_.max_waiting + options_.max_in_flight) {
        End(call, absl::ResourceExhaustedError(
                      absl::StrCat("more than ", options_.max_waiting, " calls wait already")));
        continue;
      }
      waiting_.push_back(&call);
    } catch (const std::exception&) {
      End(call, OutOfMemory());
    }
  }
}

void Client::Core::EndCancelled() {
  for (auto next = calls_.begin(); next != calls_.end();) {
    CallState& call = **next++;
    if (!call.cancelled()) continue;
    End(call, OrOutOfMemory([] { return absl::CancelledError("the call was cancelled"); }));
  }
}

// When something has to be done about a call although nothing comes from the server.
Client::Core::Clock::time_point Client::Core::TimeOf(const CallState& call) const noexcept {
  Clock::time_point time = call.deadline;
  if (call.phase == CallState::Phase::kPause) time = std::min(time, call.resume_at);
  const bool open = call.transfer != nullptr && call.transfer->head_complete();
  if (!open) {
    time = std::min(time, call.open_deadline);
  } else if (call.idle_timeout.count() > 0) {
    time = std::min(time, call.transfer->last_activity() + call.idle_timeout);
  }
  return time;
}

void Client::Core::EndOverdue(Clock::time_point now) {
  for (auto next = calls_.begin(); next != calls_.end();) {
    CallState& call = **next++;
    if (TimeOf(call) > now) continue;
    try {
      if (call.phase == CallState::Phase::kPause && call.resume_at <= now && call.deadline > now) {
        call.phase = CallState::Phase::kWaiting;
        waiting_.push_back(&call);
        continue;
      }
      std::string text = absl::StrCat(call.request.what, ": no answer in time");
      if (!call.last_error.ok()) {
        absl::StrAppend(&text,
                        "; the attempt before failed: ", std::string(call.last_error.message()));
      }
      End(call, absl::DeadlineExceededError(text));
    } catch (const std::exception&) {
      End(call, OutOfMemory());
    }
  }
}

void Client::Core::StartWaiting(Clock::time_point now) {
  next_token_ = Clock::time_point::max();
  awaits_credentials_ = false;
  while (!waiting_.empty()) {
    CallState* const call = waiting_.front();
    if (call == nullptr) {
      waiting_.pop_front();
      continue;
    }
    if (!call->sink && on_wire_ >= options_.max_in_flight) return;
    absl::StatusOr<std::shared_ptr<const Identity>> identity = OutOfMemory();
    try {
      identity = credentials_->Get(now);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): OutOfMemory() stands
    }
    if (!identity.ok()) {
      waiting_.pop_front();
      End(*call, identity.status());
      continue;
    }
    if (*identity == nullptr) return;  // wakes when there are some
    if (!bucket_.Take(now)) {
      next_token_ = bucket_.Next(now);
      return;
    }
    waiting_.pop_front();
    try {
      Launch(*call, *std::move(identity));
    } catch (const std::exception&) {
      End(*call, OutOfMemory());
    }
  }
}

void Client::Core::Launch(CallState& call, std::shared_ptr<const Identity> identity) {
  auto transfer = std::make_unique<Transfer>(settings_, call.request, std::move(identity),
                                             call.sink ? &*call.sink : nullptr, options_.max_body);
  absl::Status status = transfer->Prepare();
  if (status.ok() && Curl().multi_add_handle(multi_.get(), transfer->easy()) != CURLM_OK) {
    status = OutOfMemory();
  }
  if (!status.ok()) {
    End(call, std::move(status));
    return;
  }
  call.transfer = std::move(transfer);
  call.phase = CallState::Phase::kOnWire;
  if (!call.sink) ++on_wire_;
  count_requests_.fetch_add(1);
  if (call.retries != 0 || call.rejected) count_retries_.fetch_add(1);
}

void Client::Core::TakeFinished() {
  int left = 0;
  while (const CURLMsg* const message = Curl().multi_info_read(multi_.get(), &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    CURL* const easy = message->easy_handle;
    const CURLcode code = message->data.result;
    Transfer* transfer = nullptr;
    Curl().easy_getinfo(easy, CURLINFO_PRIVATE, &transfer);
    long connections = 0;
    Curl().easy_getinfo(easy, CURLINFO_NUM_CONNECTS, &connections);
    count_connections_.fetch_add(static_cast<uint64_t>(std::max(connections, 0L)));
    const auto found = std::find_if(calls_.begin(), calls_.end(), [&](const auto& call) {
      return call->transfer.get() == transfer;
    });
    if (found == calls_.end()) continue;
    CallState& call = **found;
    try {
      TakeResult(call, transfer->Finish(code));
    } catch (const std::exception&) {
      End(call, OutOfMemory());
    }
  }
}

std::chrono::milliseconds Client::Core::Backoff(int retries) {
  const auto full = std::min(kMaxBackoff, kFirstBackoff * (1 << std::min(retries, 10)));
  std::uniform_int_distribution<int64_t> part(0, full.count() / 2);
  return full - std::chrono::milliseconds(part(random_));
}

bool Client::Core::Repeat(CallState& call, const absl::Status& error,
                          std::chrono::milliseconds wait) {
  const Clock::time_point now = Clock::now();
  if (call.retries >= options_.max_retries || call.deadline - now <= wait) return false;
  Detach(call);
  ++call.retries;
  call.last_error = error;
  call.phase = CallState::Phase::kPause;
  call.resume_at = now + wait;
  return true;
}

void Client::Core::TakeResult(CallState& call, Transfer::Result result) {
  const uint64_t generation = call.transfer->identity().generation;
  if (!result.status.ok()) {
    const bool doubtful = result.maybe_sent;
    const bool may =
        !call.sink && !result.lasting &&
        (!doubtful || (call.request.repeatable && call.doubtful_retries < kMaxDoubtfulRetries));
    if (may && Repeat(call, result.status, Backoff(call.retries))) {
      if (doubtful) ++call.doubtful_retries;
      return;
    }
    End(call, std::move(result.status));
    return;
  }
  Answer& answer = result.answer;
  if (answer.http_code >= 200 && answer.http_code < 300) {
    Conclude(call, std::move(answer));
    return;
  }
  absl::Status error = ErrorOf(answer, call.request.what);
  if (answer.http_code == 401 && !call.rejected && credentials_->Reject(generation)) {
    Detach(call);
    call.rejected = true;
    call.last_error = error;
    call.phase = CallState::Phase::kPause;
    call.resume_at = Clock::now();
    return;
  }
  const std::optional<std::chrono::milliseconds> asked = RetryAfterOf(error);
  // The server did nothing if it is too busy, or says when to come again.
  const bool refused = answer.http_code == 429 || (answer.http_code >= 500 && asked);
  const bool doubtful = answer.http_code >= 500 && answer.http_code != 501 && !asked &&
                        call.request.repeatable && call.doubtful_retries < kMaxDoubtfulRetries;
  if (!call.sink && (refused || doubtful)) {
    // Retry-After: 0 counts as the minimum wait.
    const std::chrono::milliseconds backoff = Backoff(call.retries);
    const std::chrono::milliseconds wait = asked ? std::max(*asked, kFirstBackoff / 2) : backoff;
    if (Repeat(call, error, wait)) {
      if (doubtful) ++call.doubtful_retries;
      return;
    }
  }
  Conclude(call, std::move(error));
}

void Client::Core::Conclude(CallState& call, absl::StatusOr<Answer> result) {
  // The transfer refers to the request.
  Detach(call);
  if (!call.next || !call.next(result)) {
    End(call, std::move(result));
    return;
  }
  call.phase = CallState::Phase::kPause;
  call.resume_at = Clock::now();
  call.deadline = call.resume_at + call.request_timeout;
  call.retries = 0;
  call.doubtful_retries = 0;
  call.rejected = false;
}

void Client::Core::Detach(CallState& call) noexcept {
  if (call.transfer == nullptr) return;
  Curl().multi_remove_handle(multi_.get(), call.transfer->easy());
  call.transfer.reset();
  if (!call.sink) --on_wire_;
}

void Client::Core::End(CallState& call, absl::StatusOr<Answer> result) noexcept {
  Detach(call);
  if (call.phase == CallState::Phase::kWaiting) {
    std::replace(waiting_.begin(), waiting_.end(), &call, static_cast<CallState*>(nullptr));
  }
  const std::shared_ptr<CallState> held = std::move(*call.place);
  calls_.erase(call.place);
  try {
    if (held->done) held->done(std::move(result));
  } catch (...) {  // NOLINT(bugprone-empty-catch): as promised
  }
}

Client::Core::Clock::time_point Client::Core::NextEvent(Clock::time_point now) const {
  Clock::time_point next = std::min(now + kLongestPoll, next_token_);
  for (const std::shared_ptr<CallState>& call : calls_) next = std::min(next, TimeOf(*call));
  return next;
}

}  // namespace cbt::kube
