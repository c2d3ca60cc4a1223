#include "programs/cbt/options/serving.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/units.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

// Set by PrepareProcess(), before any thread starts.
std::vector<int>& StopSignalNumbers() {
  static std::vector<int> numbers;
  return numbers;
}

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : StopSignalNumbers()) sigaddset(&set, number);
  return set;
}

// Waits for the next stop signal; false if none came within `timeout`, or if another signal (such
// as a debugger's) interrupted the wait.
bool WaitForStopSignal(std::chrono::milliseconds timeout) {
  const sigset_t set = StopSignals();
  const timespec limit = {.tv_sec = timeout.count() / 1000,
                          .tv_nsec = timeout.count() % 1000 * 1'000'000};
  return sigtimedwait(&set, nullptr, &limit) > 0;
}

// Returns free memory between live blocks to the system.
void TrimHeap() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

// Fixes where freed memory goes. By default, glibc raises its thresholds when the first large block
// is freed, and a server whose clients come and go would grow for hours. What connections read into
// (64 KiB at a time) stays in the heaps until TrimHeap(): mapped anew for each message, it would
// cost a page fault for each of its pages, which is most of a relay's time.
void GiveMemoryBack() {
#ifdef __GLIBC__
  constexpr int kMapFrom = 128 * kKiB;  // bytes; blocks of a stream, which live as long as it
  constexpr int kKeep = 8 * kMiB;       // bytes at the end of a heap
  // NOLINTBEGIN(concurrency-mt-unsafe): no thread runs yet
  mallopt(M_MMAP_THRESHOLD, kMapFrom);
  mallopt(M_TRIM_THRESHOLD, kKeep);
  // NOLINTEND(concurrency-mt-unsafe)
#endif
}

// Notifies the parent process that clients can connect. A closed pipe is no reason to stop.
void TellReady(int descriptor, const std::string& address) {
  const std::string line = address + "\n";
  [[maybe_unused]] const ssize_t written = write(descriptor, line.data(), line.size());
  if (descriptor > STDERR_FILENO) {
    close(descriptor);
    return;
  }
  // Keep a standard descriptor occupied, or the next socket would become stdout.
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, descriptor);
    close(null);
  }
}

using Clock = std::chrono::steady_clock;

// timeout(1), and anything that signals both a process and its group, sends a signal twice but
// means it once.
constexpr std::chrono::milliseconds kDuplicateSignalTime(200);

// A signal before this time is an echo of the first one. Read in a signal handler.
std::atomic<Clock::rep> duplicates_end = 0;
static_assert(std::atomic<Clock::rep>::is_always_lock_free);

bool IsEcho() noexcept { return Clock::now().time_since_epoch().count() <= duplicates_end; }

// The program's name and `text`, as one line.
void WriteInHandler(std::string_view text) noexcept {
  const std::string_view name = ProgramName();
  const iovec parts[] = {{const_cast<char*>(name.data()), name.size()},
                         {const_cast<char*>(text.data()), text.size()}};
  [[maybe_unused]] const ssize_t written = writev(STDERR_FILENO, parts, 2);
}

void EndAtOnce(int) noexcept {
  if (IsEcho()) return;
  WriteInHandler(": second signal: cancelling open reads\n");
  _exit(kExitFailure);
}

void EndTooLate(int) noexcept {
  WriteInHandler(": reads that were cancelled did not end in time\n");
  _exit(kExitFailure);
}

// How long threads may read after the drain, until the process ends without them.
constexpr unsigned kLastReadSeconds = 15;

// Threads that read from hung storage keep the process from exiting, and a supervisor may send no
// second signal.
void LimitLastReads() {
  struct sigaction action = {};
  action.sa_handler = EndTooLate;
  action.sa_flags = SA_RESTART;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGALRM);
  sigaction(SIGALRM, &action, nullptr);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  alarm(kLastReadSeconds);
}

