// What a program does to the files below a folder, written down through the calls of faults/shim:
// the program that links disk_recorder.cc and shim/file_calls.cc records itself.
#ifndef CBT_TESTS_FAULTS_SUPPORT_DISK_RECORDER_H_
#define CBT_TESTS_FAULTS_SUPPORT_DISK_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cbt::test {

struct DiskOperation {
  enum class Kind {
    kCreate,      // `path` is the name of the new file `file`
    kWrite,       // `bytes` at `offset` of `file`
    kTruncate,    // `file` to `offset` bytes
    kSync,        // the bytes of `file`
    kRename,      // `path`, which is `file`, to `to`
    kUnlink,      // `path`
    kMakeFolder,  // `path`
    kSyncFolder,  // the names in `path`
    kNote,        // `path` is what Note() was told
  };
  Kind kind;
  int file = -1;
  std::string path = {};  // below the folder; "" is the folder itself
  std::string to = {};
  uint64_t offset = 0;
  std::vector<uint8_t> bytes = {};
};

// Records from now on what is done below `folder`, an absolute path without a slash at its end.
void StartRecording(const std::string& folder);
std::vector<DiskOperation> StopRecording();

// What the program knows at this point of the recording.
void Note(const std::string& what);

// Lets `operations` more happen (notes don't count). All calls after that fail and do nothing, as
// if the process had been killed. A negative number: all happen.
void DieAfter(int64_t operations);

}  // namespace cbt::test

#endif  // CBT_TESTS_FAULTS_SUPPORT_DISK_RECORDER_H_
