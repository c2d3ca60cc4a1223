#include "repository/file_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "repository/compression.h"

namespace cbt::repository {
namespace {

// The first byte of a compressed file.
constexpr uint8_t kCompressedFile = 2;
constexpr int kFileLevel = 3;

// By FileKind.
constexpr std::string_view kDirectories[] = {"config",     "keys/",  "locks/",
                                             "snapshots/", "index/", "data/"};

std::string_view DirectoryOfKind(FileKind kind) { return kDirectories[static_cast<int>(kind)]; }

}  // namespace

absl::Status Of(std::string_view what, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(AbslView(what), ": ", status.message()));
}

std::string FileStore::name() const {
  return prefix_.empty() ? bucket_->name() : absl::StrCat(bucket_->name(), ", ", prefix_);
}

std::string FileStore::KeyOf(FileKind kind, const Id& id) const {
  std::string key = absl::StrCat(prefix_, AbslView(DirectoryOfKind(kind)));
  if (kind == FileKind::kConfig) return key;
  const std::string hex = id.Hex();
  if (kind == FileKind::kPack) absl::StrAppend(&key, hex.substr(0, 2), "/");
  return key + hex;
}

std::string FileStore::NameOf(FileKind kind, const Id& id) const {
  return absl::StrCat(bucket_->name(), ", ", KeyOf(kind, id));
}

absl::Status FileStore::Put(FileKind kind, const Id& id, std::span<const uint8_t> bytes) {
  return bucket_->Put(KeyOf(kind, id), bytes);
}

absl::StatusOr<std::vector<uint8_t>> FileStore::Get(FileKind kind, const Id& id,
                                                    uint64_t max_bytes) {
  return bucket_->Get(KeyOf(kind, id), max_bytes);
}

absl::StatusOr<std::vector<uint8_t>> FileStore::GetRange(FileKind kind, const Id& id,
                                                         uint64_t offset, uint64_t length) {
  return bucket_->GetRange(KeyOf(kind, id), offset, length);
}

absl::Status FileStore::ReadRange(FileKind kind, const Id& id, uint64_t offset,
                                  std::span<uint8_t> out) {
  return bucket_->ReadRange(KeyOf(kind, id), offset, out);
}

absl::Status FileStore::Remove(FileKind kind, const Id& id) {
  return bucket_->Delete(KeyOf(kind, id));
}

absl::StatusOr<bool> FileStore::HasConfig() {
  const absl::StatusOr<uint64_t> size = bucket_->Size(KeyOf(FileKind::kConfig, {}));
  if (absl::IsNotFound(size.status())) return false;
  if (!size.ok()) return size.status();
  return true;
}

absl::Status FileStore::List(FileKind kind,
                             const std::function<absl::Status(const FileInfo&)>& use) {
  const std::string below = absl::StrCat(prefix_, AbslView(DirectoryOfKind(kind)));
  return bucket_->List(below, [&](const bucket::ObjectInfo& object) -> absl::Status {
    // Partial files, and what others keep here, have other names.
    const std::string_view key = object.key;
    const std::optional<Id> id = Id::Parse(key.substr(key.rfind('/') + 1));
    if (!id.has_value() || KeyOf(kind, *id) != object.key) return absl::OkStatus();
    return use({*id, object.size});
  });
}

absl::StatusOr<std::vector<FileInfo>> FileStore::ListAll(FileKind kind, size_t max_files) {
  std::vector<FileInfo> files;
  const absl::Status listed = List(kind, [&](const FileInfo& file) -> absl::Status {
    if (files.size() >= max_files) {
      return absl::ResourceExhaustedError(absl::StrCat(
          name(), ": has more than ", max_files, " files in ", AbslView(DirectoryOfKind(kind))));
    }
    files.push_back(file);
    return absl::OkStatus();
  });
  if (!listed.ok()) return listed;
  std::sort(files.begin(), files.end(),
            [](const FileInfo& a, const FileInfo& b) { return a.id < b.id; });
  return files;
}

absl::StatusOr<std::string> FileStore::Load(FileKind kind, const Id& id, uint64_t max_bytes) {
  const std::string file = NameOf(kind, id);
  const absl::StatusOr<std::vector<uint8_t>> sealed = Get(kind, id, max_bytes);
  if (!sealed.ok()) return sealed.status();
  if (kind != FileKind::kConfig && Id::Of(*sealed) != id) {
    return absl::DataLossError(absl::StrCat(file, ": does not have the content of its name"));
  }
  absl::StatusOr<std::vector<uint8_t>> plain = key_.Open(*sealed);
  if (!plain.ok()) return Of(file, plain.status());
  if (kind != FileKind::kConfig && version_ >= 2 && !plain->empty() && plain->front() != '{' &&
      plain->front() != '[') {
    if (plain->front() != kCompressedFile) {
      return absl::DataLossError(absl::StrCat(file, ": is encoded in an unknown way"));
    }
    plain = DecompressUpTo(std::span(*plain).subspan(1), static_cast<size_t>(max_bytes));
    if (!plain.ok()) return Of(file, plain.status());
  }
  return std::string(plain->begin(), plain->end());
}

absl::StatusOr<Id> FileStore::Save(FileKind kind, std::string_view text) {
  std::vector<uint8_t> plain(text.begin(), text.end());
  if (version_ >= 2 && kind != FileKind::kConfig) {
    absl::StatusOr<std::vector<uint8_t>> frame = Compress(plain, kFileLevel);
    if (!frame.ok()) return frame.status();
    frame->insert(frame->begin(), kCompressedFile);
    plain = *std::move(frame);
  }
  const absl::StatusOr<std::vector<uint8_t>> sealed = key_.Seal(plain);
  if (!sealed.ok()) return sealed.status();
  const Id id = kind == FileKind::kConfig ? Id() : Id::Of(*sealed);
  if (absl::Status put = Put(kind, id, *sealed); !put.ok()) return put;
  return id;
}

}  // namespace cbt::repository
