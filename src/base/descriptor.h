// File descriptors and folders that are closed in the end, whatever is thrown in between.
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
  // Takes over `number`; a negative one stands for none.
  explicit OwnedDescriptor(int number) noexcept : number_(number) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : number_(other.Release()) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    // What was here goes with `taken`.
    OwnedDescriptor taken(std::move(other));
    std::swap(number_, taken.number_);
    return *this;
  }
  OwnedDescriptor(const OwnedDescriptor&) = delete;
  OwnedDescriptor& operator=(const OwnedDescriptor&) = delete;
  // Leaves errno as it was: what is closed here was often told to be of no use by it.
  ~OwnedDescriptor() {
    if (number_ < 0) return;
    const int error = errno;
    ::close(number_);
    errno = error;
  }

  int number() const noexcept { return number_; }
  bool has_value() const noexcept { return number_ >= 0; }

  // Gives it to the caller.
  [[nodiscard]] int Release() noexcept { return std::exchange(number_, -1); }

  // Closes it now. Some network file systems report a failed write only here. Returns the error
  // number or 0.
  int Close() noexcept { return ::close(Release()) != 0 && errno != EINTR ? errno : 0; }

 private:
  int number_ = -1;
};

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};
using OwnedFolder = std::unique_ptr<DIR, CloseFolder>;

}  // namespace cbt

#endif  // CBT_BASE_DESCRIPTOR_H_
