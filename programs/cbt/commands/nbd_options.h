// The options of commands that read or write the data of an NBD export.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_NBD_OPTIONS_H_
#define CBT_PROGRAMS_CBT_COMMANDS_NBD_OPTIONS_H_

#include <memory>
#include <stop_token>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "source/nbd/nbd_data.h"

namespace cbt::cli {

// As the keys of `--from nbd:` are named.
struct NbdArguments {
  std::string tls_certificates;
  std::string tls_psk_file;
  std::string tls_username;

  bool given() const { return !tls_certificates.empty() || !tls_psk_file.empty(); }
};

// Adds `--nbd-tls-...`; `arguments` must outlive the parsing. `data`: the option or argument that
// names the export.
void AddNbdOptions(CLI::App& subcommand, NbdArguments& arguments, const std::string& data);

// OK unless options about TLS were given and `name` is not the URI of an export with TLS.
// Errors: INVALID_ARGUMENT.
absl::Status CheckNbdOptions(const NbdArguments& arguments, const std::string& name);

// After CheckNbdOptions(). `stop` ends waiting for the server.
absl::StatusOr<std::shared_ptr<NbdData>> OpenNbd(const std::string& uri,
                                                 const NbdArguments& arguments,
                                                 std::stop_token stop);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_NBD_OPTIONS_H_
