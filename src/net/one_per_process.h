// A static object that owns a thread: a forked child has the object, and not the thread.
#ifndef CBT_NET_ONE_PER_PROCESS_H_
#define CBT_NET_ONE_PER_PROCESS_H_

#include <atomic>

namespace cbt::net {

// The one `T` of each process, which says whether it IsOurs(). In a child, the parent's is left as
// it was at the fork: its locks may be held by threads that are not there. Nothing is destroyed.
template <typename T>
class OnePerProcess {
 public:
  constexpr OnePerProcess() = default;

  T& Get() {
    T* known = current_.load(std::memory_order_acquire);
    while (known == nullptr || !known->IsOurs()) {
      T* const made = new T();
      if (current_.compare_exchange_strong(known, made)) {
        // Still referred to, for tools that look for leaks.
        made->before = known;
        return *made;
      }
      delete made;
    }
    return *known;
  }

 private:
  std::atomic<T*> current_ = nullptr;
};

}  // namespace cbt::net

#endif  // CBT_NET_ONE_PER_PROCESS_H_
