// JSON values in memory that is wiped, read with a bound on their depth.
#ifndef CBT_KUBE_OBJECT_JSON_H_
#define CBT_KUBE_OBJECT_JSON_H_

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
// As everywhere in this library: types are checked before values are read.
#ifndef RAPIDJSON_ASSERT
#define RAPIDJSON_ASSERT(condition) ((void)0)
#endif
#include "rapidjson/document.h"

namespace cbt::kube::json {

// Allocates for RapidJSON. Memory is wiped when it is freed: any text may be a token. Throws
// std::bad_alloc, where RapidJSON would write to a null pointer.
class WipingAllocator {
 public:
  static constexpr bool kNeedFree = true;

  WipingAllocator() = default;
  ~WipingAllocator() { Free(reserved_); }
  WipingAllocator(const WipingAllocator&) = delete;
  WipingAllocator& operator=(const WipingAllocator&) = delete;

  // NOLINTBEGIN(readability-identifier-naming, cppcoreguidelines-no-malloc): RapidJSON's names
  void* Malloc(size_t size) {
    if (size != 0 && size == reserved_size_) {
      reserved_size_ = 0;
      return std::exchange(reserved_, nullptr);
    }
    return Take(size);
  }
  static void* Realloc(void* old, size_t old_size, size_t new_size) {
    void* const memory = Take(new_size);
    if (old != nullptr && memory != nullptr) {
      std::memcpy(memory, old, std::min(old_size, new_size));
    }
    Free(old);
    return memory;
  }
  static void Free(void* memory) noexcept {
    if (memory == nullptr) return;
    std::memset(memory, 0, malloc_usable_size(memory));
    asm volatile("" : : "r"(memory) : "memory");
    std::free(memory);
  }
  // NOLINTEND(readability-identifier-naming, cppcoreguidelines-no-malloc)

  // The next Malloc() of this size does not throw.
  void Reserve(size_t size) {
    if (size == reserved_size_) return;
    void* const memory = Take(size);
    Free(std::exchange(reserved_, memory));
    reserved_size_ = size;
  }

  // Each frees what another allocated.
  friend bool operator==(const WipingAllocator&, const WipingAllocator&) noexcept { return true; }

 private:
  static void* Take(size_t size) {
    if (size == 0) return nullptr;
    void* const memory = std::malloc(size);  // NOLINT(cppcoreguidelines-no-malloc): see Free()
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }

  void* reserved_ = nullptr;
  size_t reserved_size_ = 0;
};

using Value = rapidjson::GenericValue<rapidjson::UTF8<>, WipingAllocator>;

// For everything but Parse(); it never reserves anything, so all threads may use it at once.
WipingAllocator& Allocator() noexcept;

// Reads one JSON value; nothing but blanks may follow it, and no object has a key twice. Errors:
// INVALID_ARGUMENT with what is wrong and the position if there is one, without text from there.
// O(n log n) in the number of an object's keys.
// `max_values`: keys and values together; each takes up to 50 bytes while the text is read, however
// short it is there.
absl::Status Parse(std::string_view text, int max_depth, Value& value,
                   size_t max_values = std::numeric_limits<size_t>::max());

std::string ToText(const Value& value);

// How an object's text differs from the object. Views.
struct Edits {
  struct Member {
    std::string_view key;
    std::string_view value;
  };
  // Members of the root: each replaces the one of its name, or is added.
  std::vector<Member> set = {};
  // `child` of the root's member `parent` is left out; empty: nothing is.
  std::string_view parent = {};
  std::string_view child = {};
};
// As an edited copy of `object` would be, without the copy.
std::string ToText(const Value& object, const Edits& edits);

inline std::string_view View(const Value& text) noexcept {
  return {text.GetString(), text.GetStringLength()};
}
// RapidJSON's own copies go through memory that is not wiped.
Value Copy(const Value& value);

Value MakeString(std::string_view text);

// The member `key` of an object; null if `object` is not an object, or if the member is absent or
// null.
const Value* Find(const Value& object, std::string_view key) noexcept;

// The members of an object; valid until one is added or removed. RapidJSON's own
// iterators of such members are ambiguous to compare in C++20.
inline auto Members(Value& object) noexcept {
  return std::span(object.MemberBegin().operator->(), object.MemberCount());
}

inline auto Members(const Value& object) noexcept {
  return std::span(object.MemberBegin().operator->(), object.MemberCount());
}

// "an object", "a string" and so on, for messages.
std::string_view TypeName(const Value& value) noexcept;

}  // namespace cbt::kube::json

#endif  // CBT_KUBE_OBJECT_JSON_H_
