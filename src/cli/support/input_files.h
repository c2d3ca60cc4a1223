// What a command reads, so that what it writes replaces none of it.
#ifndef CBT_CLI_SUPPORT_INPUT_FILES_H_
#define CBT_CLI_SUPPORT_INPUT_FILES_H_

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
  // As the user named them: a path, of a folder each file in it, "-" for the standard input. Other
  // addresses and "" are passed over.
  explicit InputFiles(std::vector<std::string> names) : names_(std::move(names)) {}

  // For SourceOptions::open: what it opens is an input, also what nobody named, like an image's
  // backing file. This must outlive it. None where the standard input is read: it names no other
  // files, and with an opener "-" would be one.
  std::function<absl::StatusOr<int>(const std::string& path)> Opener();

  void Add(const InputFiles& others);

  // Whether `file` is one of them, or a folder all of whose files are. When in doubt it is.
  bool Include(const struct stat& file) const;

 private:
  std::vector<std::string> names_;
  std::vector<struct stat> opened_;
};

// Whether both are one file by their numbers: for what is refused when in doubt.
bool MayBeSameFile(const struct stat& a, const struct stat& b) noexcept;

}  // namespace cbt::cli

#endif  // CBT_CLI_SUPPORT_INPUT_FILES_H_
