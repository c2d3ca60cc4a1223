#include "programs/cbt/commands/backup_common.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_builder.h"
#include "programs/backup/place.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

constexpr std::chrono::seconds kLineInterval(1);
// Ends the wait for a signal. Nothing else here uses it, and by default it does nothing.
constexpr int kWake = SIGURG;

std::string FractionText(double fraction) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6f", fraction);
  return text.data();
}

absl::StatusOr<std::string> RepositoryName(const RepositoryArguments& arguments) {
  if (!arguments.repository.empty()) return arguments.repository;
  const char* const variable = std::getenv("RESTIC_REPOSITORY");
  std::string file = arguments.repository_file;
  if (file.empty() && variable != nullptr && *variable != '\0') return std::string(variable);
  if (const char* const named = std::getenv("RESTIC_REPOSITORY_FILE");
      file.empty() && named != nullptr) {
    file = named;
  }
  if (file.empty()) return std::string();
  absl::StatusOr<std::string> text = ReadTextFile("--repository-file", file);
  if (!text.ok()) return text;
  while (!text->empty() && (text->back() == '\n' || text->back() == '\r')) text->pop_back();
  return text;
}

}  // namespace

void AddRepositoryOptions(CLI::App& subcommand, RepositoryArguments& arguments) {
  subcommand
      .add_option("-r,--repo", arguments.repository,
                  "Repository of restic: a directory, s3:HOST/BUCKET[/PREFIX] or "
                  "cosi:PATH[#PREFIX]; default: RESTIC_REPOSITORY")
      ->type_name("REPO");
  subcommand
      .add_option("--repository-file", arguments.repository_file,
                  "File that names the repository; default: RESTIC_REPOSITORY_FILE")
      ->type_name("FILE");
  subcommand
      .add_option("-p,--password-file", arguments.password_file,
                  "File with its password; default: RESTIC_PASSWORD or RESTIC_PASSWORD_FILE")
      ->type_name("FILE");
  subcommand
      .add_option("--password-command", arguments.password_command,
                  "Program that prints the password; default: RESTIC_PASSWORD_COMMAND")
      ->type_name("COMMAND");
  subcommand
      .add_option("--cacert", arguments.ca_file,
                  "S3: authorities to trust (PEM); default: RESTIC_CACERT, or the system's")
      ->type_name("FILE");
  subcommand.add_flag("--virtual-host", arguments.virtual_host,
                      "S3: ask BUCKET.HOST instead of HOST/BUCKET");
  subcommand.add_option("--connections", arguments.connections, "S3: the most requests at a time")
      ->type_name("N")
      ->check(CLI::Range(1, 256).description(""))
      ->default_str("8");
  subcommand.add_flag("--json", arguments.json, "Print progress and result as lines of JSON");
}

absl::StatusOr<std::unique_ptr<repository::Repository>> OpenRepository(
    const RepositoryArguments& arguments, const std::string& name, bool write,
    const std::stop_token& stop) {
  absl::StatusOr<std::string> place_name = RepositoryName(arguments);
  if (!place_name.ok()) return place_name.status();
  backup::PlaceOptions options{.repository = *std::move(place_name),
                               .ca_file = arguments.ca_file,
                               .virtual_host = arguments.virtual_host,
                               .connections = static_cast<size_t>(arguments.connections),
                               .create = arguments.init,
                               .stop = stop};
  if (const char* const file = std::getenv("RESTIC_CACERT");
      options.ca_file.empty() && file != nullptr) {
    options.ca_file = file;
  }
  const absl::StatusOr<Secret> password =
      backup::ReadPassword(arguments.password_file, arguments.password_command);
  if (!password.ok()) return password.status();
  if (arguments.init) {
    absl::StatusOr<backup::Place> place = backup::OpenPlace(options);
    if (!place.ok()) return place.status();
    const absl::Status created =
        repository::Repository::Create(std::move(place->bucket), place->prefix, *password);
    if (created.ok()) Note(name, "made a new repository in " + options.repository);
    if (!created.ok() && !absl::IsAlreadyExists(created)) return created;
    options.create = false;
  }
  absl::StatusOr<backup::Place> place = backup::OpenPlace(options);
  if (!place.ok()) return place.status();
  absl::StatusOr<std::unique_ptr<repository::Repository>> repository = repository::Repository::Open(
      std::move(place->bucket), place->prefix, *password, !arguments.no_lock,
      {.confirm_later = !write, .uploads = static_cast<size_t>(arguments.connections)});
  if (!repository.ok()) return repository;
  const absl::StatusOr<repository::IndexSummary> summary = (*repository)->LoadIndex(write);
  if (!summary.ok()) return summary.status();
  if (summary->missing_packs > 0) {
    Note(name, absl::StrCat("warning: the repository lacks ", summary->missing_packs,
                            " packs that its index names, or they are too short; what this backup "
                            "needs of them is stored again; see `restic check`"));
  }
  return repository;
}

StopOnSignal::StopOnSignal() {
  sigemptyset(&signals_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    // A signal ignored at start (nohup) stays ignored.
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      sigaddset(&signals_, number);
    }
  }
  sigaddset(&signals_, kWake);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  thread_ = std::thread([this] {
    while (!ended_.load()) {
      const int number = sigwaitinfo(&signals_, nullptr);
      if (number <= 0 || number == kWake) continue;
      if (came_.exchange(number) != 0) _exit(128 + number);
      stop_.request_stop();
    }
  });
}

StopOnSignal::~StopOnSignal() {
  ended_.store(true);
  pthread_kill(thread_.native_handle(), kWake);
  thread_.join();
  const int number = came_.load();
  if (number != 0) std::signal(number, SIG_DFL);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  if (number != 0) std::raise(number);
}

void BackupProgress::Update(uint64_t done, uint64_t total) {
  if (!json_) {
    if (bar_ == nullptr) bar_ = std::make_unique<Progress>(label_, total);
    bar_->Update(done);
    return;
  }
  const Clock::time_point now = Clock::now();
  if (now - printed_ < kLineInterval) return;
  printed_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const double part = total == 0 ? 1 : static_cast<double>(done) / static_cast<double>(total);
  JsonBuilder line;
  line.BeginObject().Field("message_type", "status");
  line.Key("percent_done").Raw(FractionText(part));
  line.Field("bytes_done", done).Field("total_bytes", total);
  line.Field("seconds_elapsed", static_cast<uint64_t>(seconds));
  if (part > 0) {
    line.Field("seconds_remaining", static_cast<uint64_t>(seconds / part - seconds));
  }
  // A reader that has gone shows when the result is printed.
  PrintResult(line.EndObject().Take()).IgnoreError();
}

absl::Status PrintResult(const std::string& line) {
  const std::string text = line + "\n";
  // Not closed: more lines may follow.
  Output output(STDOUT_FILENO, "stdout");
  output.Append(text);
  output.Flush();
  return output.status();
}

}  // namespace cbt::cli
