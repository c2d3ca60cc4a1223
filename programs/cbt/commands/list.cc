// `cbtctl list`: the client of a service.

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/rpc/client.h"
#include "cbt/transform.h"
#include "programs/cbt/command.h"
#include "programs/cbt/commands/map_output.h"
#include "programs/cbt/commands/print_stream.h"
#include "programs/cbt/options/extent_options.h"
#include "programs/cbt/options/remote_options.h"
#include "programs/cbt/options/source_options.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/output/volume_snapshot_delta.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

struct ListArguments {
  RemoteArguments remote;
  ExtentOptions stream;
  MapOutput output;
  std::optional<uint64_t> length;
  std::optional<uint64_t> gap;
  std::optional<uint64_t> fallback_capacity;
  std::string source_version;
  bool prove = false;
  bool require_message = false;
  bool object = false;
  std::optional<uint64_t> limit;
};

// What is printed, its purpose and its style.
struct Opened {
  std::unique_ptr<ExtentCursor> cursor;
  SourcePurpose what = SourcePurpose::kAllocated;
  BlockMetadataType type = BlockMetadataType::kVariableLength;
  const RequestedCursor* requested = nullptr;
  bool capacity_known = true;
  const rpc::RemoteCursor* remote = nullptr;  // that `cursor` reads from, if any
};

absl::StatusOr<Opened> Open(const ListArguments& arguments, const rpc::ListRequest& request) {
  Opened opened;
  if (arguments.fallback_capacity.has_value()) {
    absl::StatusOr<rpc::Fallback> best = rpc::OpenBestTier(request, *arguments.fallback_capacity);
    if (!best.ok()) return best.status();
    // A window is requested from offset 0, but is still part of a larger answer.
    if (!best->refused.empty() && arguments.stream.starting_offset > 0) {
      const auto& [tier, reason] = best->refused.front();
      return rpc::NotFromTheMiddle(tier, reason);
    }
    for (const auto& [tier, reason] : best->refused) {
      Note("list",
           "warning: no " + std::string(rpc::TierName(tier)) + " metadata: " + MessageOf(reason));
    }
    Note("list", "tier: " + std::string(rpc::TierName(best->tier)));
    opened.cursor = std::move(best->cursor);
    // A lower tier is not a delta, even if one was requested: it lacks what the base has and the
    // target has not.
    if (best->tier == rpc::Tier::kDelta) opened.what = SourcePurpose::kDelta;
    opened.remote = dynamic_cast<const rpc::RemoteCursor*>(opened.cursor.get());
    if (opened.remote != nullptr) opened.type = opened.remote->type();
  } else {
    absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> remote = rpc::RemoteCursor::Open(request);
    if (!remote.ok()) return remote.status();
    opened.type = (*remote)->type();
    opened.capacity_known = (*remote)->capacity_known();
    opened.remote = remote->get();
    opened.cursor = *std::move(remote);
    if (arguments.remote.has_base()) opened.what = SourcePurpose::kDelta;
  }
  return opened;
}

ChangeMapIdentity IdentityOf(const RemoteArguments& remote, bool delta) {
  if (!remote.in_kube()) {
    return IdentityOfIds(delta ? remote.base.value_or("") : "", remote.snapshot);
  }
  // Names of snapshots are those of their namespace; the volume has none there.
  const std::string snapshot = remote.address.substr(kKubeScheme.size());
  std::string base;
  if (delta && remote.base.has_value()) {
    base = absl::StrCat(snapshot.substr(0, snapshot.find('/') + 1), *remote.base);
  } else if (delta) {
    base = remote.kube.base_handle.value_or("");
  }
  return {"", std::move(base), snapshot};
}

// A map, and a part of an answer, need the volume's size. Text does not.
rpc::NoMessage NoMessageOf(const ListArguments& arguments, bool part) {
  if (arguments.require_message) return rpc::NoMessage::kRefused;
  return part || arguments.output.wanted() ? rpc::NoMessage::kNeedsCapacity
                                           : rpc::NoMessage::kAccepted;
}

AnswerSource SourceOf(const RemoteArguments& remote, const Opened& opened) {
  const bool delta = opened.what == SourcePurpose::kDelta;
  AnswerSource source{delta ? remote.base.value_or("") : "", remote.snapshot, ""};
  if (remote.in_kube()) {
    const ChangeMapIdentity identity = IdentityOf(remote, delta);
    source.base = identity.base;
    source.snapshot = identity.target;
  }
  // A version that stays the same when the data changes would join what does not belong together.
  if (opened.remote != nullptr && !opened.remote->may_change_unseen()) {
    source.version = opened.remote->source_version();
  }
  return source;
}

