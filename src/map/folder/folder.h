// A folder that is known by its descriptor, and the claim of one process to it.
#ifndef CBT_MAP_FOLDER_FOLDER_H_
#define CBT_MAP_FOLDER_FOLDER_H_

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
#include "map/folder/process_mark.h"

namespace cbt {

// The folder that a path stood for when it was opened; copies share the descriptor. What becomes of
// the path, or of the working directory that it starts at, changes nothing any more. All functions
// take names of files in the folder, are const in the sense of a descriptor, and return the errors
// of FileError().
class Folder {
 public:
  // `shown` stands for the path in messages; the path itself if empty. A folder that may not be
  // listed can be opened, but not synced.
  static absl::StatusOr<Folder> Open(const std::string& path, std::string_view shown = {});

  // For messages: the folder, and a file in it.
  const std::string& shown() const noexcept { return shown_; }
  std::string Shown(std::string_view file) const;

  int descriptor() const noexcept { return descriptor_->number(); }

  absl::StatusOr<bool> Has(const std::string& file) const;
  // Every name but "." and "..", in no order.
  absl::StatusOr<std::vector<std::string>> List() const;
  // Opens for reading, or with other flags of open(2).
  absl::StatusOr<OwnedDescriptor> OpenFile(const std::string& file, int flags) const;
  // All bytes of a regular file, by read(2): a bad sector is an error and no signal. DATA_LOSS when
  // it has more than `most`.
  absl::StatusOr<std::vector<uint8_t>> Read(const std::string& file, uint64_t most) const;
  absl::StatusOr<std::shared_ptr<const MappedFile>> Map(const std::string& file,
                                                        MappedFile::Watched watched) const;
  // As WriteFileAtomically().
  absl::Status Write(const std::string& file, std::span<const std::span<const uint8_t>> parts,
                     bool sync) const;
  // True when `file` is what is open as descriptor `opened`, and not another file or none.
  absl::StatusOr<bool> IsNamed(const std::string& file, int opened) const;
  // False when there is such a file still.
  bool Remove(const char* file) const noexcept;
  // Brings the names in it to the disk.
  absl::Status Sync() const;

 private:
  Folder(OwnedDescriptor descriptor, std::string shown)
      : descriptor_(std::make_shared<const OwnedDescriptor>(std::move(descriptor))),
        shown_(std::move(shown)) {}

  std::shared_ptr<const OwnedDescriptor> descriptor_;
  std::string shown_;
};

// A folder that one process has for itself, from Take() to the end of the object: a lock on the
// folder itself, which can't be removed, or, where the file system locks no folders (NFS), on the
// file LOCK in it, which must stay there. A process that fork() copied it into has no part in it:
// it holds no lock, and Check() fails there.
class FolderClaim {
 public:
  // Errors: UNAVAILABLE when another process has the folder, or another object of this one; those
  //         of files.
  static absl::StatusOr<std::unique_ptr<FolderClaim>> Take(const Folder& folder);
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

  const Folder& folder() const noexcept { return folder_; }

  // False in a copy of the process that took it. Costs a load.
  bool IsOurs() const noexcept { return process_.IsOurs(); }

  // OK as long as no other process can have the folder. To be asked before every change.
  // Errors: FAILED_PRECONDITION in a copy of the process; ABORTED when LOCK was removed.
  absl::Status Check() const;

 private:
  friend class ClaimRegistry;
  FolderClaim(Folder folder, OwnedDescriptor lock);
  absl::Status Lock();

  const Folder folder_;
  const ProcessMark process_;
  OwnedDescriptor lock_;
  bool by_file_ = false;  // LOCK is locked, not the folder
  // All claims of the process, see folder.cc.
  FolderClaim* previous_ = nullptr;
  FolderClaim* next_ = nullptr;
};

// The error of every call on an object that fork() has copied. `what` is "the tracker", say.
absl::Status CopiedByFork(std::string_view what);

}  // namespace cbt

#endif  // CBT_MAP_FOLDER_FOLDER_H_
