// This process's open file descriptors.
#ifndef CBT_TESTS_RPC_SUPPORT_DESCRIPTORS_H_
#define CBT_TESTS_RPC_SUPPORT_DESCRIPTORS_H_

#include <dirent.h>

#include <chrono>
#include <cstddef>
#include <thread>

namespace cbt::test {

inline size_t OpenDescriptors() {
  size_t count = 0;
  DIR* const directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// Connections close asynchronously: waits up to ten seconds until at most `most` descriptors are
// open. Returns the number open.
inline size_t DescriptorsComeDownTo(size_t most) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (OpenDescriptors() > most && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return OpenDescriptors();
}

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_DESCRIPTORS_H_
