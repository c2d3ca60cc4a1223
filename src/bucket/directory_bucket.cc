#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"
#include "bucket/bucket.h"

namespace cbt::bucket {
namespace {

class DirectoryBucket final : public Bucket {
 public:
  explicit DirectoryBucket(std::string path)
      : path_(std::move(path)), name_("directory " + path_) {}

  const std::string& name() const override { return name_; }

  absl::Status Put(const std::string& key, std::span<const uint8_t> bytes) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    if (absl::Status made = MakeDirectories(key); !made.ok()) return made;
    const std::span<const uint8_t> parts[] = {bytes};
    return WriteFileAtomically(PathOf(key), parts, true);
  }

  absl::Status PutParts(const std::string& key, uint64_t size, const PartReader& read) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    if (absl::Status made = MakeDirectories(key); !made.ok()) return made;
    const std::string path = PathOf(key);
    struct stat info {};
    if (::lstat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": is not a regular file, and stays as it is"));
    }
    std::string temporary;
    OwnedDescriptor file(CreateBeside(AT_FDCWD, path, temporary));
    if (!file.has_value()) return FileError(path, errno);
    absl::Status status = WriteParts(file.number(), path, size, read);
    const int closed = file.Close();
    if (status.ok() && closed != 0) status = FileError(path, closed);
    if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
      status = FileError(path, errno);
    }
    if (status.ok()) return SyncDirectory(DirectoryOf(path));
    ::unlink(temporary.c_str());
    return status;
  }

  absl::StatusOr<std::vector<uint8_t>> GetRange(const std::string& key, uint64_t offset,
                                                uint64_t length) override {
    absl::StatusOr<File> file = OpenRange(key, offset, length);
    if (!file.ok()) return file.status();
    std::vector<uint8_t> bytes(static_cast<size_t>(length));
    if (absl::Status read = Read(*file, key, offset, bytes); !read.ok()) return read;
    return bytes;
  }

  absl::Status ReadRange(const std::string& key, uint64_t offset, std::span<uint8_t> out) override {
    absl::StatusOr<File> file = OpenRange(key, offset, out.size());
    if (!file.ok()) return file.status();
    return Read(*file, key, offset, out);
  }

  bool is_local() const override { return true; }

  absl::StatusOr<std::vector<uint8_t>> Get(const std::string& key, uint64_t max_bytes) override {
    absl::StatusOr<File> file = Open(key);
    if (!file.ok()) return file.status();
    if (file->size > max_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat(PathOf(key), ": has ", file->size,
                                                       " bytes, more than the ", max_bytes,
                                                       " that it may have"));
    }
    std::vector<uint8_t> bytes(static_cast<size_t>(file->size));
    if (absl::Status read = Read(*file, key, 0, bytes); !read.ok()) return read;
    return bytes;
  }

  absl::StatusOr<uint64_t> Size(const std::string& key) override {
    const absl::StatusOr<File> file = Open(key);
    if (!file.ok()) return file.status();
    return file->size;
  }

  absl::Status List(const std::string& prefix,
                    const std::function<absl::Status(const ObjectInfo&)>& use) override {
    // Only the directory that the prefix leads to is read.
    const size_t slash = prefix.rfind('/');
    const std::string below = slash == std::string::npos ? "" : prefix.substr(0, slash + 1);
    if (!below.empty()) {
      if (absl::Status valid = CheckKey(below.substr(0, below.size() - 1)); !valid.ok()) {
        return valid;
      }
    }
    return ListDirectory(below, prefix, use);
  }

  absl::Status Delete(const std::string& key) override {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    const std::string path = PathOf(key);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
      return FileError(path, errno);
    }
    return absl::OkStatus();
  }

 private:
  struct File {
    OwnedDescriptor descriptor;
    uint64_t size = 0;
  };

  absl::Status MakeDirectories(const std::string& key) const {
    // Each directory's name is synced, also one that another process has just made.
    for (size_t slash = key.find('/'); slash != std::string::npos;
         slash = key.find('/', slash + 1)) {
      const std::string directory = absl::StrCat(path_, "/", key.substr(0, slash));
      if (absl::Status made = MakeDirectory(directory, true); !made.ok()) return made;
    }
    return absl::OkStatus();
  }

  static absl::Status WriteParts(int descriptor, const std::string& path, uint64_t size,
                                 const PartReader& read) {
    constexpr uint64_t kPartBytes = 1024 * 1024;
    std::vector<uint8_t> bytes;
    for (uint64_t offset = 0; offset < size;) {
      bytes.resize(static_cast<size_t>(std::min(kPartBytes, size - offset)));
      if (absl::Status got = read(offset, bytes); !got.ok()) return got;
      for (size_t done = 0; done < bytes.size();) {
        const ssize_t written =
            Retry([&] { return ::write(descriptor, bytes.data() + done, bytes.size() - done); });
        if (written < 0) return FileError(path, errno);
        done += static_cast<size_t>(written);
      }
      offset += bytes.size();
    }
    if (Retry([&] { return ::fsync(descriptor); }) != 0) return FileError(path, errno);
    return absl::OkStatus();
  }

  std::string PathOf(const std::string& key) const { return absl::StrCat(path_, "/", key); }

  absl::StatusOr<File> Open(const std::string& key) const {
    if (absl::Status valid = CheckKey(key); !valid.ok()) return valid;
    const std::string path = PathOf(key);
    // A pipe of this name must not stop the process.
    File file{OwnedDescriptor(OpenFile(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
    if (!file.descriptor.has_value()) return FileError(path, errno);
    struct stat info {};
    if (::fstat(file.descriptor.number(), &info) != 0) return FileError(path, errno);
    // As S3 says of a key that only begins others.
    if (S_ISDIR(info.st_mode)) return FileError(path, ENOENT);
    if (!S_ISREG(info.st_mode)) {
      return absl::FailedPreconditionError(absl::StrCat(path, ": is not a regular file"));
    }
    file.size = static_cast<uint64_t>(info.st_size);
    return file;
  }

  absl::StatusOr<File> OpenRange(const std::string& key, uint64_t offset, uint64_t length) const {
    absl::StatusOr<File> file = Open(key);
    if (!file.ok()) return file.status();
    if (length == 0 || offset > file->size || length > file->size - offset) {
      return absl::OutOfRangeError(absl::StrCat(PathOf(key), ": has ", file->size, " bytes, but ",
                                                length, " at ", offset, " are needed"));
    }
    return file;
  }

  absl::Status Read(const File& file, const std::string& key, uint64_t offset,
                    std::span<uint8_t> out) const {
    while (!out.empty()) {
      const ssize_t read = Retry([&] {
        return ::pread(file.descriptor.number(), out.data(), out.size(),
                       static_cast<off_t>(offset));
      });
      if (read < 0) return FileError(PathOf(key), errno);
      if (read == 0) {
        return absl::DataLossError(
            absl::StrCat(PathOf(key), ": ended at ", offset, " bytes while it was read"));
      }
      out = out.subspan(static_cast<size_t>(read));
      offset += static_cast<uint64_t>(read);
    }
    return absl::OkStatus();
  }

  // `below` is empty or ends in a slash.
  absl::Status ListDirectory(const std::string& below, const std::string& prefix,
                             const std::function<absl::Status(const ObjectInfo&)>& use) const {
    std::error_code error;
    std::filesystem::directory_iterator entries;
    do {
      entries = std::filesystem::directory_iterator(PathOf(below), error);
    } while (error == std::errc::interrupted);
    if (error) {
      const bool missing =
          error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
      // Removed meanwhile, or never there. The bucket itself must be there.
      if (missing && !below.empty()) return absl::OkStatus();
      return FileError(PathOf(below), error.value());
    }
    for (; entries != std::filesystem::directory_iterator(); entries.increment(error)) {
      if (error) break;
      const std::string key = below + entries->path().filename().string();
      const bool leads_on = key.starts_with(prefix) || prefix.starts_with(key + "/");
      // Names that are no keys are not ours: partial files of an earlier run, for example.
      if (!leads_on || !CheckKey(key).ok()) continue;
      struct stat info {};
      if (::stat(PathOf(key).c_str(), &info) != 0) {
        if (errno == ENOENT) continue;
        return FileError(PathOf(key), errno);
      }
      absl::Status used;
      if (S_ISDIR(info.st_mode)) {
        used = ListDirectory(key + "/", prefix, use);
      } else if (S_ISREG(info.st_mode)) {
        used = use({key, static_cast<uint64_t>(info.st_size)});
      }
      if (!used.ok()) return used;
    }
    // A list that breaks off must not look complete.
    if (error) return FileError(PathOf(below), error.value());
    return absl::OkStatus();
  }

  const std::string path_;
  const std::string name_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Bucket>> OpenDirectoryBucket(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return FileError(path, errno);
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a directory"));
  }
  return std::make_unique<DirectoryBucket>(path);
}

}  // namespace cbt::bucket
