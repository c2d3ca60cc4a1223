// `cbtctl verify`: compares the answer of a service or a map with the data itself.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/json_builder.h"
#include "cbt/change_map.h"
#include "cbt/executor.h"
#include "cbt/rpc/client.h"
#include "cbt/source/image.h"
#include "cbt/transform.h"
#include "cbt/units.h"
#include "programs/cbt/command.h"
#include "programs/cbt/commands/map_input.h"
#include "programs/cbt/options/extent_options.h"
#include "programs/cbt/options/remote_options.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/output/progress.h"
#include "programs/cbt/support/files.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

struct VerifyArguments {
  std::vector<std::string> images;  // [base,] target
  std::string map;
  MapInput map_input;
  RemoteArguments remote;
  bool json = false;
};

// The images are compared in units of this size; a unit is compared byte by byte only if it is not
// reported.
constexpr uint64_t kUnit = kMinImageBlockSize;
constexpr size_t kPiece = 64 * kKiB;

struct Finding {
  uint64_t capacity = 0;
  uint64_t changed = 0;   // bytes in units that differ or hold data
  uint64_t reported = 0;  // bytes
  uint64_t reported_changed = 0;
  std::optional<Extent> missing = {};  // the first range that should have been reported
};

// Counts the extents that pass. Borrows its input, so that the caller can read the rest.
class CountingCursor final : public ExtentCursor {
 public:
  CountingCursor(ExtentCursor& input, uint64_t& bytes) noexcept
      : ExtentCursor(input.geometry()), input_(input), bytes_(bytes) {}

 private:
  absl::Status DoSeek(uint64_t offset) override {
    bytes_ = 0;
    return input_.Seek(offset);
  }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    absl::StatusOr<Step> step = input_.Next(batch);
    if (!step.ok()) return step.status();
    for (const uint64_t length : batch.lengths()) bytes_ += length;
    return input_.covered();
  }

  ExtentCursor& input_;
  uint64_t& bytes_;
};

// The first byte range of `extent` in which the images differ, or in which the target is not all
// zeros; empty if they agree.
absl::StatusOr<std::optional<Extent>> FirstDifference(const Image* base, const Image& target,
                                                      Extent extent) {
  std::array<uint8_t, kPiece> old{};
  std::array<uint8_t, kPiece> now{};
  for (uint64_t at = extent.offset; at < extent.end(); at += kPiece) {
    const auto length = static_cast<size_t>(std::min<uint64_t>(kPiece, extent.end() - at));
    if (absl::Status read = target.Read(at, length, now.data()); !read.ok()) return read;
    if (base != nullptr) {
      if (absl::Status read = base->Read(at, length, old.data()); !read.ok()) return read;
    }
    const auto [a, b] =
        std::mismatch(now.begin(), now.begin() + static_cast<ptrdiff_t>(length), old.begin());
    if (a == now.begin() + static_cast<ptrdiff_t>(length)) continue;
    const auto first = static_cast<uint64_t>(a - now.begin());
    uint64_t last = first;
    while (last + 1 < length && now[last + 1] != old[last + 1]) ++last;
    return std::optional<Extent>(Extent{at + first, last + 1 - first});
  }
  return std::optional<Extent>();
}

// `open` returns a cursor over the reported extents.
template <typename Open>
absl::StatusOr<Finding> Compare(const std::shared_ptr<const Image>& base,
                                const std::shared_ptr<const Image>& target, Executor& executor,
                                const Open& open) {
  const ImageOptions options{.block_size = kUnit, .executor = &executor, .skip_zeros = true};
  Finding finding;
  const auto truth = [&]() {
    return base != nullptr ? MakeImageDeltaCursor(base, target, options)
                           : MakeImageAllocationCursor(target, options);
  };
  absl::StatusOr<std::unique_ptr<ExtentCursor>> reported = open();
  if (!reported.ok()) return reported.status();
  finding.capacity = (*reported)->capacity();
  if (finding.capacity != target->size()) return finding;
  absl::StatusOr<std::unique_ptr<ExtentCursor>> real = truth();
  if (!real.ok()) return real.status();
  // Units that should be reported but are not, at least in part.
  absl::StatusOr<std::unique_ptr<ExtentCursor>> left =
      Subtract(std::make_unique<CountingCursor>(**real, finding.changed),
               std::make_unique<CountingCursor>(**reported, finding.reported));
  if (!left.ok()) return left.status();
  uint64_t left_bytes = 0;
  Progress progress("verifying", finding.capacity, 0);
  absl::Status status = ForEachBatch(**left, [&](const ExtentBatch& batch) {
    progress.Update((*left)->covered());
    for (size_t i = 0; i < batch.size(); ++i) {
      left_bytes += batch[i].length;
      if (finding.missing.has_value()) continue;
      absl::StatusOr<std::optional<Extent>> missing =
          FirstDifference(base.get(), *target, batch[i]);
      if (!missing.ok()) return missing.status();
      finding.missing = *missing;
    }
    return absl::OkStatus();
  });
  // Extents reported after the last change count too, and so does how the stream ends.
  ExtentBatch rest;
  while (status.ok() && (*reported)->covered() < finding.capacity) {
    status = (*reported)->Next(rest).status();
    for (const uint64_t length : rest.lengths()) finding.reported += length;
  }
  progress.Clear();
  if (!status.ok()) return status;
  finding.reported_changed = finding.changed - left_bytes;
  return finding;
}

