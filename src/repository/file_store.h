// The files of a repository in a bucket, by kind and name.
#ifndef CBT_REPOSITORY_FILE_STORE_H_
#define CBT_REPOSITORY_FILE_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bucket/bucket.h"
#include "repository/crypto.h"
#include "repository/id.h"

namespace cbt::repository {

enum class FileKind { kConfig, kKey, kLock, kSnapshot, kIndex, kPack };

struct FileInfo {
  Id id = {};
  uint64_t size = 0;
};

// Thread-safe once the key is set. Errors name the file.
class FileStore {
 public:
  // `prefix`: in front of every key, with a slash at its end, or empty.
  FileStore(std::unique_ptr<bucket::Bucket> bucket, std::string prefix)
      : bucket_(std::move(bucket)), prefix_(std::move(prefix)) {}

  // The place, for messages.
  std::string name() const;
  // A file, for messages.
  std::string NameOf(FileKind kind, const Id& id) const;

  // How files other than packs and keys are encrypted, and whether they may be compressed.
  void SetKey(CryptoKey key, uint64_t version) {
    key_ = std::move(key);
    version_ = version;
  }
  void SetVersion(uint64_t version) { version_ = version; }
  const CryptoKey& key() const noexcept { return key_; }
  uint64_t version() const noexcept { return version_; }

  // Bytes as they are stored. `id` of the config is ignored.
  absl::Status Put(FileKind kind, const Id& id, std::span<const uint8_t> bytes);
  absl::StatusOr<std::vector<uint8_t>> Get(FileKind kind, const Id& id, uint64_t max_bytes);
  absl::StatusOr<std::vector<uint8_t>> GetRange(FileKind kind, const Id& id, uint64_t offset,
                                                uint64_t length);
  absl::Status ReadRange(FileKind kind, const Id& id, uint64_t offset, std::span<uint8_t> out);
  bool is_local() const { return bucket_->is_local(); }
  absl::Status Remove(FileKind kind, const Id& id);
  absl::StatusOr<bool> HasConfig();

  // Calls `use` for each file of a kind other than the config. Other objects are passed over.
  absl::Status List(FileKind kind, const std::function<absl::Status(const FileInfo&)>& use);
  // All of them, by name.
  absl::StatusOr<std::vector<FileInfo>> ListAll(FileKind kind, size_t max_files);

  // The text of a config, lock, snapshot or index: checked against its name, decrypted,
  // decompressed. Both the file and the text have at most `max_bytes`.
  // Errors: as Bucket::Get(); DATA_LOSS; RESOURCE_EXHAUSTED.
  absl::StatusOr<std::string> Load(FileKind kind, const Id& id, uint64_t max_bytes);
  // Returns: the new file's name.
  absl::StatusOr<Id> Save(FileKind kind, std::string_view text);

 private:
  std::string KeyOf(FileKind kind, const Id& id) const;

  const std::unique_ptr<bucket::Bucket> bucket_;
  const std::string prefix_;
  CryptoKey key_;
  uint64_t version_ = 2;
};

// `status` with the name of what it is about in front, its code as it was.
absl::Status Of(std::string_view what, const absl::Status& status);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_FILE_STORE_H_
