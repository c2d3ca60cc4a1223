// Golden files of released format versions (tests/map/data/v<major>) as text. They look like the
// output of `od -A x -t x1`, so that diffs are readable and repeated bytes take one line.
#ifndef CBT_TESTS_MAP_GOLDEN_H_
#define CBT_TESTS_MAP_GOLDEN_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/files.h"

namespace cbt::test {

// File contents by name.
using Files = std::map<std::string, std::string>;

// The bytes of a dump. Aborts the test program if the dump is malformed.
inline std::string BytesOfDump(const std::string& path) {
  std::ifstream file(path);
  const auto fail = [&](const std::string& line) {
    std::fprintf(stderr, "%s: no dump: '%s'\n", path.c_str(), line.c_str());
    std::abort();
  };
  std::string bytes;
  std::string last;
  bool repeat = false;
  bool ended = false;
  for (std::string line; std::getline(file, line);) {
    if (ended) fail(line);
    if (line == "*") {
      repeat = true;
      continue;
    }
    char* at = nullptr;
    const size_t offset = std::strtoull(line.c_str(), &at, 16);
    while (repeat && bytes.size() < offset && !last.empty()) bytes += last;
    repeat = false;
    if (at == line.c_str() || bytes.size() != offset) fail(line);
    last.clear();
    while (*at != '\0') {
      char* next = nullptr;
      last += static_cast<char>(std::strtoul(at, &next, 16));
      if (next == at) fail(line);
      at = next;
    }
    bytes += last;
    ended = last.empty();
  }
  if (!ended) fail("end");
  return bytes;
}

inline std::string DumpOfBytes(const std::string& bytes) {
  std::string dump;
  char text[24];
  std::string last;
  bool starred = false;
  for (size_t at = 0; at < bytes.size(); at += 16) {
    const std::string now = bytes.substr(at, 16);
    if (now == last) {
      if (!starred) dump += "*\n";
      starred = true;
      continue;
    }
    starred = false;
    last = now;
    std::snprintf(text, sizeof(text), "%06zx", at);
    dump += text;
    for (const char byte : now) {
      std::snprintf(text, sizeof(text), " %02x", static_cast<unsigned>(static_cast<uint8_t>(byte)));
      dump += text;
    }
    dump += '\n';
  }
  std::snprintf(text, sizeof(text), "%06zx\n", bytes.size());
  return dump + text;
}

// The files of a directory except the lock, which has no contents.
inline Files FilesOf(const std::string& directory) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().filename() == "LOCK") continue;
    files[entry.path().filename().string()] = ReadFile(entry.path());
  }
  return files;
}

inline void WriteFiles(const Files& files, const std::string& directory) {
  std::filesystem::create_directories(directory);
  for (const auto& [name, bytes] : files) {
    std::ofstream(directory + "/" + name, std::ios::binary) << bytes;
  }
}

// A directory of dumps, each named after its file.
inline Files ReadDumps(const std::string& directory) {
  Files files;
  if (!std::filesystem::is_directory(directory)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".od") continue;
    files[entry.path().stem().string()] = BytesOfDump(entry.path().string());
  }
  return files;
}

// Released files never change: existing ones are kept.
inline void WriteNewDumps(const Files& files, const std::string& directory) {
  std::filesystem::create_directories(directory);
  for (const auto& [name, bytes] : files) {
    const std::string path = directory + "/" + name + ".od";
    if (!std::filesystem::exists(path)) std::ofstream(path) << DumpOfBytes(bytes);
  }
}

}  // namespace cbt::test

#endif  // CBT_TESTS_MAP_GOLDEN_H_