int PrintFinding(const Finding& finding, uint64_t size, bool json) {
  const bool right_size = finding.capacity == size;
  const bool good = right_size && !finding.missing.has_value();
  const uint64_t over = finding.reported - std::min(finding.reported, finding.reported_changed);
  std::string text;
  if (json) {
    JsonBuilder line;
    line.BeginObject().Field("verified", good).Field("capacity_bytes", finding.capacity);
    line.Field("image_bytes", size).Field("changed_bytes", finding.changed);
    line.Field("reported_bytes", finding.reported).Field("over_reported_bytes", over);
    if (finding.missing.has_value()) {
      line.Key("first_missing").BeginObject().Field("byte_offset", finding.missing->offset);
      line.Field("size_bytes", finding.missing->length).EndObject();
    }
    text = line.EndObject().Take() + "\n";
  } else if (!right_size) {
    text = absl::StrCat("no: the capacity is ", finding.capacity, ", the image has ", size,
                        " bytes\n");
  } else if (finding.missing.has_value()) {
    text = absl::StrCat("no: not reported: byte_offset ", finding.missing->offset, ", size_bytes ",
                        finding.missing->length, "\n");
  } else {
    text = absl::StrCat("yes: all of ", finding.changed, " bytes are reported (in units of ", kUnit,
                        "); ", finding.reported, " reported, ", over, " more than needed\n");
  }
  Output output(STDOUT_FILENO, "stdout");
  output.Append(text);
  if (const int failed = Report("verify", output.Close()); failed != kExitDone) return failed;
  return good ? kExitDone : kExitNo;
}

int Verify(const VerifyArguments& arguments) {
  const auto fail = [](const absl::Status& status) { return Report("verify", status); };
  if (arguments.map.empty() == arguments.remote.address.empty()) {
    return fail(UsageError("usage", "give either --map or --service to verify"));
  }
  const bool delta = arguments.images.size() == 2;
  if (!arguments.remote.address.empty() && delta != arguments.remote.has_base()) {
    return fail(UsageError(
        "--base", delta ? "two images need a base snapshot" : "a base snapshot needs two images"));
  }
  std::vector<std::shared_ptr<const Image>> images;
  for (const std::string& path : arguments.images) {
    absl::StatusOr<std::shared_ptr<const Image>> image = Image::Open(path);
    if (!image.ok()) return fail(image.status());
    images.push_back(*std::move(image));
  }
  if (delta) WarnIfSwapped("verify", arguments.images.front(), arguments.images.back());
  ThreadPool pool(WorkerThreads());
  std::optional<ChangeMap> map;
  absl::StatusOr<rpc::ListRequest> request;
  if (!arguments.map.empty()) {
    absl::StatusOr<AnyMap> read = ReadAnyMap(arguments.map, arguments.map_input);
    if (!read.ok()) return fail(read.status());
    map = std::move(read->map);
  } else {
    request = RemoteRequest(arguments.remote, "verify");
    if (!request.ok()) return fail(request.status());
    // A service that reports nothing may leave it out.
    request->capacity = images.back()->size();
  }
  const absl::StatusOr<Finding> finding =
      Compare(delta ? images[0] : nullptr, images.back(), pool,
              [&]() -> absl::StatusOr<std::unique_ptr<ExtentCursor>> {
                if (map.has_value()) return MakeChangeMapCursor(*map);
                return rpc::RemoteCursor::Open(*request);
              });
  if (!finding.ok()) {
    return Report("verify", finding.status(), map.has_value() ? Origin::kInput : Origin::kServer);
  }
  return PrintFinding(*finding, images.back()->size(), arguments.json);
}

}  // namespace

void AddVerify(CLI::App& app, Command& command) {
  CLI::App* const sub =
      app.add_subcommand("verify", "Check a service's or a map's answer against the data itself");
  const auto arguments = std::make_shared<VerifyArguments>();
  sub->add_option("IMAGE", arguments->images, "[BASE] TARGET: the images of the snapshots")
      ->required()
      ->expected(1, 2);
  sub->add_option("--map", arguments->map, "A change map, as `cbtctl map` reads them")
      ->type_name("FILE");
  AddMapInput(*sub, arguments->map_input);
  sub->add_option("--service", arguments->remote.address, kAddressHelp)->type_name("ADDR");
  AddRemoteOptions(*sub, arguments->remote);
  AddRetryOption(*sub, arguments->remote);
  sub->add_flag("--json", arguments->json, "Print the finding as a JSON object");
  sub->footer(
      "If a range is missing, prints the first one and exits with status 1.\n"
      "Example: does the service miss a change?\n"
      "  cbtctl verify monday.img tuesday.img --service unix:///run/cbt.sock \\\n"
      "    --base vol1/monday --snapshot vol1/tuesday");
  sub->callback([arguments, &command] { command = [arguments] { return Verify(*arguments); }; });
}

}  // namespace cbt::cli
