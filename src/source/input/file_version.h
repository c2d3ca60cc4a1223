// Identifies the state of an open file.
#ifndef CBT_SOURCE_INPUT_FILE_VERSION_H_
#define CBT_SOURCE_INPUT_FILE_VERSION_H_

#include <string>

namespace cbt {

// A state of data: the text differs when the data may differ.
struct DataVersion {
  std::string text = {};
  // The text says where the data is, and stays the same when the data there changes.
  bool of_place = false;

  // Adds what else the data consists of.
  void Add(const DataVersion& other) {
    text += other.text;
    of_place = of_place || other.of_place;
  }
};

// The file's device and inode number, its size, and the times of its last write and last change:
// the text differs after the file was replaced or written to. For a block device only its number,
// since writes leave no trace. If the system call fails, nothing is known of its state.
DataVersion FileVersion(int descriptor);

}  // namespace cbt

#endif  // CBT_SOURCE_INPUT_FILE_VERSION_H_
