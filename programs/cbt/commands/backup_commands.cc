// `cbtctl backup`: volumes in restic's repositories.

#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "base/json_builder.h"
#include "base/text.h"
#include "cbt/source/copy_ranges.h"
#include "cbt/version.h"
#include "programs/backup/create.h"
#include "programs/backup/restore.h"
#include "programs/backup/volume_snapshot.h"
#include "programs/cbt/command.h"
#include "programs/cbt/commands/backup_common.h"
#include "programs/cbt/commands/backup_ranges.h"
#include "programs/cbt/commands/backup_target.h"
#include "programs/cbt/commands/nbd_options.h"
#include "programs/cbt/commands/snapshot_data.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"
#include "repository/host.h"

namespace cbt::cli {
namespace {

struct BackupArguments {
  RepositoryArguments repository;
  std::string volume;  // with @SNAPSHOT where one can be chosen
  std::string data;
  std::string to;
  bool onto = false;
  std::string since;
  bool require_incremental = false;
  std::vector<std::string> tags;
  double percent = 100;
  NbdArguments nbd;
  RangeArguments ranges;
};

// "VOLUME@SNAPSHOT"; the part behind the sign may be missing.
struct Choice {
  std::string volume;
  std::string snapshot;
};

Choice ParseChoice(const std::string& text) {
  const size_t at = text.find('@');
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + 1)};
}

void AddSnapshot(JsonBuilder& json, const backup::VolumeSnapshot& snapshot) {
  json.Field("snapshot_id", snapshot.snapshot.id.Hex()).Field("volume", snapshot.volume);
  json.Field("time", repository::TimeText(snapshot.snapshot.time));
  if (snapshot.handle.has_value()) json.Field("handle", *snapshot.handle);
  if (snapshot.capacity.has_value()) json.Field("capacity_bytes", *snapshot.capacity);
  if (!snapshot.tier.empty()) json.Field("tier", snapshot.tier);
}

// --- create

absl::Status PrintCreated(const backup::CreateResult& made, bool json) {
  if (json) {
    JsonBuilder line;
    line.BeginObject().Field("message_type", "summary");
    AddSnapshot(line, made.snapshot);
    if (made.parent.has_value()) line.Field("parent", made.parent->Hex());
    line.Field("blobs", made.blobs).Field("blobs_read", made.blobs_read);
    line.Field("bytes_read", made.bytes_read).Field("blobs_stored", made.stored.blobs);
    line.Field("bytes_stored", made.stored.bytes);
    return PrintResult(line.EndObject().Take());
  }
  return PrintResult(absl::StrCat(
      "snapshot ", made.snapshot.snapshot.id.Short(), " of ", made.snapshot.volume, ": ",
      made.snapshot.tier, made.parent.has_value() ? ", since " + made.parent->Short() : "",
      "; read ", HumanSize(made.bytes_read), " of ", HumanSize(made.snapshot.capacity.value_or(0)),
      ", stored ", HumanSize(made.stored.bytes)));
}

int CreateBackup(const BackupArguments& arguments) {
  static constexpr char kName[] = "backup create";
  const auto fail = [](const absl::Status& status) { return Report(kName, status); };
  const StopOnSignal stop;
  const absl::StatusOr<SnapshotData> data =
      SnapshotData::Open(arguments.data, arguments.nbd, stop.token());
  if (!data.ok()) return fail(data.status());
  if (absl::Status valid = backup::CheckVolumeName(arguments.volume); !valid.ok()) {
    return fail(valid);
  }
  absl::StatusOr<Ranges> ranges = OpenRanges(
      arguments.ranges, data->size(), [&data] { return data->Allocated(); }, kName);
  if (!ranges.ok()) return fail(ranges.status());
  const auto repository = OpenRepository(arguments.repository, kName, true, stop.token());
  if (!repository.ok()) return fail(repository.status());
  if (!ranges->handle.has_value()) {
    Note(kName,
         "warning: the snapshot has no handle, so the next backup can't go on from it "
         "(--handle)");
  }
  BackupProgress progress("backing up", arguments.repository.json);
  const std::unique_ptr<CopyInput> input = data->Input();
  const absl::StatusOr<backup::CreateResult> made =
      backup::Create(**repository, *input, *ranges->source,
                     {.volume = arguments.volume,
                      .handle = ranges->handle,
                      .tags = arguments.tags,
                      .program = std::string("cbtctl ") + kVersion,
                      .require_incremental = arguments.require_incremental,
                      .threads = WorkerThreads(),
                      .stop = stop.token(),
                      .check_input = [&data] { return data->CheckUnchanged(); },
                      .on_progress =
                          [&progress](const backup::CreateProgress& now) {
                            progress.Update(now.bytes_done, now.bytes_total);
                          },
                      .on_note = [](const std::string& text) { Note(kName, text); }});
  progress.Clear();
  if (backup::IsNotIncremental(made.status())) {
    fail(made.status());
    return kExitNo;
  }
  if (!made.ok()) return fail(made.status());
  return fail(PrintCreated(*made, arguments.repository.json));
}

