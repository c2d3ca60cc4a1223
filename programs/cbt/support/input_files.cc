#include "programs/cbt/support/input_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file_io.h"
#include "programs/cbt/support/status.h"
#include "programs/cbt/support/verbosity.h"

namespace cbt::cli {

std::function<absl::StatusOr<int>(const std::string& path)> InputFiles::Opener() {
  if (std::ranges::find(names_, "-") != names_.end()) return {};
  return [this](const std::string& path) -> absl::StatusOr<int> {
    // Without O_NONBLOCK, opening a pipe without a writer would hang here before it could be
    // refused.
    const int descriptor = OpenFile(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) return OpenError(path, errno);
    struct stat info {};
    if (fstat(descriptor, &info) == 0) opened_.push_back(info);
    return descriptor;
  };
}

void InputFiles::Add(const InputFiles& others) {
  names_.insert(names_.end(), others.names_.begin(), others.names_.end());
  opened_.insert(opened_.end(), others.opened_.begin(), others.opened_.end());
}

bool InputFiles::Include(const struct stat& file) const {
  const auto is_it = [&file](const struct stat& input) { return MayBeSameFile(input, file); };
  return std::ranges::any_of(opened_, is_it) ||
         std::ranges::any_of(names_, [&](const std::string& name) {
           struct stat info {};
           // A missing file was not read either.
           return (name == "-" ? fstat(STDIN_FILENO, &info) : stat(name.c_str(), &info)) == 0 &&
                  is_it(info);
         });
}

void WarnIfSwapped(const char* subcommand, const std::string& base, const std::string& target) {
  const auto stat_of = [](const std::string& path, struct stat& info) {
    return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  };
  struct stat old {};
  struct stat now {};
  if (!stat_of(base, old) || !stat_of(target, now)) return;
  // Files that one program has made may come in any order.
  constexpr time_t kTogether = 60;  // seconds
  if (old.st_mtim.tv_sec <= now.st_mtim.tv_sec + kTogether) return;
  Note(subcommand, "warning: " + base + ", the base, was written after " + target +
                       ", the target: are the two swapped?");
}

bool MayBeSameFile(const struct stat& a, const struct stat& b) noexcept {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace cbt::cli
