#include "programs/cbt/commands/nbd_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

void AddNbdOptions(CLI::App& subcommand, NbdArguments& arguments, const std::string& data) {
  CLI::Option* const certificates =
      subcommand
          .add_option("--nbd-tls-certificates", arguments.tls_certificates,
                      absl::StrCat("Folder for ", data,
                                   " nbds://: ca-cert.pem (authorities to trust), and "
                                   "client-cert.pem and client-key.pem where the server asks; "
                                   "default: the system's authorities"))
          ->type_name("DIR")
          ->check(IsNotEmpty());
  CLI::Option* const keys =
      subcommand
          .add_option("--nbd-tls-psk", arguments.tls_psk_file,
                      absl::StrCat("File of pre-shared keys for ", data, " nbds://"))
          ->type_name("FILE")
          ->check(IsNotEmpty())
          ->excludes(certificates);
  subcommand.add_option("--nbd-tls-username", arguments.tls_username, "The user whose key it is")
      ->type_name("NAME")
      ->check(IsNotEmpty())
      ->needs(keys);
}

absl::Status CheckNbdOptions(const NbdArguments& arguments, const std::string& name) {
  if (!arguments.given() || (IsNbdUri(name) && name.starts_with("nbds"))) return absl::OkStatus();
  return UsageError(arguments.tls_certificates.empty() ? "--nbd-tls-psk" : "--nbd-tls-certificates",
                    absl::StrCat(name,
                                 " is no export with TLS: nbds://HOST/NAME or "
                                 "nbds+unix:///NAME?socket=PATH"));
}

absl::StatusOr<std::shared_ptr<NbdData>> OpenNbd(const std::string& uri,
                                                 const NbdArguments& arguments,
                                                 std::stop_token stop) {
  NbdExportOptions options;
  options.tls_certificates = arguments.tls_certificates;
  options.tls_psk_file = arguments.tls_psk_file;
  options.tls_username = arguments.tls_username;
  options.stop = std::move(stop);
  return NbdData::Open(uri, options);
}

}  // namespace cbt::cli