// --- restore

absl::Status PrintRestored(const backup::VolumeSnapshot& snapshot, uint64_t size,
                           const backup::TransferProgress& done, bool json) {
  if (json) {
    JsonBuilder line;
    line.BeginObject().Field("message_type", "summary");
    AddSnapshot(line, snapshot);
    line.Field("total_bytes", done.bytes_total).Field("bytes_written", done.bytes_written);
    line.Field("bytes_fetched", done.bytes_fetched);
    return PrintResult(line.EndObject().Take());
  }
  return PrintResult(absl::StrCat(
      "restored ", snapshot.volume, " of ", snapshot.snapshot.id.Short(), ": ", HumanSize(size),
      done.bytes_total < size ? ", looked at " + HumanSize(done.bytes_total) : "", ", wrote ",
      HumanSize(done.bytes_written)));
}

int RestoreBackup(const BackupArguments& arguments) {
  static constexpr char kName[] = "backup restore";
  const auto fail = [](const absl::Status& status) { return Report(kName, status); };
  const StopOnSignal stop;
  const auto repository = OpenRepository(arguments.repository, kName, false, stop.token());
  if (!repository.ok()) return fail(repository.status());
  const Choice choice = ParseChoice(arguments.volume);
  const absl::StatusOr<backup::VolumeSnapshot> snapshot =
      backup::FindVolumeSnapshot(**repository, choice.volume, choice.snapshot);
  if (!snapshot.ok()) return fail(snapshot.status());
  const absl::StatusOr<backup::VolumeContent> content =
      backup::LoadContent(**repository, *snapshot);
  if (!content.ok()) return fail(content.status());
  BackupProgress progress("restoring", arguments.repository.json);
  const absl::StatusOr<backup::TransferProgress> done =
      RestoreTo(**repository, *snapshot, *content,
                {.to = arguments.to,
                 .onto = arguments.onto,
                 .since = arguments.since,
                 .ranges = arguments.ranges,
                 .nbd = arguments.nbd},
                {.stop = stop.token(), .on_progress = [&](const backup::TransferProgress& now) {
                   progress.Update(now.bytes_done, now.bytes_total);
                 }});
  progress.Clear();
  if (!done.ok()) return fail(done.status());
  return fail(PrintRestored(*snapshot, content->size, *done, arguments.repository.json));
}

// --- list

absl::Status ListBackups(const BackupArguments& arguments) {
  const StopOnSignal stop;
  const auto repository = OpenRepository(arguments.repository, "backup list", false, stop.token());
  if (!repository.ok()) return repository.status();
  const absl::StatusOr<std::vector<backup::VolumeSnapshot>> found =
      backup::FindVolumeSnapshots(**repository, arguments.volume);
  if (!found.ok()) return found.status();
  std::string text;
  if (!arguments.repository.json) {
    text = absl::StrFormat("%-8s  %-16s  %-20s  %10s  %-9s  %s\n", "id", "time", "volume", "size",
                           "tier", "handle");
  }
  for (const backup::VolumeSnapshot& one : *found) {
    if (arguments.repository.json) {
      JsonBuilder line;
      line.BeginObject();
      AddSnapshot(line, one);
      absl::StrAppend(&text, line.EndObject().Take(), "\n");
      continue;
    }
    absl::StrAppendFormat(&text, "%-8s  %-16s  %-20s  %10s  %-9s  %s\n", one.snapshot.id.Short(),
                          MinuteText(absl::ToUnixNanos(one.snapshot.time)), OneLine(one.volume),
                          one.capacity.has_value() ? HumanSize(*one.capacity) : "-",
                          one.tier.empty() ? "-" : OneLine(one.tier),
                          OneLine(one.handle.value_or("-")));
  }
  if (absl::Status locked = (*repository)->ConfirmLock(); !locked.ok()) return locked;
  Output output(STDOUT_FILENO, "stdout");
  output.Append(text);
  return output.Close();
}

// --- verify

