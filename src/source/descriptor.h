// A file descriptor that is closed in the end, whatever is thrown in between.
#ifndef CBT_SOURCE_DESCRIPTOR_H_
#define CBT_SOURCE_DESCRIPTOR_H_

#include <unistd.h>

#include <cerrno>
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

 private:
  int number_ = -1;
};

}  // namespace cbt

#endif  // CBT_SOURCE_DESCRIPTOR_H_
