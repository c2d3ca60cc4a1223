// Change maps and images that another process names, opened below one directory and nowhere else.
// Part of cbt::source.
#ifndef CBT_SOURCE_FILES_BELOW_H_
#define CBT_SOURCE_FILES_BELOW_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/executor.h"
#include "cbt/provider.h"

namespace cbt {

struct FilesBelowOptions {
  uint64_t block_size = 4096;    // of images; see ImageOptions
  Executor* executor = nullptr;  // reads images; see ImageOptions
  // Limits opening a file, and then all calls of its cursor together.
  std::chrono::milliseconds time = std::chrono::minutes(10);
};

// The file of an answer, as its process names it.
struct NamedFiles {
  std::string path = {};
  std::string base_path = {};  // of a delta between images
  std::string format = {};     // "cbm", "image" or "qcow2"
  bool delta = false;          // what changed; otherwise what is allocated
};

// Opens files for a process that is not trusted beyond its directory. Thread safe.
class FilesBelow {
 public:
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT if `root` can't be used.
  static absl::StatusOr<std::unique_ptr<FilesBelow>> Create(const std::string& root,
                                                            const FilesBelowOptions& options = {});
  virtual ~FilesBelow() = default;

  // Paths are relative, of at most 4096 bytes, and stay below the directory, whatever links lie
  // there; so do the backing files of qcow2. Only regular files are opened, and never a format that
  // was guessed. Change maps are read into memory, at most 256 MiB, so that a file that is cut
  // meanwhile does no harm; images may be cut, and the stream then fails. The version of the result
  // is the state of the files.
  // Errors: FAILED_PRECONDITION for a path or a file that is refused, a damaged file, and one that
  //         does not answer the question; UNAVAILABLE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED,
  //         CANCELLED after `stop`.
  virtual absl::StatusOr<MetadataSource> Open(const NamedFiles& files,
                                              const std::stop_token& stop) const = 0;

  FilesBelow(const FilesBelow&) = delete;
  FilesBelow& operator=(const FilesBelow&) = delete;

 protected:
  FilesBelow() = default;
};

}  // namespace cbt

#endif  // CBT_SOURCE_FILES_BELOW_H_
