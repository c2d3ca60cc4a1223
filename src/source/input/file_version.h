// Which state of a file a descriptor shows.
#ifndef CBT_SOURCE_INPUT_FILE_VERSION_H_
#define CBT_SOURCE_INPUT_FILE_VERSION_H_

#include <string>

namespace cbt {

// The file's device and inode number, its size, and the times of its last write and last change: a
// file that was replaced or written to has another text. Of a block device only which one it is;
// what was written to it leaves no trace. Empty when the system can't tell.
std::string FileVersion(int descriptor);

}  // namespace cbt

#endif  // CBT_SOURCE_INPUT_FILE_VERSION_H_
