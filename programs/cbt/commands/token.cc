// `cbtctl token`: prints a new secret for files of tokens, sessions and page keys.

#include <unistd.h>

#include <string>

#include "cbt/rpc/access.h"
#include "programs/cbt/command.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

void AddToken(CLI::App& app, Command& command) {
  CLI::App* const sub =
      app.add_subcommand("token", "Print a random 256-bit token for files of tokens and sessions");
  sub->footer(
      "Example: a token for the namespaces prod and staging\n"
      "  echo \"$(cbtctl token) backup-operator prod,staging\" >> tokens");
  sub->callback([&command] {
    command = [] {
      const Secret token = rpc::RandomToken();
      Output output(STDOUT_FILENO, "stdout");
      output.Append(token.Reveal());
      output.Append("\n");
      return Report("token", output.Close());
    };
  });
}

}  // namespace cbt::cli