// From here on stop signals are no longer awaited, and threads that read from hung storage keep the
// process from exiting.
void LetSignalsEndTheProcess() {
  struct sigaction action = {};
  action.sa_handler = EndAtOnce;
  action.sa_flags = SA_RESTART;
  const sigset_t set = StopSignals();
  for (const int number : StopSignalNumbers()) sigaction(number, &action, nullptr);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

// The time limit of a drain in addition to the grace period, whatever the transport waits for.
constexpr std::chrono::seconds kDrainTime(15);

// Drains; a second signal can still end the process at once.
void Drain(const std::string& name,
           const std::function<void(std::chrono::milliseconds grace)>& shutdown,
           std::chrono::milliseconds grace) {
  constexpr std::chrono::milliseconds kInterval(20);
  const Clock::time_point latest =
      Clock::now() + std::min<std::chrono::milliseconds>(grace, std::chrono::hours(24 * 365)) +
      kDrainTime;
  duplicates_end = (Clock::now() + kDuplicateSignalTime).time_since_epoch().count();
  std::atomic<bool> drained = false;
  std::thread drainer([&] {
    shutdown(grace);
    drained = true;
  });
  while (!drained) {
    if (WaitForStopSignal(kInterval) && !IsEcho()) {
      PrintLine(name, "second signal: cancelling open streams");
      _exit(kExitFailure);
    }
    // A supervisor that sent the signal may not send another.
    if (Clock::now() > latest) {
      PrintLine(name, "the drain did not finish in time: cancelling open streams");
      _exit(kExitFailure);
    }
  }
  drainer.join();
  LetSignalsEndTheProcess();
  LimitLastReads();
}

// The error of a part, prefixed with its option.
absl::Status Of(const char* option, const absl::Status& status) {
  return {status.code(), std::string(option) + ": " + MessageOf(status)};
}

absl::Status CheckReadable(const char* option, const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  absl::StatusOr<std::string> text = ReadTextFile(option, path);
  if (!text.ok()) return text.status();
  if (text->empty()) return UsageError(std::string(option) + ": " + path, "the file is empty");
  return absl::OkStatus();
}

std::vector<std::pair<std::string, rpc::LogLevel>> NamedLevels() {
  std::vector<std::pair<std::string, rpc::LogLevel>> named;
  for (const rpc::LogLevel level : {rpc::LogLevel::kDebug, rpc::LogLevel::kInfo,
                                    rpc::LogLevel::kWarning, rpc::LogLevel::kError}) {
    named.emplace_back(rpc::LogLevelName(level), level);
  }
  return named;
}

// `--api A,B,...`; without the option, `apis` stays as it is.
void AddApisOption(CLI::App& subcommand, std::vector<rpc::Api>& apis) {
  std::string shown;
  for (const rpc::Api api : apis) shown.append(shown.empty() ? "" : ",").append(rpc::ApiName(api));
  std::vector<std::string> names;
  for (const rpc::Api api :
       {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession, rpc::Api::kPaged}) {
    names.emplace_back(rpc::ApiName(api));
  }
  subcommand
      .add_option_function<std::vector<std::string>>(
          "--api",
          [&apis](const std::vector<std::string>& chosen) {
            apis.clear();
            for (const std::string& name : chosen) apis.push_back(rpc::ParseApi(name).value());
          },
          "Contracts to serve: csi, kubernetes, session, paged; separate several with commas")
      ->type_name("API")
      ->check(IsOneOf(std::move(names)))
      ->delimiter(',')
      ->default_str(shown);
}

void AddAccessOptions(CLI::App& subcommand, ServingArguments& arguments) {
  subcommand
      .add_option("--tokens", arguments.tokens,
                  "Permitted clients (kubernetes): lines of token, name, namespaces")
      ->type_name("FILE");
  subcommand
      .add_option(
          "--snapshots", arguments.snapshots,
          "Names (kubernetes, session): lines of namespace, name, handle; default: a handle is "
          "NAMESPACE/NAME")
      ->type_name("FILE");
  subcommand
      .add_option("--storage-secrets", arguments.secrets,
                  "KEY=VALUE lines for the storage (kubernetes, session)")
      ->type_name("FILE");
  subcommand
      .add_option("--sessions", arguments.sessions,
                  "Sessions (session): lines of token, namespace, snapshots, expiry")
      ->type_name("FILE");
  subcommand.add_flag("--base-is-name", arguments.base_is_name,
                      "The base of a delta is a name, not a handle (kubernetes)");
  subcommand
      .add_option(
          "--page-key", arguments.page_key,
          "Secret that seals page tokens (paged); must be the same on all servers that share them")
      ->type_name("FILE");
}

void AddTelemetryOptions(CLI::App& subcommand, ServingArguments& arguments) {
  subcommand
      .add_option("--metrics", arguments.metrics,
                  "Serve Prometheus metrics at http://ADDR/metrics (host:port)")
      ->type_name("ADDR");
  AddLogOptions(subcommand, arguments,
                "Log streams to stderr or --log-file: debug, info, warning or error");
}

// Throws CLI::ValidationError unless the number is from 1 to `most`.
void AddCount(CLI::App& subcommand, const std::string& option, size_t& count, uint64_t most,
              const char* what, const char* shown) {
  subcommand
      .add_option_function<std::string>(
          option,
          [option, &count, most](const std::string& text) {
            const absl::StatusOr<uint64_t> value = ParseNumber(text, most);
            if (!value.ok()) throw CLI::ValidationError(option, MessageOf(value.status()));
            if (*value == 0) throw CLI::ValidationError(option, "not above 0");
            count = static_cast<size_t>(*value);
          },
          what)
      ->type_name("N")
      ->default_str(shown);
}

// Limits of connections; docs/guides/running-servers.md has the table.
void AddConnectionOptions(CLI::App& subcommand, rpc::ConnectionOptions& connection) {
  AddCount(subcommand, "--max-connections", connection.max_connections, 1 << 20,
           "Maximum number of connections; a further one replaces the longest without a call",
           "6000");
  AddCount(subcommand, "--memory", connection.memory_quota, kTiB,
           "Bytes that all connections may hold (64M, 1G); beyond them connections without a call "
           "are closed, and if that does not suffice, calls are refused",
           "256M");
  AddTime(subcommand, "--handshake-time", connection.handshake_time,
          "Time limit for the handshakes of TLS and HTTP/2", "20");
  AddTime(subcommand, "--idle-time", connection.idle_time,
          "Close a connection that has had no stream for this long; 0: never", "0");
  AddTime(
      subcommand, "--connection-age", connection.max_age,
      "A connection of this age takes no new streams, and is closed after as long again; 0: one "
      "hour with --tls-client-ca, else no limit",
      "0");
}

}  // namespace

