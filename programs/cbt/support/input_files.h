// The files that a command reads, so that its output replaces none of them.
#ifndef CBT_PROGRAMS_CBT_SUPPORT_INPUT_FILES_H_
#define CBT_PROGRAMS_CBT_SUPPORT_INPUT_FILES_H_

#include <sys/stat.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace cbt::cli {

class InputFiles {
 public:
  InputFiles() = default;
  // `names` as the user gave them: a path, for a directory every file in it, "-" for standard
  // input. Other addresses and "" are ignored.
  explicit InputFiles(std::vector<std::string> names) : names_(std::move(names)) {}

  // For SourceOptions::open: records every file that it opens as an input, including those that the
  // user did not name, such as an image's backing file. This must outlive it. Empty if standard
  // input is read: it names no other files, and an opener would take "-" for one.
  std::function<absl::StatusOr<int>(const std::string& path)> Opener();

  void Add(const InputFiles& others);

  // Whether `file` is one of them, or a directory whose files all are. True when in doubt.
  bool Include(const struct stat& file) const;

 private:
  std::vector<std::string> names_;
  std::vector<struct stat> opened_;
};

// Warns if the file `base` was written more than a minute after the file `target`: the two may be
// swapped. Their times are no proof, since copies have their own. Says nothing of other inputs.
void WarnIfSwapped(const char* subcommand, const std::string& base, const std::string& target);

// Whether the inode numbers say that both are one file; use this to refuse when in doubt.
bool MayBeSameFile(const struct stat& a, const struct stat& b) noexcept;

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_SUPPORT_INPUT_FILES_H_
