// Identifies the state of an open file.
#ifndef CBT_SOURCE_INPUT_FILE_VERSION_H_
#define CBT_SOURCE_INPUT_FILE_VERSION_H_

#include <string>

namespace cbt {

// The file's device and inode number, its size, and the times of its last write and last change:
// the text differs after the file was replaced or written to. For a block device only its number,
// since writes leave no trace. Empty if the system call fails.
std::string FileVersion(int descriptor);

}  // namespace cbt

#endif  // CBT_SOURCE_INPUT_FILE_VERSION_H_