int VerifyBackup(const BackupArguments& arguments) {
  static constexpr char kName[] = "backup verify";
  const auto fail = [](const absl::Status& status) { return Report(kName, status); };
  const StopOnSignal stop;
  const absl::StatusOr<SnapshotData> data =
      SnapshotData::Open(arguments.data, arguments.nbd, stop.token());
  if (!data.ok()) return fail(data.status());
  const auto repository = OpenRepository(arguments.repository, kName, false, stop.token());
  if (!repository.ok()) return fail(repository.status());
  const Choice choice = ParseChoice(arguments.volume);
  const absl::StatusOr<backup::VolumeSnapshot> snapshot =
      backup::FindVolumeSnapshot(**repository, choice.volume, choice.snapshot);
  if (!snapshot.ok()) return fail(snapshot.status());
  const absl::StatusOr<backup::VolumeContent> content =
      backup::LoadContent(**repository, *snapshot);
  if (!content.ok()) return fail(content.status());
  BackupProgress progress("verifying", arguments.repository.json);
  absl::StatusOr<backup::Comparison> compared = backup::Compare(
      **repository, *content, *data->Input(NbdReads::kAll), arguments.percent,
      {.stop = stop.token(), .on_progress = [&](const backup::TransferProgress& now) {
         progress.Update(now.bytes_done, now.bytes_total);
       }});
  progress.Clear();
  if (compared.ok()) {
    if (absl::Status same = data->CheckUnchanged(); !same.ok()) compared = same;
  }
  if (compared.ok()) {
    if (absl::Status locked = (*repository)->ConfirmLock(); !locked.ok()) compared = locked;
  }
  if (!compared.ok()) return fail(compared.status());
  const bool same = !compared->difference.has_value();
  absl::Status printed;
  if (arguments.repository.json) {
    JsonBuilder line;
    line.BeginObject().Field("message_type", "summary").Field("verified", same);
    AddSnapshot(line, *snapshot);
    line.Field("blobs", content->blobs.size()).Field("blobs_compared", compared->blobs);
    if (!same) {
      line.Key("first_difference").BeginObject();
      line.Field("byte_offset", compared->difference->offset);
      line.Field("size_bytes", compared->difference->length).EndObject();
    }
    printed = PrintResult(line.EndObject().Take());
  } else if (same) {
    printed =
        PrintResult(absl::StrCat("yes: ", compared->blobs, " of ", content->blobs.size(),
                                 " blobs of ", snapshot->snapshot.id.Short(), " equal the data"));
  } else {
    printed = PrintResult(
        absl::StrCat("no: ", snapshot->snapshot.id.Short(), " differs from the data: byte_offset ",
                     compared->difference->offset, ", size_bytes ", compared->difference->length));
  }
  if (const int failed = fail(printed); failed != kExitDone) return failed;
  return same ? kExitDone : kExitNo;
}

void AddNoLock(CLI::App& subcommand, RepositoryArguments& arguments) {
  subcommand.add_flag("--no-lock", arguments.no_lock,
                      "Write no lock into the repository, where it can only be read");
}

void AddData(CLI::App& subcommand, std::string& data, NbdArguments& nbd) {
  subcommand
      .add_option("-d,--data", data,
                  "The snapshot's data: a raw image, a block device, or an NBD export, "
                  "nbd://HOST/NAME or nbd+unix:///NAME?socket=PATH; nbds for TLS")
      ->type_name("DATA")
      ->required();
  AddNbdOptions(subcommand, nbd, "--data");
}

}  // namespace

