// `cbtctl export`: an increment as an overlay of qcow2, which others read.

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cbt/executor.h"
#include "cbt/source/copy_ranges.h"
#include "cbt/source/open.h"
#include "programs/cbt/command.h"
#include "programs/cbt/commands/nbd_options.h"
#include "programs/cbt/commands/service_changes.h"
#include "programs/cbt/commands/snapshot_data.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/options/extent_options.h"
#include "programs/cbt/options/source_options.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/output/progress.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"
#include "source/overlay/overlay_writer.h"

namespace cbt::cli {
namespace {

struct ExportArguments {
  std::string base;    // or the only source of a delta
  std::string target;  // empty if there is only one source
  SourceInput input;
  bool by_extents = false;
  std::optional<uint64_t> block_size;
  std::shared_ptr<ServiceChanges> service;
  std::string data;
  NbdArguments nbd;
  std::string output;
  std::string backing;
  std::string backing_format;
  std::optional<uint64_t> cluster_size;
  std::optional<uint64_t> compress;  // the level
  bool find_zeros = false;
};

// The changes to export. A cursor of a service belongs to it.
struct Changes {
  ExtentCursor* cursor = nullptr;
  std::optional<OpenedSource> source = {};
  bool qcow2 = false;  // of two states of qcow2 images
};

absl::StatusOr<Changes> OpenChanges(const ExportArguments& arguments, const SnapshotData& data,
                                    InputFiles& inputs, Executor& executor) {
  Changes changes;
  if (arguments.service->wanted()) {
    absl::StatusOr<ExtentCursor*> cursor = arguments.service->Open(data.size());
    if (!cursor.ok()) return cursor.status();
    changes.cursor = *cursor;
    return changes;
  }
  SourceOptions options = {.spec = WithBlockSize(arguments.input.spec, arguments.block_size),
                           .capacity = arguments.input.capacity,
                           .base_capacity = arguments.input.base_capacity,
                           .block_size = arguments.block_size.value_or(kDefaultBlockSize),
                           .executor = &executor,
                           .by_extents = arguments.by_extents,
                           .open = inputs.Opener()};
  const bool two = !arguments.target.empty();
  if (!two) options.purpose = SourcePurpose::kDelta;
  // Lists that don't hold the volume's size are of the data's, unless that is a file of qcow2.
  bool odd_data = false;
  if (!two && !options.capacity.has_value()) {
    const absl::StatusOr<bool> qcow2 = data.BeginsLikeQcow2();
    if (!qcow2.ok()) return qcow2.status();
    odd_data = *qcow2;
    if (!odd_data) options.capacity = data.size();
  }
  absl::StatusOr<OpenedSource> source = two ? OpenDelta(arguments.base, arguments.target, options)
                                            : OpenSource(arguments.base, options);
  if (!source.ok() && odd_data) {
    return UsageError(arguments.data,
                      "begins like qcow2, so its size may not be the volume's: name a raw image "
                      "(qemu-img convert -O raw), or say the size (--capacity); " +
                          std::string(source.status().message()));
  }
  if (!source.ok()) return source.status();
  if (two) WarnIfSwapped("export", arguments.base, arguments.target);
  NoteFormat(arguments.input.spec, *source);
  changes.qcow2 = source->format == SourceFormat::kQcow2;
  changes.source = *std::move(source);
  changes.cursor = changes.source->cursor.get();
  return changes;
}

bool NamesState(const SourceSpec& spec) {
  return std::any_of(spec.options.begin(), spec.options.end(), [](const auto& option) {
    return option.first == "base-snapshot" || option.first == "snapshot";
  });
}

// The name of the base as it stands in the overlay: from the directory of the overlay, so that both
// can be moved together; in full in a pipe, which has no directory.
absl::StatusOr<std::string> BackingName(const ExportArguments& arguments) {
  if (!arguments.backing.empty()) return arguments.backing;
  if (arguments.target.empty()) {
    return UsageError("--backing", "name the image of the base, which the increment lies above");
  }
  if (NamesState(arguments.input.spec)) {
    return UsageError(
        "--backing", "the paths name images, not the snapshots in them: name an image of the base");
  }
  namespace fs = std::filesystem;
  const fs::path base(arguments.base);
  std::error_code error;
  if (IsStdout(arguments.output) || base.is_absolute()) {
    const fs::path full = fs::absolute(base, error).lexically_normal();
    if (error) return IoError(arguments.base, error.value());
    return full.string();
  }
  const fs::path folder = fs::path(arguments.output).parent_path();
  const fs::path from = fs::weakly_canonical(folder.empty() ? fs::path(".") : folder, error);
  if (error) return IoError(arguments.output, error.value());
  const fs::path to =
      fs::weakly_canonical(base.parent_path().empty() ? fs::path(".") : base.parent_path(), error);
  if (error) return IoError(arguments.base, error.value());
  const std::string name = (to / base.filename()).lexically_relative(from).string();
  // qemu takes what stands before a colon for a protocol, unless a slash comes first.
  const size_t colon = name.find(':');
  return colon != std::string::npos && colon < name.find('/') ? "./" + name : name;
}

absl::Status PrintSummary(const OverlaySummary& summary, uint64_t size, bool to_stdout) {
  std::string text = "wrote " + HumanSize(summary.file_bytes) + " of a volume of " +
                     HumanSize(size) + ": " + HumanSize(summary.data_bytes) + " of data, " +
                     HumanSize(summary.zero_bytes) + " of zeros";
  if (to_stdout) {
    Note("export", text);
    return absl::OkStatus();
  }
  Output output(STDOUT_FILENO, "stdout");
  output.Append(text + "\n");
  return output.Close();
}

absl::StatusOr<OverlaySummary> Write(const ExportArguments& arguments, Changes& changes,
                                     const SnapshotData& data, int descriptor,
                                     OverlayOptions options) {
  Progress progress("exporting", data.size());
  options.on_progress = [&](uint64_t done, uint64_t all) {
    // In terms of the volume, whose size is known from the beginning.
    const double share =
        static_cast<double>(done) / static_cast<double>(std::max<uint64_t>(all, 1));
    progress.Update(static_cast<uint64_t>(share * static_cast<double>(data.size())));
  };
  const std::unique_ptr<OverlayOutput> output = MakeOverlayOutput(descriptor, arguments.output);
  absl::StatusOr<OverlaySummary> summary =
      WriteOverlay(*changes.cursor, *data.Input(), *output, options);
  if (!summary.ok()) return summary;
  // The data was read after the changes were.
  if (absl::Status unchanged = data.CheckUnchanged(); !unchanged.ok()) return unchanged;
  return summary;
}

absl::Status CheckArguments(const ExportArguments& arguments) {
  if (arguments.service->wanted() == !arguments.base.empty()) {
    return UsageError("usage", arguments.base.empty()
                                   ? "give BASE and TARGET, a source of changes, or --service"
                                   : "the changes come from --service or from BASE, not from both");
  }
  if (arguments.data.empty() && arguments.target.empty()) {
    return UsageError("--data", "name the image or device with the data of the later snapshot");
  }
  if (IsStdout(arguments.output) && isatty(STDOUT_FILENO) != 0) {
    return UsageError("--output", "is a terminal: redirect it, or name a file");
  }
  return absl::OkStatus();
}

absl::Status Export(const ExportArguments& arguments) {
  if (absl::Status valid = CheckArguments(arguments); !valid.ok()) return valid;
  absl::StatusOr<std::string> backing = BackingName(arguments);
  if (!backing.ok()) return backing.status();
  const std::string& data_path = arguments.data.empty() ? arguments.target : arguments.data;
  const absl::StatusOr<SnapshotData> data = SnapshotData::Open(data_path, arguments.nbd);
  if (!data.ok()) return data.status();
  const mode_t mask = CurrentUmask();
  ThreadPool pool(WorkerThreads());
  InputFiles inputs({arguments.base, arguments.target, data_path});
  absl::StatusOr<Changes> changes = OpenChanges(arguments, *data, inputs, pool);
  if (!changes.ok()) return changes.status();
  if (changes->qcow2 && arguments.data.empty()) {
    return UsageError("--data", "the target is qcow2: name a raw image or a device with its data");
  }
  OverlayOptions options = {.backing_name = *std::move(backing),
                            .backing_format = changes->qcow2 ? "qcow2" : "raw",
                            .compress = arguments.compress.has_value(),
                            .find_zeros = arguments.find_zeros,
                            .executor = &pool};
  if (!arguments.backing_format.empty()) options.backing_format = arguments.backing_format;
  if (arguments.cluster_size.has_value()) options.cluster_size = *arguments.cluster_size;
  if (arguments.compress.has_value()) {
    options.compression_level = static_cast<int>(*arguments.compress);
  }

  const bool to_stdout = IsStdout(arguments.output);
  absl::StatusOr<OverlaySummary> summary;
  if (to_stdout) {
    summary = Write(arguments, *changes, *data, STDOUT_FILENO, options);
    if (!summary.ok()) return summary.status();
    // Some file systems report a full disk only then.
    if (close(STDOUT_FILENO) != 0 && errno != EINTR) return IoError("stdout", errno);
  } else {
    constexpr mode_t kPermissions = 0777;
    constexpr mode_t kOwner = 0600;  // for data that has no permissions of its own
    const absl::StatusOr<OutputPlace> place = FindOutputPlace(arguments.output, inputs);
    if (!place.ok()) return place.status();
    const absl::StatusOr<std::optional<mode_t>> permissions = data->Permissions();
    if (!permissions.ok()) return permissions.status();
    const mode_t mode = place->present.has_value() ? place->present->st_mode & kPermissions
                                                   : permissions->value_or(kOwner) & ~mask;
    const absl::StatusOr<std::unique_ptr<TempFile>> file = TempFile::Create(place->path);
    if (!file.ok()) return file.status();
    summary = Write(arguments, *changes, *data, (*file)->descriptor(), options);
    if (!summary.ok()) return summary.status();
    if (absl::Status committed = (*file)->Commit(mode); !committed.ok()) return committed;
  }
  if (const std::string warning = arguments.service->Warning(); !warning.empty()) {
    Note("export", warning);
  }
  return PrintSummary(*summary, data->size(), to_stdout);
}

void AddExportOptions(CLI::App& subcommand, ExportArguments& arguments) {
  subcommand
      .add_option(
          "--data", arguments.data,
          "Raw image, block device or NBD export (nbd://HOST/NAME) with the data of the later "
          "snapshot; default: TARGET")
      ->type_name("DATA")
      ->check(IsNotEmpty());
  AddNbdOptions(subcommand, arguments.nbd, "--data");
  subcommand
      .add_option("-o,--output", arguments.output,
                  "File to write, replaced only when complete; - is stdout")
      ->type_name("FILE")
      ->required()
      ->check(IsNotEmpty());
  subcommand
      .add_option("--backing", arguments.backing,
                  "Name of the base's image in the increment; default: BASE, seen from FILE")
      ->type_name("NAME")
      ->check(IsNotEmpty());
  subcommand
      .add_option(
          "--backing-format", arguments.backing_format,
          "Format of the base's image: raw, qcow2; default: qcow2 if BASE was read as such, "
          "else raw")
      ->type_name("FORMAT")
      ->check(IsOneOf({"raw", "qcow2"}));
  AddBytesOption(subcommand, "--cluster-size", arguments.cluster_size,
                 "Unit in which changes are stored, 512 to 2M; default: 64K");
  subcommand
      .add_option("--compress", arguments.compress,
                  "Compress clusters with zstd, at a level of 1 to 19; needs a file")
      ->type_name("LEVEL")
      ->check(CLI::Range(1, 19))
      ->expected(0, 1)
      ->default_str("3");
  subcommand.add_flag("--find-zeros", arguments.find_zeros,
                      "Also mark clusters as zeros that hold only zeros and are no holes; needs a "
                      "file");
}

}  // namespace

void AddExport(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "export", "Write what changed as a qcow2 file above the base, for qemu and others");
  const auto arguments = std::make_shared<ExportArguments>();
  sub->add_option("BASE", arguments->base,
                  "Image of the earlier snapshot; or, alone, a source that reports what changed")
      ->check(IsNotEmpty());
  sub->add_option("TARGET", arguments->target, "Image of the later snapshot")->check(IsNotEmpty());
  AddExportOptions(*sub, *arguments);
  AddSourceInput(*sub, arguments->input, true);
  AddBlockSizeOption(*sub, arguments->block_size);
  sub->add_flag("--by-extents", arguments->by_extents,
                "For two clones (reflinks): compare where their data lies, not the data");
  arguments->service = AddServiceChanges(*sub, "export");
  sub->footer(FormatsText(SourcePurpose::kDelta) +
              "Examples: Tuesday as an increment above Monday, and back\n"
              "  cbtctl export vol1/monday.img vol1/tuesday.img --from image -o tuesday.qcow2\n"
              "  cbtctl apply vol1/monday.img tuesday.qcow2 restored.img --from qcow2\n"
              "The changes from a cluster, the data from a device, to another machine\n"
              "  cbtctl export --service k8s:prod/tuesday --base monday --data /dev/vol1 \\\n"
              "    --backing monday.img -o - | ssh backup 'cat > tuesday.qcow2'");
  sub->callback([arguments, &command] {
    command = [arguments] {
      return Report("export", Export(*arguments),
                    arguments->service->wanted() ? Origin::kServer : Origin::kInput);
    };
  });
}

}  // namespace cbt::cli