void PrepareProcess(const std::vector<int>& stop_signals) {
  StopSignalNumbers() = stop_signals;
  // nohup has SIGHUP ignored, for processes that outlive their terminal.
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler == SIG_IGN) std::erase(StopSignalNumbers(), SIGHUP);
  // Shells start background jobs with SIGINT ignored, and ignored signals can't be awaited.
  for (const int number : StopSignalNumbers()) std::signal(number, SIG_DFL);
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  // A stream takes about three descriptors, two images and its connection, and a listener that has
  // once run out of them may never accept again. If the limit can't be raised, it stays as it is.
  rlimit descriptors;
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = descriptors.rlim_max;
    setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  // The socket must never be wider than 0660, not even briefly.
  umask(S_IXUSR | S_IXGRP | S_IRWXO);
}

absl::Status CheckReadyDescriptor(const ServingArguments& arguments) {
  if (!arguments.ready_descriptor.has_value()) return absl::OkStatus();
  const int descriptor = *arguments.ready_descriptor;
  const int flags = fcntl(descriptor, F_GETFL);
  const std::string where = "--ready-fd: " + std::to_string(descriptor);
  if (flags < 0) return UsageError(where, "not an open descriptor");
  if ((flags & O_ACCMODE) == O_RDONLY) return UsageError(where, "not open for writing");
  return absl::OkStatus();
}

void AddTime(CLI::App& subcommand, const char* option, std::chrono::milliseconds& time,
             const char* what, const char* shown) {
  subcommand
      .add_option_function<std::string>(
          option,
          [option, &time](const std::string& text) {
            const absl::StatusOr<std::chrono::milliseconds> value = ParseSeconds(text);
            if (!value.ok()) throw CLI::ValidationError(option, MessageOf(value.status()));
            time = *value;
          },
          what)
      ->type_name("SECONDS")
      ->default_str(shown);
}

void AddLogOptions(CLI::App& subcommand, ServingArguments& arguments, const char* level) {
  AddChoiceOption<rpc::LogLevel>(subcommand, "--log-level", arguments.log_level, NamedLevels(),
                                 level)
      ->type_name("LEVEL");
  subcommand.add_option("--log-file", arguments.log_file, "Append the log to this file")
      ->type_name("FILE");
}