absl::Status PrintObject(const ListArguments& arguments, rpc::ListRequest request) {
  const uint64_t block_size = arguments.stream.block_size.value_or(kDefaultBlockSize);
  VolumeSnapshotDeltaSpec spec;
  spec.name_space = request.name_space;
  // The objects' names, where they were given.
  spec.base_snapshot =
      arguments.remote.base.has_value() ? arguments.remote.base : request.base_snapshot_id;
  spec.target_snapshot = request.snapshot_id;
  spec.limit = arguments.limit.value_or(spec.limit);
  if (arguments.stream.starting_offset % block_size != 0) {
    return UsageError("--starting-offset", "not a multiple of the block size");
  }
  spec.offset = arguments.stream.starting_offset / block_size;
  request.starting_offset = 0;
  absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> cursor = rpc::RemoteCursor::Open(request);
  absl::Status failure = cursor.status();
  absl::StatusOr<std::string> json =
      cursor.ok() ? RenderVolumeSnapshotDelta(spec, *std::move(cursor), block_size, &failure)
                  : RenderFailedVolumeSnapshotDelta(spec, cursor.status());
  if (!json.ok()) return json.status();
  Output output(STDOUT_FILENO, "stdout");
  output.Append(*json + "\n");
  if (absl::Status closed = output.Close(); !closed.ok()) return closed;
  return failure;
}

absl::Status List(const ListArguments& arguments) {
  absl::StatusOr<rpc::ListRequest> request = RemoteRequest(arguments.remote, "list");
  if (!request.ok()) return request.status();
  request->max_results = arguments.stream.max_results;
  request->require_proof = arguments.prove;
  if (arguments.fallback_capacity.has_value() && !request->capacity.has_value()) {
    request->capacity = arguments.fallback_capacity;
  }
  request->source_version = arguments.source_version;
  if (arguments.object) {
    request->no_message = NoMessageOf(arguments, false);
    return PrintObject(arguments, *std::move(request));
  }
  // A window, and gaps bridged across its edges, are cut from the whole stream.
  const bool requested = arguments.length.has_value() || arguments.gap.has_value();
  if (!requested) request->starting_offset = arguments.stream.starting_offset;
  request->no_message = NoMessageOf(arguments, requested);
  // Printed tuples show blocks of constant size, as the server sends them.
  request->wire_tuples = !requested && !arguments.output.wanted();
  absl::StatusOr<Opened> opened = Open(arguments, *request);
  if (!opened.ok()) return opened.status();

  if (!opened->capacity_known) {
    Note("list", "the service reports nothing, and does not say how large the volume is");
  }
  const bool delta = opened->what == SourcePurpose::kDelta;
  PrintOptions print = {.stream = arguments.stream,
                        .type = arguments.stream.type.value_or(opened->type),
                        .capacity_known = opened->capacity_known,
                        .source = SourceOf(arguments.remote, *opened),
                        .label = "receiving",
                        .adjective = delta ? "changed" : "allocated"};
  absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor = std::move(opened->cursor);
  if (requested) {
    absl::StatusOr<std::unique_ptr<RequestedCursor>> cut =
        MakeRequestedCursor(*std::move(cursor), {.chunk = arguments.stream.block_size.value_or(1),
                                                 .bridge_gap = arguments.gap.value_or(0),
                                                 .offset = arguments.stream.starting_offset,
                                                 .length = arguments.length});
    if (!cut.ok()) return cut.status();
    opened->requested = cut->get();
    if (arguments.length.has_value()) {
      print.ending_offset = arguments.stream.starting_offset + *arguments.length;
    }
    print.type = arguments.stream.type.value_or(BlockMetadataType::kVariableLength);
    cursor = *std::move(cut);
  }
  if (arguments.output.wanted()) {
    const absl::StatusOr<ChangeMapIdentity> identity =
        arguments.output.names.Over(IdentityOf(arguments.remote, delta), opened->what);
    if (!identity.ok()) return identity.status();
    const RemoteArguments& remote = arguments.remote;
    const InputFiles inputs({remote.token_file, remote.secrets_file, remote.tls_ca,
                             remote.tls_certificate, remote.tls_key, remote.kube.kubeconfig});
    return WriteMap(**cursor, arguments.stream.block_size.value_or(kDefaultBlockSize), *identity,
                    arguments.output.path, inputs, print.label);
  }
  // Block size and style are the server's choice, and converted only on request.
  if (arguments.stream.type.has_value() ||
      (arguments.stream.block_size.has_value() && !requested)) {
    const uint64_t block_size = arguments.stream.block_size.value_or(kDefaultBlockSize);
    cursor = print.type == BlockMetadataType::kFixedLength
                 ? ToBlocks(*std::move(cursor), block_size)
                 : AlignOutward(*std::move(cursor), arguments.stream.block_size.value_or(1));
    if (!cursor.ok()) return cursor.status();
  }
  if (absl::Status printed = PrintStream(**cursor, print); !printed.ok()) return printed;
  if (opened->remote != nullptr && opened->remote->resumes() > 0 &&
      opened->remote->completeness() == rpc::Completeness::kProvenForPlace) {
    Note("list",
         "warning: the stream was resumed, and nothing shows whether its data has changed "
         "meanwhile: if it may have, list it again");
  }
  if (opened->requested != nullptr) {
    Note("list", "reported " + std::to_string(opened->requested->bytes()) + " bytes, " +
                     std::to_string(opened->requested->added_bytes()) +
                     " of them by rounding and bridging");
  }
  return absl::OkStatus();
}

}  // namespace

