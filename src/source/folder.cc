#include "source/folder.h"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>

namespace cbt {

std::vector<std::string> NamesIn(int descriptor) {
  std::vector<std::string> names;
  DIR* const directory = ::fdopendir(descriptor);
  if (directory == nullptr) {
    ::close(descriptor);
    return names;
  }
  // NOLINTNEXTLINE(concurrency-mt-unsafe): a stream of our own
  while (const dirent* const entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(directory);
  // The first of several things that are wrong is always the same one.
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace cbt
