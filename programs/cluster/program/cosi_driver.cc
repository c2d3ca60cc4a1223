// `cbt-cluster cosi-driver`: buckets and access for COSI's sidecars.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/ops/log.h"
#include "programs/cbt/options/serving.h"
#include "programs/cbt/support/status.h"
#include "programs/cluster/program/commands.h"
#include "programs/cosi/driver/driver.h"
#include "programs/cosi/driver/rgw_store.h"
#include "programs/cosi/driver/static_store.h"

namespace cbt::cli {
namespace {

struct CosiDriverArguments {
  cosi::CosiDriverOptions driver = {};
  std::string rgw = {};
  std::string credentials = {};
  std::string profile = "default";
  std::string ca_file = {};
  std::string static_file = {};
  cosi::S3Info info = {.region = "us-east-1", .addressing = cosi::Addressing::kPath};
  ServingArguments serving = {};
};

absl::StatusOr<std::unique_ptr<cosi::BucketStore>> OpenStore(const CosiDriverArguments& arguments,
                                                             std::stop_token stop) {
  if (!arguments.static_file.empty()) {
    auto store = cosi::OpenStaticStore(arguments.static_file);
    if (!store.ok()) return UsageError("--static", MessageOf(store.status()));
    return store;
  }
  absl::StatusOr<bucket::S3Credentials> credentials =
      arguments.credentials.empty()
          ? bucket::S3CredentialsFromEnvironment()
          : bucket::S3CredentialsFromFile(arguments.credentials, arguments.profile);
  if (!credentials.ok()) return UsageError("--credentials", MessageOf(credentials.status()));
  absl::StatusOr<std::unique_ptr<cosi::RgwClient>> client =
      cosi::RgwClient::Create({.endpoint = arguments.rgw,
                               .region = arguments.info.region,
                               .ca_file = arguments.ca_file,
                               .credentials = *std::move(credentials)},
                              {.stop = std::move(stop)});
  if (!client.ok()) return UsageError("--rgw", MessageOf(client.status()));
  cosi::S3Info info = arguments.info;
  if (info.endpoint.empty()) info.endpoint = arguments.rgw;
  return cosi::MakeRgwStore(*std::move(client),
                            {.driver_name = arguments.driver.driver_name, .info = std::move(info)});
}

absl::Status RunCosiDriver(const CosiDriverArguments& arguments) {
  const ServingArguments& serving = arguments.serving;
  if (arguments.rgw.empty() == arguments.static_file.empty()) {
    return UsageError("--rgw, --static", "expected one of them");
  }
  if (absl::Status ready = CheckReadyDescriptor(serving); !ready.ok()) return ready;
  PrepareProcess();
  const absl::StatusOr<std::unique_ptr<rpc::LogSink>> log = ops::MakeLog(
      {.level = serving.log_level.value_or(rpc::LogLevel::kInfo), .file = serving.log_file});
  if (!log.ok()) return {log.status().code(), "--log-file: " + MessageOf(log.status())};
  cosi::CosiDriverOptions options = arguments.driver;
  options.log = log->get();
  options.open_store = [&arguments](std::stop_token stop) {
    return OpenStore(arguments, std::move(stop));
  };
  const absl::StatusOr<std::unique_ptr<cosi::CosiDriver>> started =
      cosi::CosiDriver::Start(options);
  if (!started.ok()) return started.status();
  cosi::CosiDriver& running = **started;
  RunUntilStopped(serving, "cosi-driver",
                  arguments.rgw.empty() ? arguments.static_file : arguments.rgw, running.address(),
                  [&running](std::chrono::milliseconds grace) { running.Shutdown(grace); });
  return absl::OkStatus();
}

}  // namespace

void AddCosiDriver(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "cosi-driver", "Make buckets and access to them, for the sidecars of COSI");
  const auto arguments = std::make_shared<CosiDriverArguments>();
  sub->add_option("--endpoint", arguments->driver.endpoint, "Socket of COSI's services")
      ->type_name("unix:///PATH")
      ->capture_default_str();
  sub->add_option("--driver-name", arguments->driver.driver_name,
                  "Name of the driver, which classes give; one driver for each object gateway")
      ->type_name("NAME")
      ->capture_default_str();
  sub->add_option("--rgw", arguments->rgw, "An object gateway of Ceph: its S3 and its admin API")
      ->type_name("URL");
  sub->add_option("--credentials", arguments->credentials,
                  "Keys of a user with the capabilities users=*;buckets=*, in a file as AWS has "
                  "it; default: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
      ->type_name("FILE");
  sub->add_option("--profile", arguments->profile, "The profile in that file")
      ->type_name("NAME")
      ->capture_default_str();
  sub->add_option("--ca", arguments->ca_file,
                  "Certificates that the object gateway's must come from (PEM); default: the "
                  "system's")
      ->type_name("FILE");
  sub->add_option("--static", arguments->static_file,
                  "Instead of --rgw: buckets and accounts that were made by hand (JSON)")
      ->type_name("FILE");
  sub->add_option("--s3-endpoint", arguments->info.endpoint,
                  "Where applications reach the buckets; default: that of --rgw")
      ->type_name("URL");
  sub->add_option("--region", arguments->info.region, "Region of the buckets")
      ->type_name("NAME")
      ->capture_default_str();
  sub->add_option("--addressing", arguments->info.addressing,
                  "How applications name a bucket: in the path, or in the host's name")
      ->type_name("path|virtual")
      ->transform(CLI::CheckedTransformer(std::map<std::string, cosi::Addressing>{
          {"path", cosi::Addressing::kPath}, {"virtual", cosi::Addressing::kVirtual}}))
      ->default_str("path");
  AddPageOptions(*sub, arguments->driver.http_endpoint, arguments->driver.page_access);
  AddLogOptions(*sub, arguments->serving,
                "Log to stderr or --log-file: debug, info (the default), warning or error");
  AddLifeOptions(*sub, arguments->serving, "Time for open calls to finish after SIGTERM or SIGINT");
  sub->footer(
      "Example: beside a sidecar of COSI, in a Pod\n"
      "  cbt-cluster cosi-driver --rgw https://rgw.example.com --credentials /keys/credentials");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("cosi-driver", RunCosiDriver(*arguments)); };
  });
}

}  // namespace cbt::cli
