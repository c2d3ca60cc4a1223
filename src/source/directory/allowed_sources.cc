#include "source/directory/allowed_sources.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/file_io.h"
#include "source/directory/beneath.h"
#include "source/open/source_request.h"

namespace cbt {
namespace {

// True for absolute paths without empty, "." or ".." parts, and for "/".
bool IsPlainPath(std::string_view path) {
  if (path == "/") return true;
  if (path.empty() || path.front() != '/' || path.find('\0') != std::string_view::npos) {
    return false;
  }
  for (size_t begin = 1;;) {
    const size_t end = std::min(path.find('/', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    if (end == path.size()) return true;
    begin = end + 1;
  }
}

// The part of an NBD address after its scheme, if it uses TCP.
std::optional<std::string_view> AfterTcpScheme(std::string_view address) {
  for (const std::string_view scheme : {"nbd://", "nbds://"}) {
    if (address.starts_with(scheme)) return address.substr(scheme.size());
  }
  return std::nullopt;
}

// The socket of an address in the plain form. Other forms are not compared.
std::optional<std::string_view> SocketOf(std::string_view address) {
  if (!address.starts_with("nbd+unix://") && !address.starts_with("nbds+unix://")) {
    return std::nullopt;
  }
  constexpr std::string_view kSocket = "?socket=";
  const size_t query = address.find('?');
  if (query == std::string_view::npos || !address.substr(query).starts_with(kSocket)) {
    return std::nullopt;
  }
  const std::string_view socket = address.substr(query + kSocket.size());
  if (socket.find_first_of("%&#;?+") != std::string_view::npos || !IsPlainPath(socket)) {
    return std::nullopt;
  }
  return socket;
}

}  // namespace

absl::StatusOr<AllowedSources> AllowedSources::Create(const std::vector<std::string>& entries) {
  AllowedSources allowed;
  for (const std::string& entry : entries) {
    std::string_view path = entry;
    if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
    if (IsNbdAddress(entry) && !entry.ends_with("://")) {
      allowed.addresses_.push_back(entry);
    } else if (IsPlainPath(path)) {
      allowed.paths_.emplace_back(path == "/" ? "" : path);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", entry, "': neither an absolute path without . and .. nor an NBD address"));
    }
  }
  return allowed;
}

bool AllowedSources::AllowsExport(std::string_view address, bool any_export) const {
  const std::optional<std::string_view> socket = SocketOf(address);
  if (socket.has_value() && AllowsPath(*socket)) return true;
  return std::ranges::any_of(addresses_, [&](std::string_view entry) {
    const std::optional<std::string_view> rest = AfterTcpScheme(entry);
    const bool server = rest.has_value() && rest->find_first_of("/?") >= rest->size() - 1;
    if (any_export && !server) return false;
    if (address == entry) return true;
    if (!rest.has_value() || !address.starts_with(entry)) return false;
    // The name of another host may begin with this one's.
    return entry.ends_with('/') || address[entry.size()] == '/' || address[entry.size()] == '?';
  });
}

std::string_view AllowedSources::EntryOf(std::string_view path) const {
  if (!IsPlainPath(path)) return {};
  for (const std::string& entry : paths_) {
    if (path == entry) return path;
    if (path.starts_with(entry) && path[entry.size()] == '/')
      return path.substr(0, entry.size() + 1);
  }
  return {};
}

int AllowedSources::Open(std::string_view path, int flags) const {
  const std::string_view entry = EntryOf(path);
  if (entry.empty()) {
    errno = EXDEV;
    return -1;
  }
  if (entry == path) return OpenFile(std::string(path), flags);
  const OwnedDescriptor directory(OpenFile(std::string(entry), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.has_value()) return -1;
  return OpenBeneath(directory.number(), std::string(path.substr(entry.size())), flags);
}

}  // namespace cbt
