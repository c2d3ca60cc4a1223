// A directory identified by its descriptor, and the claim of one process to it.
#ifndef CBT_BASE_DIRECTORY_H_
#define CBT_BASE_DIRECTORY_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "base/process_mark.h"

namespace cbt {

// The directory that a path named when it was opened; copies share the descriptor. Later changes of
// the path or of the working directory have no effect. All functions take names of files in the
// directory and return the errors of FileError(); const refers to the descriptor, not to the
// directory's contents.
class Directory {
 public:
  // `shown` is used in messages; the path if empty. A directory without read permission can be
  // opened, but not synced.
  static absl::StatusOr<Directory> Open(const std::string& path, std::string_view shown = {});

  // The names of the directory and of a file in it, for messages.
  const std::string& shown() const noexcept { return shown_; }
  std::string Shown(std::string_view file) const;

  int descriptor() const noexcept { return descriptor_->number(); }

  absl::StatusOr<bool> Has(const std::string& file) const;
  // Every name except "." and "..", unordered.
  absl::StatusOr<std::vector<std::string>> List() const;
  // Opens for reading, or with other flags of open(2).
  absl::StatusOr<OwnedDescriptor> OpenFile(const std::string& file, int flags) const;
  // All bytes of a regular file, by read(2): a bad sector is an error, not a signal. DATA_LOSS if
  // it has more than `most` bytes.
  absl::StatusOr<std::vector<uint8_t>> Read(const std::string& file, uint64_t most) const;
  absl::StatusOr<std::shared_ptr<const MappedFile>> Map(const std::string& file,
                                                        MappedFile::Watched watched) const;
  // As WriteFileAtomically().
  absl::Status Write(const std::string& file, std::span<const std::span<const uint8_t>> parts,
                     bool sync) const;
  // The directory called `name` in this one, which is no symbolic link.
  absl::StatusOr<Directory> OpenDirectory(const std::string& name) const;
  // Creates it if it is missing. `sync`: as MakeDirectory() of base/file_io.h.
  absl::StatusOr<Directory> MakeDirectory(const std::string& name, bool sync) const;
  // Removes a file, or a directory with everything in it; OK without one. After an error a part may
  // be gone.
  absl::Status RemoveTree(const std::string& name) const;
  // A path that names `file` while this object exists, wherever the directory is.
  std::string PathOf(std::string_view file) const;
  // True if `file` names the file that is open as descriptor `opened`.
  absl::StatusOr<bool> IsNamed(const std::string& file, int opened) const;
  // False if the file still exists.
  bool Remove(const char* file) const noexcept;
  // Syncs the names in the directory to disk.
  absl::Status Sync() const;

 private:
  Directory(OwnedDescriptor descriptor, std::string shown)
      : descriptor_(std::make_shared<const OwnedDescriptor>(std::move(descriptor))),
        shown_(std::move(shown)) {}

  std::shared_ptr<const OwnedDescriptor> descriptor_;
  std::string shown_;
};

// The exclusive claim of a process to a directory, from Take() to the destructor. It is a lock on
// the directory itself, which can't be removed, or, if the file system can't lock directories
// (NFS), on the file LOCK in it, which must not be removed. A forked child does not share the
// claim: it holds no lock, and Check() fails there.
class DirectoryClaim {
 public:
  // Errors: UNAVAILABLE if another process, or another object in this one, has the directory; file
  //         errors.
  static absl::StatusOr<std::unique_ptr<DirectoryClaim>> Take(const Directory& directory);
  ~DirectoryClaim();
  DirectoryClaim(const DirectoryClaim&) = delete;
  DirectoryClaim& operator=(const DirectoryClaim&) = delete;

  const Directory& directory() const noexcept { return directory_; }

  // False in a forked child. Costs one load.
  bool IsOurs() const noexcept { return process_.IsOurs(); }

  // OK while no other process can have claimed the directory. Call before every change.
  // Errors: FAILED_PRECONDITION in a forked child; ABORTED if LOCK was removed.
  absl::Status Check() const;

 private:
  friend class ClaimRegistry;
  DirectoryClaim(Directory directory, OwnedDescriptor lock);
  absl::Status Lock();

  const Directory directory_;
  const ProcessMark process_;
  OwnedDescriptor lock_;
  bool by_file_ = false;  // the lock is on LOCK, not on the directory
  // The list of all claims of the process, see directory.cc.
  DirectoryClaim* previous_ = nullptr;
  DirectoryClaim* next_ = nullptr;
};

// The error of every call in a forked child. `what` names the object: "the tracker".
absl::Status CopiedByFork(std::string_view what);

}  // namespace cbt

#endif  // CBT_BASE_DIRECTORY_H_
