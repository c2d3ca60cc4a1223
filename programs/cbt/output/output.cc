#include "programs/cbt/output/output.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "programs/cbt/support/status.h"

namespace cbt::cli {

Output::Output(int descriptor, std::string name)
    : descriptor_(descriptor),
      name_(std::move(name)),
      buffer_(std::make_unique<char[]>(kBufferBytes)),
      flushed_(std::chrono::steady_clock::now()) {}

void Output::Append(std::string_view text) {
  while (!text.empty()) {
    const size_t piece = std::min(text.size(), kMaxRecord);
    Commit(PutText(Reserve(piece), text.substr(0, piece)));
    text.remove_prefix(piece);
  }
}

void Output::Flush() {
  std::string_view rest(buffer_.get(), size_);
  size_ = 0;
  if (rest.empty()) return;
  if (status_.ok() && before_write_) before_write_();
  while (status_.ok() && !rest.empty()) {
    const ssize_t written = write(descriptor_, rest.data(), rest.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      status_ = errno == EPIPE ? ReaderGone(name_) : IoError(name_, errno);
    } else {
      rest.remove_prefix(static_cast<size_t>(written));
    }
  }
  flushed_ = std::chrono::steady_clock::now();
}

void Output::FlushIfDue() {
  constexpr std::chrono::milliseconds kInterval(50);
  if (size_ != 0 && std::chrono::steady_clock::now() - flushed_ >= kInterval) Flush();
}

absl::Status Output::Close() {
  Flush();
  if (close(descriptor_) != 0 && errno != EINTR && status_.ok()) status_ = IoError(name_, errno);
  return status_;
}

}  // namespace cbt::cli
