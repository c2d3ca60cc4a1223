#include "source/input/spooled_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "cbt/units.h"

namespace cbt {
namespace {

constexpr size_t kPieceBytes = 256 * kKiB;

std::string TemporaryFolder() {
  const char* const folder = std::getenv("TMPDIR");
  return folder == nullptr || *folder == '\0' ? "/tmp" : folder;
}

// Also on file systems without O_TMPFILE.
absl::StatusOr<OwnedDescriptor> MakeNamelessFile(const std::string& folder) {
  std::string path = folder + "/cbt-XXXXXX";
  OwnedDescriptor file(::mkostemp(path.data(), O_CLOEXEC));
  if (file.number() < 0) return FileError(folder, errno);
  if (::unlink(path.c_str()) != 0) return FileError(path, errno);
  return file;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> SpoolToFile(ByteStream& stream) {
  const std::string folder = TemporaryFolder();
  absl::StatusOr<OwnedDescriptor> file = MakeNamelessFile(folder);
  if (!file.ok()) return file.status();
  std::vector<uint8_t> piece(kPieceBytes);
  for (;;) {
    const absl::StatusOr<size_t> count = stream.Read(piece);
    if (!count.ok()) return count.status();
    if (*count == 0) break;
    const int error = WriteAll(file->number(), std::span(piece).first(*count));
    if (error == ENOSPC || error == EDQUOT) {
      return absl::ResourceExhaustedError(
          absl::StrCat(stream.label(), ": ", folder,
                       " has no room for a copy of it: name a larger folder (TMPDIR)"));
    }
    if (error != 0) return FileError(folder, error);
  }
  return MappedFile::FromDescriptor(*std::move(file), stream.label());
}

}  // namespace cbt
