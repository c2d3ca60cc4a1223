// File descriptors and directories that are closed at the end of the scope, also on exceptions.
#ifndef CBT_BASE_DESCRIPTOR_H_
#define CBT_BASE_DESCRIPTOR_H_

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

namespace cbt {

class OwnedDescriptor {
 public:
  OwnedDescriptor() noexcept = default;
  // Takes ownership of `number`; negative: none.
  explicit OwnedDescriptor(int number) noexcept : number_(number) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : number_(other.Release()) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    // `taken` closes the old descriptor.
    OwnedDescriptor taken(std::move(other));
    std::swap(number_, taken.number_);
    return *this;
  }
  OwnedDescriptor(const OwnedDescriptor&) = delete;
  OwnedDescriptor& operator=(const OwnedDescriptor&) = delete;
  // Preserves errno: callers still report it.
  ~OwnedDescriptor() {
    if (number_ < 0) return;
    const int error = errno;
    ::close(number_);
    errno = error;
  }

  int number() const noexcept { return number_; }
  bool has_value() const noexcept { return number_ >= 0; }

  // Transfers ownership to the caller.
  [[nodiscard]] int Release() noexcept { return std::exchange(number_, -1); }

  // Closes it now; returns the error number or 0. Some network file systems report a failed write
  // only here.
  int Close() noexcept { return ::close(Release()) != 0 && errno != EINTR ? errno : 0; }

 private:
  int number_ = -1;
};

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};
using OwnedDirectory = std::unique_ptr<DIR, CloseDirectory>;

}  // namespace cbt

#endif  // CBT_BASE_DESCRIPTOR_H_
