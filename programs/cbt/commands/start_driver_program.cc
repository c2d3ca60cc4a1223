// What `cbt driver` does once its arguments are right.

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "base/file_io.h"
#include "programs/cbt/command.h"

namespace cbt::cli {

absl::Status StartDriverProgram(char** arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return FileError("/proc/self/exe", error.value());
  const std::string program = self.parent_path() / "cbt-driver";
  execv(program.c_str(), arguments);
  const int why = errno;
  if (why == ENOENT) {
    return absl::FailedPreconditionError(program +
                                         ": not there; the driver is a program of its own, in the "
                                         "package cbt-driver");
  }
  return FileError(program, why);
}

}  // namespace cbt::cli