void AddLifeOptions(CLI::App& subcommand, ServingArguments& arguments, const char* grace) {
  subcommand
      .add_option_function<std::string>(
          "--ready-fd",
          [&arguments](const std::string& text) {
            const absl::StatusOr<uint64_t> value = ParseNumber(text, 1 << 20);
            if (!value.ok()) throw CLI::ValidationError("--ready-fd", MessageOf(value.status()));
            arguments.ready_descriptor = static_cast<int>(*value);
          },
          "When ready for clients, write the address to this descriptor and close it")
      ->type_name("N");
  AddTime(subcommand, "--grace", arguments.grace, grace, "5");
}

void AddPageOptions(CLI::App& subcommand, std::string& endpoint, ops::PageAccess& access) {
  subcommand
      .add_option("--http-endpoint", endpoint,
                  "Address of /metrics, /healthz, /livez and /readyz; default: none")
      ->type_name("HOST:PORT");
  subcommand
      .add_option("--metrics-token", access.token_file,
                  "Scrapers need the token in this file for /metrics: Authorization: Bearer; "
                  "default: none")
      ->type_name("FILE");
  CLI::Option* const certificate =
      subcommand
          .add_option("--metrics-tls-cert", access.certificate_file,
                      "HTTPS for the pages of --http-endpoint: certificate chain (PEM), read "
                      "again when it changes; default: HTTP")
          ->type_name("FILE");
  CLI::Option* const key =
      subcommand.add_option("--metrics-tls-key", access.private_key_file, "Its private key (PEM)")
          ->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
}

void AddServingOptions(CLI::App& subcommand, ServingArguments& arguments,
                       std::vector<rpc::Api> apis) {
  arguments.apis = std::move(apis);
  subcommand.add_option("--listen", arguments.listen, "unix:///path/to.sock or host:port")
      ->type_name("ADDR")
      ->required();
  AddApisOption(subcommand, arguments.apis);
  CLI::Option* const certificate =
      subcommand
          .add_option("--tls-cert", arguments.tls_certificate,
                      "Certificate chain (PEM); read again when it changes")
          ->type_name("FILE");
  CLI::Option* const key =
      subcommand.add_option("--tls-key", arguments.tls_key, "Private key of the certificate (PEM)")
          ->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  subcommand
      .add_option("--tls-client-ca", arguments.tls_client_ca,
                  "Require client certificates of this authority (PEM)")
      ->type_name("FILE")
      ->needs(certificate);
  AddAccessOptions(subcommand, arguments);
  AddTelemetryOptions(subcommand, arguments);
  subcommand
      .add_option_function<std::string>(
          "--max-streams",
          [&arguments](const std::string& text) {
            const absl::StatusOr<uint64_t> value = ParseNumber(text, 1 << 20);
            if (!value.ok()) throw CLI::ValidationError("--max-streams", MessageOf(value.status()));
            arguments.max_streams = *value;
          },
          "Maximum number of open streams")
      ->type_name("N")
      ->default_str("1024");
  AddTime(subcommand, "--stream-time", arguments.stream_time,
          "Time limit for a stream; 0: no limit", "0");
  AddTime(subcommand, "--stall-time", arguments.stall_time,
          "Cancel a stream whose client reads nothing for this long", "300");
  AddConnectionOptions(subcommand, arguments.connection);
  AddLifeOptions(subcommand, arguments, "Time for open streams to finish after SIGTERM or SIGINT");
}

