// Records what a program does to the files below a directory, through the calls of faults/shim. A
// program that links disk_recorder.cc and shim/file_calls.cc records itself.
#ifndef CBT_TESTS_FAULTS_SUPPORT_DISK_RECORDER_H_
#define CBT_TESTS_FAULTS_SUPPORT_DISK_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cbt::test {

struct DiskOperation {
  enum class Kind {
    kCreate,         // `path` is the name of the new file `file`
    kWrite,          // `bytes` at `offset` of `file`
    kTruncate,       // `file` to `offset` bytes
    kSync,           // the bytes of `file`
    kRename,         // `path`, which is `file`, to `to`
    kUnlink,         // `path`
    kMakeDirectory,  // `path`
    kSyncDirectory,  // the names in `path`
    kNote,           // `path` is the text of Note()
  };
  Kind kind;
  int file = -1;
  std::string path = {};  // relative to the directory; "" is the directory itself
  std::string to = {};
  uint64_t offset = 0;
  std::vector<uint8_t> bytes = {};
};

// Starts recording everything below `directory`, an absolute path without a trailing slash.
void StartRecording(const std::string& directory);
std::vector<DiskOperation> StopRecording();

// Records a fact that the program knows at this point.
void Note(const std::string& what);

// Lets `operations` more succeed (notes do not count). All later calls fail without effect, as if
// the process had been killed. Negative: no limit.
void DieAfter(int64_t operations);

}  // namespace cbt::test

#endif  // CBT_TESTS_FAULTS_SUPPORT_DISK_RECORDER_H_
