// `cbtctl`: change metadata on the command line.

#include <string>
#include <vector>

#include "cbt/source/open.h"
#include "programs/cbt/command.h"

namespace {

std::vector<std::string> Libraries() {
  std::string line = "source libraries:";
  const std::vector<std::string> libraries = cbt::SourceLibraries();
  for (const std::string& library : libraries) line += " " + library;
  return {libraries.empty() ? line + " none" : line};
}

}  // namespace

int main(int argc, char** argv) {
  using namespace cbt::cli;  // NOLINT(google-build-using-namespace): a dozen names
  return Run(
      argc, argv,
      {.name = "cbtctl",
       .description = "Changed-block tracking: what changed between two snapshots of a volume",
       .commands = {{"Images and lists of changes", {AddDelta, AddAllocated, AddExport, AddApply}},
                    {"Change maps", {AddMap, AddChain}},
                    {"Backups", {AddBackup}},
                    {"Clients of services", {AddList, AddVerify, AddConform}},
                    {"Servers", {AddServe, AddRelay, AddToken}}},
       .elsewhere = {{"sidecar", "cbt-cluster"},
                     {"session-manager", "cbt-cluster"},
                     {"aggregated-api", "cbt-cluster"},
                     {"http-sidecar", "cbt-cluster"},
                     {"driver", "cbt-driver"},
                     {"volume-host", "cbt-driver"}},
       .version_lines = Libraries});
}
