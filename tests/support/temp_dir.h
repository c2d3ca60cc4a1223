// A directory that is removed after the test.
#ifndef CBT_TESTS_SUPPORT_TEMP_DIR_H_
#define CBT_TESTS_SUPPORT_TEMP_DIR_H_

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace cbt::test {

class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "cbt-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

  // The sorted names in it, or in a directory within it.
  std::vector<std::string> Names(const std::string& directory = "") const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_ / directory)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // Writes a file, and creates the directories above it.
  void Write(const std::string& name, const std::string& contents) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << contents;
  }

  // Creates an entry that even root cannot open: a socket.
  void WriteClosed(const std::string& name) const {
    if (mknod((path_ / name).c_str(), S_IFSOCK | S_IRUSR, 0) != 0) std::abort();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_TEMP_DIR_H_