void AddBackup(CLI::App& app, Command& command) {
  CLI::App* const sub =
      app.add_subcommand("backup", "Incremental backups of volumes into repositories of restic");
  sub->require_subcommand(1);
  const auto arguments = std::make_shared<BackupArguments>();
  RepositoryArguments& repository = arguments->repository;

  CLI::App* const create = sub->add_subcommand(
      "create", "Back up a volume, reading only what changed since the last one");
  create->add_option("VOLUME", arguments->volume, "Name of the volume in the repository")
      ->required();
  AddData(*create, arguments->data, arguments->nbd);
  AddRepositoryOptions(*create, repository);
  AddRangeOptions(*create, arguments->ranges);
  AddHandleOption(*create, arguments->ranges);
  create->add_option("--tag", arguments->tags, "A further tag of the snapshot")
      ->type_name("TAG")
      ->allow_extra_args(false);
  create->add_flag("--require-incremental", arguments->require_incremental,
                   "Exit with status 1 instead of reading more than what changed");
  create->add_flag("--init", repository.init, "Make the repository if it does not exist");
  create->footer(
      "The base is the newest snapshot of VOLUME in the repository. Without it, or without an "
      "answer\n"
      "about it, what is allocated is read, and if that is unknown everything; each step is said.\n"
      "A backup that was killed is started again: what it had stored is not stored twice.\n"
      "Example: Tuesday's changes, and the next day's base\n"
      "  cbtctl backup create vol1 --repo /backups --data vol1/tuesday.img \\\n"
      "    --from-service unix:///run/cbt.sock --snapshot vol1/tuesday");
  create->callback(
      [arguments, &command] { command = [arguments] { return CreateBackup(*arguments); }; });

  CLI::App* const restore = sub->add_subcommand("restore", "Write a volume to a file or device");
  restore
      ->add_option("VOLUME", arguments->volume,
                   "VOLUME[@SNAPSHOT]: its id or handle; else the newest")
      ->required();
  restore
      ->add_option("-t,--to", arguments->to,
                   "File to write, replaced only when complete; or a device, or an NBD export")
      ->type_name("TARGET")
      ->required();
  AddNbdOptions(*restore, arguments->nbd, "--to");
  CLI::Option* const onto = restore->add_flag(
      "--onto", arguments->onto, "Read what is there and write only what differs, in place");
  restore
      ->add_option("--since", arguments->since,
                   "TARGET holds this snapshot of VOLUME (id or handle), but for what --delta or "
                   "--from-service says: only what differs is read; default with these: the one "
                   "that is restored")
      ->type_name("SNAPSHOT")
      ->needs(onto);
  AddRangeOptions(*restore, arguments->ranges);
  for (const char* option : {"--from-service", "--delta"}) {
    restore->get_option(option)->needs(onto);
  }
  AddRepositoryOptions(*restore, repository);
  AddNoLock(*restore, repository);
  restore->footer(
      "What is written in place is a mixture of old and new until the command ends well.\n"
      "With --since, --delta and --from-service, some of what is said not to differ is compared\n"
      "before anything is written; `backup verify` compares all.\n"
      "Examples:\n"
      "  cbtctl backup restore vol1@latest --repo s3:s3.example.com/bucket --to /dev/vg/vol1\n"
      "Back to Monday, where a service knows what was written since\n"
      "  cbtctl backup restore vol1@vol1/monday --repo /backups --to /dev/vg/vol1 --onto \\\n"
      "    --from-service unix:///run/cbt.sock --snapshot vol1/now");
  restore->callback(
      [arguments, &command] { command = [arguments] { return RestoreBackup(*arguments); }; });

  CLI::App* const list = sub->add_subcommand("list", "List the snapshots of volumes, oldest first");
  list->add_option("VOLUME", arguments->volume, "Only those of this volume");
  AddRepositoryOptions(*list, repository);
  AddNoLock(*list, repository);
  list->footer("Example:\n  cbtctl backup list --repo /backups");
  list->callback([arguments, &command] {
    command = [arguments] { return Report("backup list", ListBackups(*arguments)); };
  });

  CLI::App* const verify =
      sub->add_subcommand("verify", "Compare a volume in the repository with data, byte by byte");
  verify
      ->add_option("VOLUME", arguments->volume,
                   "VOLUME[@SNAPSHOT]: its id or handle; else the newest")
      ->required();
  AddData(*verify, arguments->data, arguments->nbd);
  verify
      ->add_option("--sample", arguments->percent,
                   "Percent of the blobs, chosen at random; default: all")
      ->type_name("PERCENT")
      ->check(CLI::Range(0.0, 100.0).description(""));
  AddRepositoryOptions(*verify, repository);
  AddNoLock(*verify, repository);
  verify->footer(
      "Exits with status 1 if they differ.\n"
      "Example:\n"
      "  cbtctl backup verify vol1 --repo /backups --data vol1/tuesday.img");
  verify->callback(
      [arguments, &command] { command = [arguments] { return VerifyBackup(*arguments); }; });
  sub->footer(
      "Keys, retention, check and mount are restic's: `restic -r REPO "
      "key|forget|prune|check|mount`.\n"
      "RESTIC_REPOSITORY, RESTIC_PASSWORD and kin, and AWS_* for S3, mean what they mean there.\n"
      "Example: a first backup, and what is there\n"
      "  cbtctl backup create vol1 --init --repo /backups --data vol1/monday.img --handle monday\n"
      "  cbtctl backup list --repo /backups");
}

}  // namespace cbt::cli
