#include "programs/driver/node/file_system.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "base/text.h"
#include "programs/driver/system/program.h"

namespace cbt::driver {
namespace {

constexpr std::chrono::seconds kFormatTime{300};
constexpr std::array<std::string_view, 4> kFileSystems = {"ext2", "ext3", "ext4", "xfs"};

bool IsExt(const std::string& file_system) { return file_system.starts_with("ext"); }

absl::Status HoldsOther(const std::string& what, const std::string& file_system) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the volume holds ", what, ", not just ", file_system,
      ", and is left as it is: use it in block mode, or copy what it holds to a new volume"));
}

// Does not need the right to resize mounted ones, which containers seldom have.
absl::Status GrowExt(const std::string& device) {
  const absl::StatusOr<ProgramResult> grown = RunProgram({"resize2fs", device}, kFormatTime);
  if (!grown.ok() || grown->exit_status == 0) return grown.status();
  // It may want the file system checked first.
  constexpr int kCorrected = 1;
  const absl::StatusOr<ProgramResult> checked =
      RunProgram({"e2fsck", "-f", "-p", device}, kFormatTime);
  if (!checked.ok()) return checked.status();
  if (checked->exit_status > kCorrected) {
    return absl::DataLossError(absl::StrCat("e2fsck: ", device, ": ", checked->output));
  }
  return CallProgram({"resize2fs", device}, kFormatTime).status();
}

}  // namespace

absl::Status CheckFileSystem(const std::string& name) {
  if (name.empty() ||
      std::find(kFileSystems.begin(), kFileSystems.end(), name) != kFileSystems.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "fs_type: expected one of ",
      absl::StrJoin(kFileSystems, ", ",
                    [](std::string* out, std::string_view one) { out->append(one); })));
}

absl::Status CheckHolds(const std::string& device, const std::string& file_system) {
  constexpr int kNothingFound = 2;
  constexpr int kSeveral = 8;
  const absl::StatusOr<ProgramResult> result =
      RunProgram({"blkid", "--probe", "--output", "export", device});
  if (!result.ok()) return result.status();
  if (result->exit_status == kNothingFound) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the volume may have been written to, and blkid finds nothing that it knows on it, or "
        "can't read it: no file system is made on it. If it holds nothing of value, delete it and "
        "create a new one; otherwise use it in block mode, and see the node's kernel log"));
  }
  if (result->exit_status == kSeveral) return HoldsOther("several things at once", file_system);
  if (result->exit_status != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("blkid does not name what the volume holds (exit status ", result->exit_status,
                     "): ", result->output));
  }
  std::vector<std::string> others;
  bool found = false;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(result->output, '\n'))) {
    const std::pair<std::string, std::string> field = absl::StrSplit(line, absl::MaxSplits('=', 1));
    if (field.first == "TYPE") {
      found = field.second == file_system;
      if (!found) others.push_back(field.second);
    } else if (field.first == "PTTYPE" || field.first == "PART_ENTRY_SCHEME") {
      others.push_back(absl::StrCat("a partition table (", field.second, ")"));
    }
  }
  if (!others.empty()) return HoldsOther(absl::StrJoin(others, " and "), file_system);
  return found ? absl::OkStatus() : HoldsOther("something without a type", file_system);
}

absl::StatusOr<bool> HasData(const std::string& path) {
  constexpr size_t kPiece = 1 << 20;  // bytes
  const OwnedDescriptor file(OpenFile(path, O_RDONLY | O_CLOEXEC));
  if (!file.has_value()) return FileError(path, errno);
  std::vector<char> bytes(kPiece);
  for (off_t at = 0;;) {
    // A file system without holes calls everything data.
    at = ::lseek(file.number(), at, SEEK_DATA);
    if (at < 0) return errno == ENXIO ? absl::StatusOr<bool>(false) : FileError(path, errno);
    const ssize_t count =
        Retry([&] { return ::pread(file.number(), bytes.data(), bytes.size(), at); });
    if (count < 0) return FileError(path, errno);
    if (std::any_of(bytes.begin(), bytes.begin() + count, [](char byte) { return byte != 0; })) {
      return true;
    }
    at += count;
  }
}

absl::Status MakeFileSystemOn(const std::string& device, const std::string& file_system) {
  std::vector<std::string> command = {"mkfs." + file_system, "-q"};
  const std::vector<std::string> options = IsExt(file_system)
                                               ? std::vector<std::string>{"-F", "-E", "nodiscard"}
                                               : std::vector<std::string>{"-f", "-K"};
  command.insert(command.end(), options.begin(), options.end());
  command.push_back(device);
  return CallProgram(command, kFormatTime).status();
}

absl::Status GrowUnmounted(const std::string& device, const std::string& file_system) {
  return IsExt(file_system) ? GrowExt(device) : absl::OkStatus();
}

absl::Status GrowMounted(const std::string& device, const std::string& path,
                         const std::string& file_system) {
  if (!IsExt(file_system)) return CallProgram({"xfs_growfs", path}, kFormatTime).status();
  const absl::StatusOr<ProgramResult> grown = RunProgram({"resize2fs", device}, kFormatTime);
  if (!grown.ok() || grown->exit_status == 0) return grown.status();
  constexpr std::string_view kRemedy =
      "; a driver without CAP_SYS_RESOURCE can't let a mounted file system grow: it does when the "
      "volume is staged again";
  const bool denied = grown->output.find("Permission denied") != std::string::npos;
  return absl::FailedPreconditionError(
      absl::StrCat("resize2fs: ", grown->output, AbslView(denied ? kRemedy : "")));
}

}  // namespace cbt::driver
