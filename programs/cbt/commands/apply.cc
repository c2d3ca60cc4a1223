// `cbtctl apply`: an incremental restore, which also proves that a delta is right.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "base/file_io.h"
#include "cbt/executor.h"
#include "cbt/source/image.h"
#include "programs/cbt/command.h"
#include "programs/cbt/options/extent_options.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/output/progress.h"
#include "programs/cbt/output/range_copier.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

struct ApplyArguments {
  std::string base;
  std::string target;
  std::string out;
  std::optional<uint64_t> block_size;
};

struct Applied {
  uint64_t bytes = 0;
  uint64_t ranges = 0;
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

// Only callable while there is one thread.
mode_t CurrentUmask() {
  const mode_t mask = umask(0);
  umask(mask);
  return mask;
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

// Writes `target` to `descriptor`, an empty file, starting from a copy of `base`.
absl::StatusOr<Applied> Restore(const std::shared_ptr<const Image>& base,
                                const std::shared_ptr<const Image>& target,
                                const ApplyArguments& arguments, int descriptor) {
  const auto size = static_cast<off64_t>(target->size());
  if (Retry([&] { return ftruncate(descriptor, size); }) != 0) {
    return IoError(arguments.out, errno);
  }
  RangeCopier copier(descriptor, arguments.out);
  const uint64_t shared = std::min(base->size(), target->size());
  {
    Progress progress("copying base", shared);
    copier.set_on_copied([&progress](uint64_t end) { progress.Update(end); });
    if (absl::Status copied = copier.CopyData(*base, 0, shared); !copied.ok()) return copied;
  }

  ThreadPool pool(WorkerThreads());
  absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor = MakeImageDeltaCursor(
      base, target,
      {.block_size = arguments.block_size.value_or(kDefaultBlockSize), .executor = &pool});
  if (!cursor.ok()) return cursor.status();
  Progress progress("applying changes", target->size());
  copier.set_on_copied([&progress](uint64_t end) { progress.Update(end); });
  Applied applied;
  const absl::Status done = ForEachBatch(**cursor, [&](const ExtentBatch& batch) -> absl::Status {
    for (size_t i = 0; i < batch.size(); ++i) {
      const Extent extent = batch[i];
      if (absl::Status copied = copier.CopyExactly(*target, extent.offset, extent.end());
          !copied.ok()) {
        return copied;
      }
      applied.bytes += extent.length;
      ++applied.ranges;
    }
    progress.Update((*cursor)->covered());
    return absl::OkStatus();
  });
  if (!done.ok()) return done;
  // Data was copied before and after the comparison, which can't see changes made in between.
  if (absl::Status unchanged = base->CheckUnchanged(); !unchanged.ok()) return unchanged;
  if (absl::Status unchanged = target->CheckUnchanged(); !unchanged.ok()) return unchanged;
  return applied;
}

absl::Status Apply(const ApplyArguments& arguments) {
  const absl::StatusOr<std::shared_ptr<const Image>> base = Image::Open(arguments.base);
  if (!base.ok()) return base.status();
  const absl::StatusOr<std::shared_ptr<const Image>> target = Image::Open(arguments.target);
  if (!target.ok()) return target.status();
  const absl::StatusOr<Destination> destination = CheckDestination(arguments.out, **base, **target);
  if (!destination.ok()) return destination.status();
  WarnIfSwapped("apply", arguments.base, arguments.target);
  const absl::StatusOr<std::unique_ptr<TempFile>> file = TempFile::Create(destination->path);
  if (!file.ok()) return file.status();

  const absl::StatusOr<Applied> applied = Restore(*base, *target, arguments, (*file)->descriptor());
  if (!applied.ok()) return applied.status();
  if (absl::Status committed = (*file)->Commit(destination->mode); !committed.ok()) {
    return committed;
  }

  Output output(STDOUT_FILENO, "stdout");
  output.Append("copied " + HumanSize(applied->bytes) + " of " + HumanSize((*target)->size()) +
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
  sub->add_option("TARGET", arguments->target, "Image of the later snapshot")->required();
  sub->add_option("OUT", arguments->out, "File to write; replaced only when complete")->required();
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
