// `cbtctl apply`: an incremental restore, which also proves that a delta is right.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file_io.h"
#include "cbt/executor.h"
#include "cbt/memory.h"
#include "cbt/source/copy_ranges.h"
#include "cbt/source/image.h"
#include "cbt/source/qcow2.h"
#include "programs/cbt/command.h"
#include "programs/cbt/options/choices.h"
#include "programs/cbt/options/extent_options.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/output/progress.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"
#include "source/overlay/overlay_input.h"

namespace cbt::cli {
namespace {

struct ApplyArguments {
  std::string base;
  std::string target;
  std::string out;
  std::string from;  // empty: not said
  std::optional<uint64_t> block_size;
};

// The later snapshot: an image, or an increment above the base.
struct Later {
  std::shared_ptr<const Image> file;
  std::shared_ptr<const Qcow2Image> overlay = nullptr;  // null: an image

  uint64_t size() const { return overlay != nullptr ? overlay->virtual_size() : file->size(); }
};

// Where the result goes, and its permissions.
struct Destination {
  std::string path;
  mode_t mode = 0;
};

absl::StatusOr<struct stat> StatOf(const Image& image) {
  struct stat info {};
  if (fstat(image.descriptor(), &info) != 0) return IoError(image.label(), errno);
  return info;
}

// Checks that writing `out` can't damage the images or anything else.
absl::StatusOr<Destination> CheckDestination(const std::string& out, const Image& base,
                                             const Image& target) {
  constexpr mode_t kPermissions = 0777;
  const absl::StatusOr<struct stat> base_info = StatOf(base);
  if (!base_info.ok()) return base_info.status();
  const absl::StatusOr<struct stat> target_info = StatOf(target);
  if (!target_info.ok()) return target_info.status();

  if (IsStdout(out)) {
    return UsageError(out,
                      "an image has no end marker: one that is cut would look whole; name a file"
                      " (./- for one of that name)");
  }
  // Compares the open images, since their paths may have been reused.
  absl::StatusOr<OutputPlace> place = FindOutputPlace(out, {});
  if (!place.ok()) return place.status();
  if (!place->present.has_value()) {
    return Destination{out, target_info->st_mode & kPermissions & ~CurrentUmask()};
  }
  const struct stat& info = *place->present;
  if (MayBeSameFile(info, *base_info)) return UsageError(out, "is the base image");
  if (MayBeSameFile(info, *target_info)) return UsageError(out, "is the target image");
  return Destination{std::move(place->path), info.st_mode & kPermissions};
}

absl::StatusOr<Later> OpenLater(const ApplyArguments& arguments) {
  absl::StatusOr<std::shared_ptr<const Image>> file = Image::Open(arguments.target);
  if (!file.ok()) return file.status();
  Later later{*std::move(file)};
  if (arguments.from.empty()) {
    std::array<uint8_t, 4> first{};
    absl::Status read = later.file->Read(0, first.size(), first.data());
    if (!read.ok()) return read;
    // A guest decides how its volume begins, so the content alone must not decide what it is.
    if (LooksLikeQcow2(first)) {
      return UsageError(arguments.target,
                        "begins like qcow2: say whether it is an increment of that format "
                        "(--from qcow2) or the volume itself (--from image)");
    }
  }
  if (arguments.from != "qcow2") return later;
  absl::StatusOr<std::shared_ptr<const Qcow2Image>> overlay =
      Qcow2Image::FromImage(later.file, "", {.follow_backing = false});
  if (!overlay.ok()) return overlay.status();
  later.overlay = *std::move(overlay);
  return later;
}

// What is to be written over a copy of the base, and where it comes from.
struct RangesToApply {
  std::unique_ptr<ExtentCursor> cursor;
  std::unique_ptr<CopyInput> input;
};

absl::StatusOr<RangesToApply> OpenRanges(const std::shared_ptr<const Image>& base,
                                         const Later& target, const ApplyArguments& arguments,
                                         Executor& executor) {
  if (target.overlay != nullptr) {
    // The base is copied as it lies in its file.
    absl::Status raw = CheckOverlayBase(*target.overlay, *base);
    if (!raw.ok()) return raw;
    absl::StatusOr<std::unique_ptr<ExtentCursor>> held =
        MakeQcow2LayerCursor({target.overlay, std::nullopt});
    if (!held.ok()) return held.status();
    absl::StatusOr<std::unique_ptr<CopyInput>> input = MakeOverlayInput(target.overlay);
    if (!input.ok()) return input.status();
    return RangesToApply{*std::move(held), *std::move(input)};
  }
  absl::StatusOr<std::unique_ptr<ExtentCursor>> changed = MakeImageDeltaCursor(
      base, target.file,
      {.block_size = arguments.block_size.value_or(kDefaultBlockSize), .executor = &executor});
  if (!changed.ok()) return changed.status();
  return RangesToApply{*std::move(changed), MakeCopyInput(target.file)};
}

// Writes `target` to `descriptor`, an empty file, starting from a copy of `base`.
absl::StatusOr<CopyProgress> Restore(const std::shared_ptr<const Image>& base, const Later& target,
                                     const ApplyArguments& arguments, int descriptor) {
  ThreadPool pool(WorkerThreads());
  absl::StatusOr<RangesToApply> ranges = OpenRanges(base, target, arguments, pool);
  if (!ranges.ok()) return ranges.status();
  const auto size = static_cast<off64_t>(target.size());
  if (Retry([&] { return ftruncate(descriptor, size); }) != 0) {
    return IoError(arguments.out, errno);
  }
  const std::unique_ptr<CopyOutput> output = MakeCopyOutput(descriptor, arguments.out);
  // The commit syncs.
  CopyOptions options = {.executor = &pool, .output_is_zero = true, .sync = false};
  const uint64_t shared = std::min(base->size(), target.size());
  {
    Progress progress("copying base", shared);
    options.on_progress = [&progress](const CopyProgress& done) { progress.Update(done.covered); };
    options.allow_longer_input = true;
    const absl::StatusOr<std::unique_ptr<ExtentCursor>> all =
        MakeExtentCursor(shared == 0 ? std::vector<Extent>() : std::vector<Extent>{{0, shared}},
                         {.capacity = shared, .granularity = 1});
    if (!all.ok()) return all.status();
    const absl::StatusOr<CopyProgress> copied =
        CopyRanges(**all, *MakeCopyInput(base), *output, options);
    if (!copied.ok()) return copied.status();
  }

  Progress progress("applying changes", target.size());
  options.on_progress = [&progress](const CopyProgress& done) { progress.Update(done.covered); };
  options.output_is_zero = false;
  options.allow_longer_input = false;
  const absl::StatusOr<CopyProgress> applied =
      CopyRanges(*ranges->cursor, *ranges->input, *output, options);
  if (!applied.ok()) return applied.status();
  // Data was copied before and after the comparison, which can't see changes made in between.
  if (absl::Status unchanged = base->CheckUnchanged(); !unchanged.ok()) return unchanged;
  if (absl::Status unchanged = target.file->CheckUnchanged(); !unchanged.ok()) return unchanged;
  return applied;
}

absl::Status Apply(const ApplyArguments& arguments) {
  const absl::StatusOr<std::shared_ptr<const Image>> base = Image::Open(arguments.base);
  if (!base.ok()) return base.status();
  const absl::StatusOr<Later> target = OpenLater(arguments);
  if (!target.ok()) return target.status();
  const absl::StatusOr<Destination> destination =
      CheckDestination(arguments.out, **base, *target->file);
  if (!destination.ok()) return destination.status();
  WarnIfSwapped("apply", arguments.base, arguments.target);
  const absl::StatusOr<std::unique_ptr<TempFile>> file = TempFile::Create(destination->path);
  if (!file.ok()) return file.status();

  const absl::StatusOr<CopyProgress> applied =
      Restore(*base, *target, arguments, (*file)->descriptor());
  if (!applied.ok()) return applied.status();
  if (absl::Status committed = (*file)->Commit(destination->mode); !committed.ok()) {
    return committed;
  }

  Output output(STDOUT_FILENO, "stdout");
  output.Append("copied " + HumanSize(applied->range_bytes) + " of " + HumanSize(target->size()) +
                " in " + std::to_string(applied->ranges) +
                (applied->ranges == 1 ? " range\n" : " ranges\n"));
  return output.Close();
}

}  // namespace

void AddApply(CLI::App& app, Command& command) {
  CLI::App* const sub = app.add_subcommand(
      "apply", "Copy BASE to OUT, then the changed ranges of TARGET, so that OUT equals TARGET");
  const auto arguments = std::make_shared<ApplyArguments>();
  sub->add_option("BASE", arguments->base, "Image of the earlier snapshot")->required();
  sub->add_option("TARGET", arguments->target,
                  "Image of the later snapshot, or an increment above BASE (--from qcow2)")
      ->required();
  sub->add_option("OUT", arguments->out, "File to write; replaced only when complete")->required();
  sub->add_option("--from", arguments->from,
                  "What TARGET is: image, or qcow2, an increment as `cbtctl export` writes them")
      ->type_name("FORMAT")
      ->check(IsOneOf({"image", "qcow2"}));
  AddBlockSizeOption(*sub, arguments->block_size);
  sub->footer(
      "Example: prove that the delta from Monday to Tuesday is complete\n"
      "  cbtctl apply vol1/monday.img vol1/tuesday.img restored.img\n"
      "  cmp vol1/tuesday.img restored.img");
  sub->callback([arguments, &command] {
    command = [arguments] { return Report("apply", Apply(*arguments)); };
  });
}

}  // namespace cbt::cli
