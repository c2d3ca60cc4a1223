// `cbt serve`: a directory of images as a CSI SnapshotMetadata service.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/directory_provider.h"
#include "cbt/executor.h"
#include "cbt/rpc/server.h"
#include "cli/command.h"
#include "cli/numbers.h"
#include "cli/status.h"
#include "cli/stream_options.h"
#include "cli/text_file.h"
#include "cli/threads.h"

namespace cbt::cli {
namespace {

struct ServeArguments {
  std::string root;
  std::string listen;
  std::optional<uint64_t> block_size;
  std::optional<BlockMetadataType> type;
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_client_ca;
  std::string plugin_name = "images.cbt.example.com";
  std::optional<int> ready_descriptor;
  std::chrono::milliseconds grace = std::chrono::seconds(5);
};

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

// Keeps SIGINT and SIGTERM for this thread to fetch; threads that start later inherit it. Shells
// start background jobs with SIGINT ignored, and ignored signals can't be fetched.
void HoldStopSignals() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

// The next stop signal, within `timeout` if there is one; false when none came.
bool WaitForStopSignal(std::optional<std::chrono::milliseconds> timeout) {
  const sigset_t set = StopSignals();
  if (timeout.has_value()) {
    const timespec limit = {.tv_sec = timeout->count() / 1000,
                            .tv_nsec = timeout->count() % 1000 * 1'000'000};
    return sigtimedwait(&set, nullptr, &limit) > 0;
  }
  while (sigwaitinfo(&set, nullptr) < 0) {
    // Interrupted by a signal that is not ours, a debugger's for one.
  }
  return true;
}

absl::Status CheckReadyDescriptor(int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  const std::string where = "--ready-fd: " + std::to_string(descriptor);
  if (flags < 0) return UsageError(where, "not an open descriptor");
  if ((flags & O_ACCMODE) == O_RDONLY) return UsageError(where, "not open for writing");
  return absl::OkStatus();
}

// Tells whoever started us that clients can come. A reader that has gone is no reason to stop.
void TellReady(int descriptor, const std::string& address) {
  const std::string line = address + "\n";
  [[maybe_unused]] const ssize_t written = write(descriptor, line.data(), line.size());
  if (descriptor > STDERR_FILENO) {
    close(descriptor);
    return;
  }
  // A standard descriptor stays taken, or the next socket would become stdout.
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    dup2(null, descriptor);
    close(null);
  }
}

// Drains while a second signal can still end the process at once.
void Drain(rpc::Server& server, std::chrono::milliseconds grace) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kInterval(20);
  // timeout(1), and whoever signals both a process and its group, asks twice and means it once.
  constexpr std::chrono::milliseconds kEcho(200);
  const Clock::time_point asked = Clock::now();
  std::atomic<bool> drained = false;
  std::thread drainer([&] {
    server.Shutdown(grace);
    drained = true;
  });
  while (!drained) {
    if (WaitForStopSignal(kInterval) && Clock::now() - asked > kEcho) {
      PrintLine("serve", "second signal: streams are cut off");
      _exit(kExitFailure);
    }
  }
  drainer.join();
}

absl::StatusOr<rpc::ServerOptions> ServerOptionsOf(const ServeArguments& arguments) {
  rpc::ServerOptions options;
  options.listen = arguments.listen;
  options.plugin_name = arguments.plugin_name;
  const auto load = [](const char* option, const std::string& path, std::string& text) {
    if (path.empty()) return absl::OkStatus();
    absl::StatusOr<std::string> read = ReadTextFile(option, path);
    if (!read.ok()) return read.status();
    if (read->empty()) return UsageError(std::string(option) + ": " + path, "the file is empty");
    text = *std::move(read);
    return absl::OkStatus();
  };
  rpc::TlsOptions& tls = options.tls;
  for (absl::Status loaded : {load("--tls-cert", arguments.tls_certificate, tls.certificate),
                              load("--tls-key", arguments.tls_key, tls.private_key),
                              load("--tls-client-ca", arguments.tls_client_ca, tls.client_ca)}) {
    if (!loaded.ok()) return loaded;
  }
  return options;
}

