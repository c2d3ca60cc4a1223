// Which sources outside of a directory its files may name.
#ifndef CBT_SOURCE_DIRECTORY_ALLOWED_SOURCES_H_
#define CBT_SOURCE_DIRECTORY_ALLOWED_SOURCES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cbt {

// The operator's list: absolute paths of files, sockets and directories, and NBD addresses. Anyone
// who can write to the directory chooses its sources, and with them what the server connects to.
class AllowedSources {
 public:
  // Errors: INVALID_ARGUMENT for any other entry.
  static absl::StatusOr<AllowedSources> Create(const std::vector<std::string>& entries);

  // Whether the NBD export at `address` is allowed: it is an entry, it continues one with '/' or
  // '?', or its socket is at or below a path that is an entry. `any_export`: the export is named
  // elsewhere, so the whole server has to be allowed.
  bool AllowsExport(std::string_view address, bool any_export) const;

  // Whether `path` (absolute, without "." and "..") is an entry, or below one.
  bool AllowsPath(std::string_view path) const { return !EntryOf(path).empty(); }

  // Opens the file at an allowed path; below an entry, links can't lead out of it.
  // Returns: a descriptor owned by the caller, or -1 with errno set: EXDEV for other paths.
  int Open(std::string_view path, int flags) const;

 private:
  // The entry that allows `path`, "" if none.
  std::string_view EntryOf(std::string_view path) const;

  std::vector<std::string> paths_;  // without a trailing slash
  std::vector<std::string> addresses_;
};

}  // namespace cbt

#endif  // CBT_SOURCE_DIRECTORY_ALLOWED_SOURCES_H_
