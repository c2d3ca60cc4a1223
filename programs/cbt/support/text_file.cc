#include "programs/cbt/support/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <string_view>

#include "cbt/units.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {
namespace {

constexpr size_t kMaxBytes = kMiB;

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& option, const std::string& path) {
  const std::string where = option + ": " + path;
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return OpenError(where, errno);
  std::string text;
  int error = 0;
  std::array<char, 4096> buffer;
  while (text.size() <= kMaxBytes) {
    const ssize_t got = read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  close(descriptor);
  if (error != 0) return OpenError(where, error);
  if (text.size() > kMaxBytes) return UsageError(where, "larger than 1 MiB");
  return text;
}

absl::StatusOr<std::map<std::string, std::string>> ReadSecrets(const std::string& option,
                                                               const std::string& path) {
  const absl::StatusOr<std::string> text = ReadTextFile(option, path);
  if (!text.ok()) return text.status();
  std::map<std::string, std::string> secrets;
  std::string_view rest = *text;
  for (int line_number = 1; !rest.empty(); ++line_number) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    std::string where = option;
    where.append(": ").append(path).append(": line ").append(std::to_string(line_number));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return UsageError(where, "not KEY=VALUE");
    }
    const bool added =
        secrets.emplace(std::string(line.substr(0, equals)), std::string(line.substr(equals + 1)))
            .second;
    if (!added) return UsageError(where, "duplicate key");
  }
  return secrets;
}

}  // namespace cbt::cli
