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

std::string TemporaryDirectory() {
  const char* const directory = std::getenv("TMPDIR");
  return directory == nullptr || *directory == '\0' ? "/tmp" : directory;
}

// Also on file systems without O_TMPFILE.
absl::StatusOr<OwnedDescriptor> MakeNamelessFile(const std::string& directory) {
  std::string path = directory + "/cbt-XXXXXX";
  OwnedDescriptor file(::mkostemp(path.data(), O_CLOEXEC));
  if (file.number() < 0) return FileError(directory, errno);
  if (::unlink(path.c_str()) != 0) return FileError(path, errno);
  return file;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> SpoolToFile(ByteStream& stream) {
  const std::string directory = TemporaryDirectory();
  absl::StatusOr<OwnedDescriptor> file = MakeNamelessFile(directory);
  if (!file.ok()) return file.status();
  std::vector<uint8_t> piece(kPieceBytes);
  for (;;) {
    const absl::StatusOr<size_t> count = stream.Read(piece);
    if (!count.ok()) return count.status();
    if (*count == 0) break;
    const int error = WriteAll(file->number(), std::span(piece).first(*count));
    if (error == ENOSPC || error == EDQUOT) {
      return absl::ResourceExhaustedError(
          absl::StrCat(stream.label(), ": ", directory,
                       " has no room for a copy of it: name a larger directory (TMPDIR)"));
    }
    if (error != 0) return FileError(directory, error);
  }
  return MappedFile::FromDescriptor(*std::move(file), stream.label());
}

}  // namespace cbt
