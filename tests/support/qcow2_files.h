// qcow2 images and their backing files, in memory.
#ifndef CBT_TESTS_SUPPORT_QCOW2_FILES_H_
#define CBT_TESTS_SUPPORT_QCOW2_FILES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cbt/source/qcow2.h"
#include "tests/support/memory_image.h"

namespace cbt::test {

// Images by name, without a directory. An in-memory file has no path that identifies it, so an
// image that is opened repeatedly without being asked for by name is one Image.
class Qcow2Files {
 public:
  void Add(const std::string& name, const std::vector<uint8_t>& bytes) {
    Add(name, std::make_unique<MemoryImage>(bytes));
  }
  void Add(const std::string& name, std::unique_ptr<MemoryImage> file) {
    files_[name] = {std::move(file), nullptr};
  }
  // The file may be modified, so it is opened again after this.
  MemoryImage& operator[](const std::string& name) {
    File& file = files_.at(name);
    file.opened = nullptr;
    return *file.file;
  }

  Qcow2Options Options() {
    Qcow2Options options;
    options.open_backing = [this](
                               const std::string& path,
                               const std::string&) -> absl::StatusOr<std::shared_ptr<const Image>> {
      const auto file = files_.find(path.substr(path.rfind('/') + 1));
      if (file == files_.end()) return absl::NotFoundError(path);
      return file->second.Open();
    };
    return options;
  }
  std::shared_ptr<const Image> OpenFile(const std::string& name) { return files_.at(name).Open(); }
  absl::StatusOr<std::shared_ptr<const Qcow2Image>> Open(const std::string& name) {
    return Qcow2Image::FromImage(OpenFile(name), "folder", Options());
  }

 private:
  struct File {
    std::unique_ptr<MemoryImage> file;
    std::shared_ptr<const Image> opened;

    std::shared_ptr<const Image> Open() {
      if (opened == nullptr) opened = file->Open();
      return opened;
    }
  };
  std::map<std::string, File> files_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_QCOW2_FILES_H_
