#include "base/watched_file.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/wipe.h"
#include "cbt/units.h"

namespace cbt {
namespace {

constexpr size_t kMaxBytes = 4 * kMiB;

struct Closer {
  void operator()(const int* fd) const noexcept { close(*fd); }
};

// Doubles the size. resize() would leave the old contents in the memory that it frees.
void Grow(std::string& text) {
  constexpr size_t kFirst = 16384;
  std::string larger(std::max(2 * text.size(), kFirst), '\0');
  larger.replace(0, text.size(), text);
  WipeWhole(text);
  text.swap(larger);
}

// False: there were none until `end`.
bool WaitForBytes(int fd, std::chrono::steady_clock::time_point end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  if (left.count() <= 0) return false;
  pollfd one = {.fd = fd, .events = POLLIN, .revents = 0};
  const int ready = poll(&one, 1, static_cast<int>(left.count()));
  return ready > 0 || (ready < 0 && errno == EINTR);
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  // Opening a pipe without a writer would wait for one.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return FileError(path, errno);
  const auto end = std::chrono::steady_clock::now() + kPipeTime;
  const std::unique_ptr<const int, Closer> closer(&fd);
  // Tokens and keys are read here: no copy may remain in freed memory or on the stack.
  std::string text;
  const Wiper wiper(text);
  size_t size = 0;
  for (;;) {
    if (size == text.size()) Grow(text);
    const ssize_t count = read(fd, text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      if (WaitForBytes(fd, end)) continue;
      return absl::DeadlineExceededError(
          absl::StrCat(path, ": a pipe whose writer sent nothing for ", kPipeTime.count(), " s"));
    }
    if (count < 0) return FileError(path, errno);
    if (count == 0) break;
    size += static_cast<size_t>(count);
    if (size > kMaxBytes) return absl::InvalidArgumentError(path + ": longer than 4 MiB");
  }
  text.resize(size);
  return text;
}

FileState StateOf(const std::string& path) noexcept {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return {};
  return {.device = status.st_dev,
          .inode = status.st_ino,
          .size = status.st_size,
          .modified = status.st_mtim,
          .changed = status.st_ctim};
}

}  // namespace cbt
