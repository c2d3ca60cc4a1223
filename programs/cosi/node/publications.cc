#include "programs/cosi/node/publications.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"
#include "cbt/kube/object.h"

namespace cbt::kube::cosi {
namespace {

constexpr size_t kMaxVolumeId = 200;

std::span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

absl::Status Publications::Prepare() const {
  if (::mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::InvalidArgumentError(absl::StrCat(directory_, ": ", ErrnoText(errno)));
  }
  return absl::OkStatus();
}

std::optional<std::string> Publications::PathOf(const std::string& volume_id) const {
  if (volume_id.empty() || volume_id.size() > kMaxVolumeId || volume_id.front() == '.' ||
      volume_id.find('/') != std::string::npos || volume_id.find('\0') != std::string::npos) {
    return std::nullopt;
  }
  return absl::StrCat(directory_, "/", volume_id, ".json");
}

absl::Status Publications::Store(const std::string& volume_id,
                                 const Publication& publication) const {
  const std::optional<std::string> path = PathOf(volume_id);
  if (!path.has_value()) {
    return absl::InvalidArgumentError("volume_id: expected up to 200 bytes without '/'");
  }
  Object object;
  object.SetString({"bucketAccess"}, publication.access);
  object.SetString({"podUID"}, publication.pod_uid);
  const std::string text = object.ToJson();
  const std::array<std::span<const uint8_t>, 1> pieces = {Bytes(text)};
  const absl::Status written = WriteFileAtomically(*path, pieces, false);
  return written.ok() ? written : absl::InternalError(written.message());
}

std::optional<Publication> Publications::Find(const std::string& volume_id) const {
  const std::optional<std::string> path = PathOf(volume_id);
  if (!path.has_value()) return std::nullopt;
  std::ifstream file(*path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const absl::StatusOr<Object> object = Object::Parse(text);
  if (!object.ok()) return std::nullopt;
  const absl::StatusOr<std::string> access = object->String({"bucketAccess"});
  const absl::StatusOr<std::string> pod = object->String({"podUID"});
  if (!access.ok() || !pod.ok()) return std::nullopt;
  return Publication{.access = *access, .pod_uid = *pod};
}

void Publications::Forget(const std::string& volume_id) const {
  if (const std::optional<std::string> path = PathOf(volume_id); path.has_value()) {
    ::unlink(path->c_str());
  }
}

}  // namespace cbt::kube::cosi
