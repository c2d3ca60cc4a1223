#include "tests/faults/support/disk_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "tests/faults/shim/calls.h"

namespace cbt::test {
namespace {

struct OpenFile {
  int file = -1;  // -1: a directory
  std::string path;
  uint64_t position = 0;
};

// Libraries make calls before this file's objects exist.
constinit std::array<char, PATH_MAX> directory = {};
std::vector<DiskOperation> operations;
std::map<std::string, int> names;
std::map<int, OpenFile> open_files;
int next_file = 0;
int64_t left = -1;

void Record(DiskOperation operation) {
  operations.push_back(std::move(operation));
  if (left > 0) --left;
}

// The path below the directory. `path` may be relative to a directory descriptor within it.
std::string Below(const Attempt& attempt, const char* path) {
  const std::string text = path;
  if (*path != '/') {
    const std::string& parent = open_files.at(attempt.descriptor).path;
    return parent.empty() ? text : parent + "/" + text;
  }
  const size_t size = std::strlen(directory.data());
  return text.size() <= size ? "" : text.substr(size + 1);
}

bool Is(const Attempt& attempt, const char* name) {
  return std::strcmp(attempt.call.name, name) == 0;
}

std::vector<uint8_t> Bytes(const Attempt& attempt, long count) {
  const auto* const bytes = static_cast<const uint8_t*>(attempt.bytes);
  return {bytes, bytes + count};
}

}  // namespace

using Kind = DiskOperation::Kind;

const char* WatchedDirectory() { return directory.data(); }
bool WatchSockets() { return false; }

Verdict Before(const Attempt&) {
  if (left != 0) return Verdict::kPass;
  errno = EIO;
  return Verdict::kFail;
}

void After(const Attempt& attempt, long result) {
  if (result < 0) return;
  if (Is(attempt, "open") || Is(attempt, "create")) {
    const std::string path = Below(attempt, attempt.path);
    const int descriptor = static_cast<int>(result);
    if ((attempt.flags & O_DIRECTORY) != 0) {
      open_files[descriptor] = {-1, path, 0};
      return;
    }
    const bool is_new = !names.contains(path);
    if (is_new) names[path] = next_file++;
    const int file = names[path];
    if (is_new) Record({.kind = Kind::kCreate, .file = file, .path = path});
    if ((attempt.flags & O_TRUNC) != 0) Record({.kind = Kind::kTruncate, .file = file});
    open_files[descriptor] = {file, path, 0};
  } else if (Is(attempt, "write")) {
    OpenFile& open = open_files.at(attempt.descriptor);
    Record({.kind = Kind::kWrite,
            .file = open.file,
            .offset = open.position,
            .bytes = Bytes(attempt, result)});
    open.position += static_cast<uint64_t>(result);
  } else if (Is(attempt, "pwrite")) {
    Record({.kind = Kind::kWrite,
            .file = open_files.at(attempt.descriptor).file,
            .offset = static_cast<uint64_t>(attempt.offset),
            .bytes = Bytes(attempt, result)});
  } else if (Is(attempt, "copy_file_range")) {
    std::vector<uint8_t> bytes(static_cast<size_t>(result));
    if (pread(attempt.descriptor, bytes.data(), bytes.size(), attempt.offset) != result) {
      std::abort();  // what was just written can be read
    }
    Record({.kind = Kind::kWrite,
            .file = open_files.at(attempt.descriptor).file,
            .offset = static_cast<uint64_t>(attempt.offset),
            .bytes = std::move(bytes)});
  } else if (Is(attempt, "ftruncate")) {
    Record({.kind = Kind::kTruncate,
            .file = open_files.at(attempt.descriptor).file,
            .offset = attempt.size});
  } else if (Is(attempt, "fsync") || Is(attempt, "fdatasync")) {
    const OpenFile& open = open_files.at(attempt.descriptor);
    const Kind kind = open.file < 0 ? Kind::kSyncDirectory : Kind::kSync;
    Record({.kind = kind, .file = open.file, .path = open.path});
  } else if (Is(attempt, "rename")) {
    const std::string from = Below(attempt, attempt.path);
    const int file = names.at(from);
    names.erase(from);
    names[Below(attempt, attempt.to)] = file;
    Record({.kind = Kind::kRename, .file = file, .path = from, .to = Below(attempt, attempt.to)});
  } else if (Is(attempt, "unlink")) {
    names.erase(Below(attempt, attempt.path));
    Record({.kind = Kind::kUnlink, .path = Below(attempt, attempt.path)});
  } else if (Is(attempt, "mkdir")) {
    Record({.kind = Kind::kMakeDirectory, .path = Below(attempt, attempt.path)});
  }
}

void StartRecording(const std::string& watched) {
  operations.clear();
  names.clear();
  open_files.clear();
  next_file = 0;
  left = -1;
  if (watched.size() >= directory.size()) std::abort();
  std::copy_n(watched.c_str(), watched.size() + 1, directory.begin());
}

std::vector<DiskOperation> StopRecording() {
  directory[0] = 0;
  left = -1;
  return std::exchange(operations, {});
}

void Note(const std::string& what) { operations.push_back({.kind = Kind::kNote, .path = what}); }

void DieAfter(int64_t count) { left = count; }

}  // namespace cbt::test
