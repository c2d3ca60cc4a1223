// Replaces the commands that need gRPC in a build without it.

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "programs/cbt/command.h"
#include "programs/cbt/commands/service_changes.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

void AddMissing(CLI::App& app, Command& command, const std::string& name) {
  CLI::App* const sub = app.add_subcommand(name, "(not in this build, which has no gRPC)");
  sub->allow_extras();
  sub->callback([name, &command] {
    command = [name] {
      return Report(name, UsageError("not in this build", "it was built without gRPC"));
    };
  });
}

class NoServiceChanges final : public ServiceChanges {
 public:
  bool wanted() const override { return false; }
  absl::StatusOr<ExtentCursor*> Open(uint64_t /*capacity*/) override {
    return absl::UnimplementedError("it was built without gRPC");
  }
  std::string Warning() const override { return {}; }
};

}  // namespace

std::shared_ptr<ServiceChanges> AddServiceChanges(CLI::App& /*subcommand*/,
                                                  const std::string& /*name*/) {
  return std::make_shared<NoServiceChanges>();
}

void AddConform(CLI::App& app, Command& command) { AddMissing(app, command, "conform"); }
void AddList(CLI::App& app, Command& command) { AddMissing(app, command, "list"); }
void AddRelay(CLI::App& app, Command& command) { AddMissing(app, command, "relay"); }
void AddServe(CLI::App& app, Command& command) { AddMissing(app, command, "serve"); }
void AddToken(CLI::App& app, Command& command) { AddMissing(app, command, "token"); }
void AddVerify(CLI::App& app, Command& command) { AddMissing(app, command, "verify"); }

}  // namespace cbt::cli