void AddList(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "list", "Stream metadata from a service and print it, resuming after failures");
  const auto arguments = std::make_shared<ListArguments>();
  sub->add_option("ADDR", arguments->remote.address, kAddressHelp)->required();
  AddRemoteOptions(*sub, arguments->remote);
  AddRetryOption(*sub, arguments->remote);
  AddExtentOptions(*sub, arguments->stream);
  ShowOtherDefault(*sub, "--block-size", "the server's, and 4096 for --output");
  ShowOtherDefault(*sub, "--style", "the server's");
  AddMapOutput(*sub, arguments->output);
  AddBytesOption(*sub, "--length", arguments->length,
                 "Only this many bytes from --starting-offset");
  // A map of a part would claim that the rest did not change.
  sub->get_option("--length")->excludes(sub->get_option("--output"));
  AddBytesOption(*sub, "--gap", arguments->gap, "Bridge gaps of at most this many bytes");
  AddBytesOption(*sub, "--capacity", arguments->remote.capacity,
                 "The volume's size, for a service that reports nothing and does not say it");
  AddBytesOption(*sub, "--fallback", arguments->fallback_capacity,
                 "Without a delta use what is allocated, without that a whole volume of N bytes");
  CLI::Option* const object = sub->add_flag(
      "--object", arguments->object, "Print one page as a VolumeSnapshotDelta object (JSON)");
  sub->add_option_function<std::string>(
         "--source-version",
         [arguments](const std::string& version) {
           if (version.empty()) {
             // The data's version is unknown: comparing nothing must not look like a comparison.
             throw CLI::ValidationError("--source-version", "expected a version");
           }
           arguments->source_version = version;
         },
         "Refuse other data than this version, which the head of an earlier part says")
      ->type_name("VERSION")
      // A lower tier has a version of its own.
      ->excludes(sub->get_option("--fallback"))
      ->excludes(object);
  // An object has a fixed format and its own start and end.
  for (const char* other : {"--output", "--format", "--style", "--length", "--gap", "--fallback"}) {
    object->excludes(sub->get_option(other));
  }
  // The proof comes at the end of the stream, which a part does not reach.
  sub->add_flag("--prove", arguments->prove,
                "Fail unless the stream is proven complete, from its source")
      ->excludes(sub->get_option("--length"))
      ->excludes(object);
  sub->add_flag(
      "--require-message", arguments->require_message,
      "Fail if the service ends its answer without a message, instead of taking it for an "
      "empty one");
  AddBytesOption(*sub, "--limit", arguments->limit,
                 "Maximum number of blocks in the object; default: 256");
  sub->get_option("--limit")->needs(object);
  sub->footer(
      std::string(kMarkerHelp) +
      "A service that is away is waited for (--retry-for), and a stream that breaks is resumed.\n"
      "Without --block-size and --style the stream is printed as the server sends it.\n"
      "To go on after a cut, give the end of the last tuple (--starting-offset) and the version "
      "in\n"
      "the head of what you have (--source-version): it is refused if the data is another by now.\n"
      "Example: what changed from Monday to Tuesday\n"
      "  cbtctl list unix:///run/cbt.sock --snapshot vol1/tuesday --base vol1/monday\n"
      "The same in a Kubernetes cluster, where the rest is found by the snapshot's name\n"
      "  cbtctl list k8s:prod/tuesday --base monday");
  sub->callback([arguments, &command] {
    command = [arguments] {
      absl::Status status = List(*arguments);
      if (absl::IsUnimplemented(status)) {
        status = absl::UnimplementedError(
            absl::StrCat(MessageOf(status), " (does the service offer --api ",
                         AbslView(rpc::ApiName(arguments->remote.api)), "?)"));
      }
      return Report("list", status, Origin::kServer);
    };
  });
}

}  // namespace cbt::cli