absl::StatusOr<ServingParts> PrepareServing(const ServingArguments& arguments) {
  GiveMemoryBack();
  ServingParts parts;
  for (absl::Status readable : {CheckReadable("--tls-cert", arguments.tls_certificate),
                                CheckReadable("--tls-key", arguments.tls_key),
                                CheckReadable("--tls-client-ca", arguments.tls_client_ca)}) {
    if (!readable.ok()) return readable;
  }
  parts.tls.certificate_file = arguments.tls_certificate;
  parts.tls.private_key_file = arguments.tls_key;
  parts.tls.client_ca_file = arguments.tls_client_ca;

  const auto serves = [&arguments](rpc::Api api) {
    return std::find(arguments.apis.begin(), arguments.apis.end(), api) != arguments.apis.end();
  };
  if (serves(rpc::Api::kKubernetes) && arguments.tokens.empty()) {
    return UsageError("--api kubernetes", "needs --tokens");
  }
  if (serves(rpc::Api::kSession) && arguments.sessions.empty()) {
    return UsageError("--api session", "needs --sessions");
  }
  if (!arguments.tokens.empty()) {
    auto tokens = rpc::MakeTokenFileAccess(arguments.tokens);
    if (!tokens.ok()) return Of("--tokens", tokens.status());
    parts.tokens = *std::move(tokens);
    parts.access.authenticator = parts.tokens.get();
    parts.access.authorizer = parts.tokens.get();
  }
  if (arguments.snapshots.empty()) {
    if (serves(rpc::Api::kKubernetes) || serves(rpc::Api::kSession)) {
      parts.resolver = rpc::MakeDirectoryResolver();
    }
  } else {
    auto resolver = rpc::MakeFileResolver(arguments.snapshots);
    if (!resolver.ok()) return Of("--snapshots", resolver.status());
    parts.resolver = *std::move(resolver);
  }
  parts.access.resolver = parts.resolver.get();
  if (!arguments.secrets.empty()) {
    auto secrets = rpc::MakeFileSecrets(arguments.secrets);
    if (!secrets.ok()) return Of("--storage-secrets", secrets.status());
    parts.secrets = *std::move(secrets);
    parts.access.secrets = parts.secrets.get();
  }
  if (!arguments.sessions.empty()) {
    auto sessions = rpc::MakeFileSessions(arguments.sessions);
    if (!sessions.ok()) return Of("--sessions", sessions.status());
    parts.sessions = *std::move(sessions);
  }
  if (!arguments.page_key.empty()) {
    absl::StatusOr<std::string> key = ReadTextFile("--page-key", arguments.page_key);
    if (!key.ok()) return key.status();
    if (key->size() < 16) {
      return UsageError("--page-key: " + arguments.page_key, "a key needs at least 16 bytes");
    }
    parts.page_token_key = *std::move(key);
  }
  if (arguments.log_level.has_value() || !arguments.log_file.empty()) {
    auto log = ops::MakeLog(
        {.level = arguments.log_level.value_or(rpc::LogLevel::kInfo), .file = arguments.log_file});
    if (!log.ok()) return Of("--log-file", log.status());
    parts.log = *std::move(log);
    parts.telemetry.log = parts.log.get();
  }
  if (!arguments.metrics.empty()) {
    auto metrics = ops::Metrics::Serve(arguments.metrics);
    if (!metrics.ok()) return Of("--metrics", metrics.status());
    parts.metrics = *std::move(metrics);
    parts.metrics->AddCertificate(arguments.tls_certificate);
    const std::string host = arguments.metrics.substr(0, arguments.metrics.rfind(':'));
    PrintLine(
        "", "metrics on http://" + host + ":" + std::to_string(parts.metrics->port()) + "/metrics");
    parts.telemetry.observer = parts.metrics.get();
  }
  if (arguments.max_streams == 0) return UsageError("--max-streams", "expected at least 1");
  if (arguments.max_streams.has_value()) parts.stream.max_streams = *arguments.max_streams;
  parts.stream.total_time = arguments.stream_time;
  parts.stream.stall_timeout = arguments.stall_time;
  return parts;
}

void RunUntilStopped(const ServingArguments& arguments, const std::string& name,
                     const std::string& what, const std::string& address,
                     const std::function<void(std::chrono::milliseconds grace)>& shutdown,
                     const ServerProgress& progress) {
  constexpr std::chrono::milliseconds kLook{250};
  bool stopped = false;
  const auto ended = [&progress] { return progress.ended && progress.ended(); };
  while (!stopped && progress.ready && !progress.ready() && !ended()) {
    stopped = WaitForStopSignal(kLook);
  }
  if (!stopped && !ended()) {
    PrintLine("", "serving " + what + " on " + address);
    if (arguments.ready_descriptor.has_value()) TellReady(*arguments.ready_descriptor, address);
  }
  constexpr std::chrono::seconds kTrimInterval{10};
  while (!stopped && !ended()) {
    stopped = WaitForStopSignal(kTrimInterval);
    TrimHeap();
  }
  Drain(name, shutdown, arguments.grace);
}

}  // namespace cbt::cli