absl::Status Serve(const ServeArguments& arguments) {
  if (arguments.ready_descriptor.has_value()) {
    if (absl::Status ready = CheckReadyDescriptor(*arguments.ready_descriptor); !ready.ok()) {
      return ready;
    }
  }
  const absl::StatusOr<rpc::ServerOptions> options = ServerOptionsOf(arguments);
  if (!options.ok()) return options.status();

  // Before any thread starts: they inherit the signal mask, and the socket must not be wider than
  // 0660 for a moment.
  HoldStopSignals();
  umask(S_IXUSR | S_IXGRP | S_IRWXO);

  // Threads of its own: the service's threads wait for what these read.
  ThreadPool readers(WorkerThreads());
  const absl::StatusOr<std::unique_ptr<SnapshotProvider>> provider = MakeDirectoryProvider(
      arguments.root, {.type = arguments.type.value_or(BlockMetadataType::kVariableLength),
                       .block_size = arguments.block_size.value_or(kDefaultBlockSize),
                       .executor = &readers});
  if (!provider.ok()) return provider.status();
  const absl::StatusOr<std::unique_ptr<rpc::Server>> server =
      rpc::Server::Start(**provider, *options);
  if (!server.ok()) return server.status();

  const std::string& address = (*server)->address();
  PrintLine("", "serving " + arguments.root + " on " + address);
  if (arguments.ready_descriptor.has_value()) TellReady(*arguments.ready_descriptor, address);
  WaitForStopSignal(std::nullopt);
  Drain(**server, arguments.grace);
  return absl::OkStatus();
}

}  // namespace

void AddServe(CLI::App& app, Command& command) {
  CLI::App* const sub =
      app.add_subcommand("serve", "Serve a directory of snapshot images (CSI SnapshotMetadata)");
  const auto arguments = std::make_shared<ServeArguments>();
  sub->add_option("--root", arguments->root, "Directory of images; DIR/vol1/mon.img is vol1/mon")
      ->type_name("DIR")
      ->required();
  sub->add_option("--listen", arguments->listen, "unix:///path/to.sock or host:port")
      ->type_name("ADDR")
      ->required();
  AddStyleOption(*sub, arguments->type);
  AddBlockSizeOption(*sub, arguments->block_size);
  CLI::Option* const certificate =
      sub->add_option("--tls-cert", arguments->tls_certificate, "Certificate chain (PEM)")
          ->type_name("FILE");
  CLI::Option* const key =
      sub->add_option("--tls-key", arguments->tls_key, "Its private key (PEM)")->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  sub->add_option("--tls-client-ca", arguments->tls_client_ca,
                  "Clients need a certificate of this authority (PEM)")
      ->type_name("FILE")
      ->needs(certificate);
  sub->add_option("--plugin-name", arguments->plugin_name, "Name that Identity reports")
      ->type_name("NAME")
      ->capture_default_str();
  sub->add_option_function<std::string>(
         "--ready-fd",
         [arguments](const std::string& text) {
           const absl::StatusOr<uint64_t> value = ParseNumber(text, 1 << 20);
           if (!value.ok()) throw CLI::ValidationError("--ready-fd", MessageOf(value.status()));
           arguments->ready_descriptor = static_cast<int>(*value);
         },
         "Write the address to this descriptor when clients can come, and close it")
      ->type_name("N");
  sub->add_option_function<std::string>(
         "--grace",
         [arguments](const std::string& text) {
           const absl::StatusOr<std::chrono::milliseconds> value = ParseSeconds(text);
           if (!value.ok()) throw CLI::ValidationError("--grace", MessageOf(value.status()));
           arguments->grace = *value;
         },
         "Time that open streams get after SIGTERM or SIGINT")
      ->type_name("SECONDS")
      ->default_str("5");
  sub->footer(
      "Example: snapshots vol1/monday and vol1/tuesday from /snapshots/vol1/*.img\n"
      "  cbt serve --root /snapshots --listen unix:///run/cbt.sock");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("serve", Serve(*arguments)); };
  });
}

}  // namespace cbt::cli
