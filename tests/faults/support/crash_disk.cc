#include "tests/faults/support/crash_disk.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

namespace cbt::test {
namespace {

using Kind = DiskOperation::Kind;

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

void Put(std::vector<uint8_t>& content, uint64_t offset, const uint8_t* bytes, size_t count) {
  if (content.size() < offset + count) content.resize(offset + count);
  std::copy(bytes, bytes + count, content.begin() + static_cast<std::ptrdiff_t>(offset));
}

}  // namespace

uint64_t DiskState::Hash() const {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::string_view text) {
    hash = (hash ^ std::hash<std::string_view>()(text)) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  };
  for (const std::string& directory : directories) add(directory);
  for (const auto& [path, bytes] : files) {
    add(path);
    add({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return hash;
}

void DiskState::WriteTo(const std::string& directory) const {
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory(directory);
  for (const std::string& each : directories)
    std::filesystem::create_directory(directory + "/" + each);
  for (const auto& [path, bytes] : files) {
    std::ofstream file(directory + "/" + path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
}

void CrashDisk::Do(const DiskOperation& operation) {
  const std::string directory = DirectoryOf(operation.path);
  switch (operation.kind) {
    case Kind::kCreate:
      contents_[operation.file];
      changes_.push_back({directory, {}, operation.path, operation.file});
      break;
    case Kind::kMakeDirectory:
      changes_.push_back({directory, {}, operation.path, -1});
      break;
    case Kind::kRename:
      changes_.push_back({directory, operation.path, operation.to, operation.file});
      break;
    case Kind::kUnlink:
      changes_.push_back({directory, operation.path, {}, -1});
      break;
    case Kind::kWrite:
      writes_.push_back({operation.file, operation.offset, operation.bytes});
      break;
    case Kind::kTruncate:
      writes_.push_back({operation.file, operation.offset, {}, true});
      break;
    case Kind::kSync: {
      std::vector<uint8_t>& content = contents_[operation.file];
      for (const Write& write : writes_) {
        if (write.file != operation.file) continue;
        if (write.truncates) content.resize(write.offset);
        Put(content, write.offset, write.bytes.data(), write.bytes.size());
      }
      std::erase_if(writes_, [&](const Write& write) { return write.file == operation.file; });
      break;
    }
    case Kind::kSyncDirectory:
      for (const NameChange& change : changes_) {
        if (change.directory != operation.path) continue;
        if (!change.removes.empty()) names_.erase(change.removes);
        if (!change.adds.empty()) names_[change.adds] = change.file;
      }
      std::erase_if(changes_, [&](const NameChange& c) { return c.directory == operation.path; });
      break;
    case Kind::kNote:
      break;
  }
}

std::vector<std::vector<bool>> CrashDisk::Subsets(size_t count) {
  std::vector<std::vector<bool>> subsets;
  if (count <= 3) {
    for (unsigned bits = 0; bits < 1U << count; ++bits) {
      std::vector<bool> subset(count);
      for (size_t i = 0; i < count; ++i) subset[i] = (bits >> i & 1) != 0;
      subsets.push_back(std::move(subset));
    }
    return subsets;
  }
  subsets.emplace_back(count, false);
  subsets.emplace_back(count, true);
  for (size_t i = 0; i < count; ++i) {
    std::vector<bool> subset(count, false);
    subset[i] = true;
    subsets.push_back(subset);
    subset.flip();
    subsets.push_back(subset);
    subset.assign(count, false);
    std::fill_n(subset.begin(), i, true);
    subsets.push_back(subset);
    for (size_t j = 0; j < count; ++j) subset[j] = random_() % 2 != 0;
    subsets.push_back(std::move(subset));
  }
  return subsets;
}

std::vector<CrashDisk::Arrival> CrashDisk::Arrivals() {
  std::vector<Arrival> arrivals;
  for (const std::vector<bool>& subset : Subsets(writes_.size())) {
    arrivals.push_back({.arrives = [subset](size_t write, uint64_t) { return subset[write]; }});
  }
  if (writes_.empty()) return arrivals;
  arrivals.push_back({.zeros = true, .arrives = [](size_t, uint64_t) { return false; }});
  for (const uint64_t sector : {uint64_t{512}, uint64_t{4096}}) {
    uint64_t sectors = 0;
    for (const Write& write : writes_) sectors += write.bytes.size() / sector + 1;
    for (int i = 0; i < 4; ++i) {
      const uint64_t some = random_() % sectors;
      const uint64_t salt = random_() | 1;
      arrivals.push_back(
          {sector, false, [some](size_t, uint64_t number) { return number <= some; }});
      arrivals.push_back(
          {sector, false, [some](size_t, uint64_t number) { return number != some; }});
      arrivals.push_back({sector, false, [salt](size_t write, uint64_t number) {
                            return ((number + write + 1) * salt >> 33 & 1) != 0;
                          }});
    }
  }
  return arrivals;
}

DiskState CrashDisk::StateOf(const std::vector<bool>& applied, const Arrival& arrival) const {
  std::map<std::string, int> names = names_;
  for (size_t i = 0; i < changes_.size(); ++i) {
    if (!applied[i]) continue;
    if (!changes_[i].removes.empty()) names.erase(changes_[i].removes);
    if (!changes_[i].adds.empty()) names[changes_[i].adds] = changes_[i].file;
  }
  std::map<int, std::vector<uint8_t>> contents;
  DiskState state;
  for (const auto& [path, file] : names) {
    // Sorted, so that a directory comes before its contents.
    if (const std::string directory = DirectoryOf(path);
        !directory.empty() && !state.directories.contains(directory)) {
      continue;
    }
    if (file < 0) {
      state.directories.insert(path);
      continue;
    }
    if (!contents.contains(file)) {
      std::vector<uint8_t>& content = contents[file] = contents_.at(file);
      for (size_t i = 0; i < writes_.size(); ++i) {
        const Write& write = writes_[i];
        if (write.file != file) continue;
        if (write.truncates && arrival.arrives(i, 0)) content.resize(write.offset);
        const uint64_t end = write.offset + write.bytes.size();
        if (arrival.zeros && content.size() < end) content.resize(end);
        for (uint64_t at = write.offset; at < end;) {
          const uint64_t stop = std::min(end, (at / arrival.sector + 1) * arrival.sector);
          if (arrival.arrives(i, at / arrival.sector)) {
            Put(content, at, write.bytes.data() + (at - write.offset), stop - at);
          }
          at = stop;
        }
      }
    }
    state.files[path] = contents[file];
  }
  return state;
}

void CrashDisk::ForEachState(size_t most, const std::function<void(const DiskState&)>& check) {
  const std::vector<std::vector<bool>> subsets = Subsets(changes_.size());
  const std::vector<Arrival> arrivals = Arrivals();
  const bool all = subsets.size() * arrivals.size() <= most;
  std::set<uint64_t> seen;
  for (size_t i = 0; i < subsets.size(); ++i) {
    for (size_t j = 0; j < arrivals.size(); ++j) {
      // Nothing and everything of one side with all of the other; otherwise as many as requested.
      const bool wanted = all || i == 0 || i + 1 == subsets.size() || j < 2 ||
                          random_() % (subsets.size() * arrivals.size()) < most;
      if (!wanted) continue;
      const DiskState state = StateOf(subsets[i], arrivals[j]);
      if (seen.insert(state.Hash()).second) check(state);
    }
  }
}

}  // namespace cbt::test
