// What this process has open.
#ifndef CBT_TESTS_RPC_SUPPORT_DESCRIPTORS_H_
#define CBT_TESTS_RPC_SUPPORT_DESCRIPTORS_H_

#include <dirent.h>

#include <chrono>
#include <cstddef>
#include <thread>

namespace cbt::test {

inline size_t OpenDescriptors() {
  size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Connections end some time after whoever used them: waits until no more than `most` descriptors
// are open, for ten seconds. Returns: how many there are.
inline size_t DescriptorsComeDownTo(size_t most) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (OpenDescriptors() > most && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return OpenDescriptors();
}

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_DESCRIPTORS_H_
