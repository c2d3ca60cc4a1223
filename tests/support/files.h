// Reads whole files.
#ifndef CBT_TESTS_SUPPORT_FILES_H_
#define CBT_TESTS_SUPPORT_FILES_H_

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace cbt::test {

// The bytes of a file, as a std::string or a std::vector. Throws if it cannot be opened, so that a
// missing file does not pass for an empty one.
template <typename Bytes = std::string>
Bytes ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("can't open " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_FILES_H_
