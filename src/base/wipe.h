// Overwrites strings that hold secrets before their memory is freed.
#ifndef CBT_BASE_WIPE_H_
#define CBT_BASE_WIPE_H_

#include <cstring>
#include <string>

namespace cbt {

inline void Wipe(std::string& value) noexcept {
  // The barrier keeps the compiler from dropping the store as dead.
  std::memset(value.data(), 0, value.size());
  asm volatile("" : : "r"(value.data()) : "memory");
}

// Wipes the whole capacity; leaves the string empty.
inline void WipeWhole(std::string& value) noexcept {
  value.resize(value.capacity());
  Wipe(value);
  value.clear();
}

// Wipes a string at the end of the scope.
class Wiper {
 public:
  explicit Wiper(std::string& text) noexcept : text_(text) {}
  ~Wiper() { WipeWhole(text_); }
  Wiper(const Wiper&) = delete;
  Wiper& operator=(const Wiper&) = delete;

 private:
  std::string& text_;
};

}  // namespace cbt

#endif  // CBT_BASE_WIPE_H_
