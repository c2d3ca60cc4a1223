// What the subcommands of `cbtctl backup` share: the repository, progress, and an orderly end.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_BACKUP_COMMON_H_
#define CBT_PROGRAMS_CBT_COMMANDS_BACKUP_COMMON_H_

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "programs/cbt/output/progress.h"
#include "repository/repository.h"

namespace cbt::cli {

struct RepositoryArguments {
  std::string repository;
  std::string repository_file;
  std::string password_file;
  std::string password_command;
  std::string ca_file;
  bool virtual_host = false;
  uint64_t connections = 8;
  bool no_lock = false;
  bool init = false;
  bool json = false;
};

// Adds what names the repository, and `--json`; `arguments` must outlive the parsing.
void AddRepositoryOptions(CLI::App& subcommand, RepositoryArguments& arguments);

// Opens the repository and reads its index. `name`: of the subcommand. `write`: packs that are gone
// don't count; without it, ConfirmLock() is due before the result.
absl::StatusOr<std::unique_ptr<repository::Repository>> OpenRepository(
    const RepositoryArguments& arguments, const std::string& name, bool write,
    const std::stop_token& stop);

// Requests a stop at SIGINT, SIGTERM or SIGHUP, so that locks and temporary files are removed; a
// second signal ends the process at once. Made while there is one thread.
class StopOnSignal {
 public:
  StopOnSignal();
  // Ends the process by the signal that came, if one did.
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  std::stop_token token() const { return stop_.get_token(); }

 private:
  std::stop_source stop_;
  sigset_t signals_{};
  sigset_t before_{};
  std::atomic<bool> ended_{false};
  std::atomic<int> came_{0};
  std::thread thread_;
};

// A bar on a terminal, or lines of JSON on stdout, as restic prints them. One thread at a time.
class BackupProgress {
 public:
  BackupProgress(const char* label, bool json) : label_(label), json_(json) {}

  void Update(uint64_t done, uint64_t total);
  void Clear() { bar_.reset(); }

 private:
  using Clock = std::chrono::steady_clock;

  const char* const label_;
  const bool json_;
  const Clock::time_point start_ = Clock::now();
  Clock::time_point printed_ = start_;
  std::unique_ptr<Progress> bar_;
};

// Writes a line to stdout.
absl::Status PrintResult(const std::string& line);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_BACKUP_COMMON_H_
