// Names that change while a stream is replayed, against a model of a small file system.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "cbt/source/btrfs_send.h"
#include "cbt/units.h"
#include "tests/support/btrfs_writer.h"
#include "tests/support/cursors.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt {
namespace btrfs_send_names_test {

using reference::Ranges;
using test::BtrfsWriter;
using test::ValueOf;

// The size of the base's files; a multiple of 4096.
constexpr uint64_t kSize = kMiB;

Ranges Read(const std::string& bytes, const BtrfsSendOptions& options) {
  const auto stream = MakeBorrowedMemoryStream(
      {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "the stream");
  return test::RangesOf(ValueOf(ReadBtrfsSend(*stream, options)));
}

// Changes a small file system at random and writes the matching stream.
class Model {
 public:
  Model() {
    for (const char* path : {"f", "g", "d/f", "d/g", "d/e/f", "e/f"}) {
      names_[path] = static_cast<int>(inodes_.size());
      inodes_.push_back({path, std::set<uint64_t>(), kSize});
    }
    directories_ = {"d", "d/e", "e"};
    writer_.Snapshot();
  }

  struct Inode {
    std::string origin;  // empty: created by the stream
    std::set<uint64_t> blocks;
    uint64_t size;
  };

  void Step(std::mt19937_64& random) {
    const std::string from = AnyOf(names_, random);
    const std::string to = FreeName(random);
    switch (random() % 9) {
      case 0:
        writer_.Rename(from, to);
        names_[to] = names_[from];
        names_.erase(from);
        break;
      case 1:
        MoveDirectory(random);
        break;
      case 2:
        writer_.Link(to, from);
        names_[to] = names_[from];
        break;
      case 3:
        if (names_.size() < 2) break;
        writer_.Unlink(from);
        names_.erase(from);
        break;
      case 4:
        writer_.MakeFile(to);
        names_[to] = static_cast<int>(inodes_.size());
        inodes_.push_back({"", {}, 0});
        break;
      case 5:
        writer_.MakeDirectory(to);
        directories_.insert(to);
        break;
      default: {
        const uint64_t block = random() % (kSize / 4096);
        writer_.Update(from, block * 4096, 4096);
        Inode& inode = inodes_[static_cast<size_t>(names_[from])];
        inode.blocks.insert(block);
        if (inode.origin.empty()) inode.size = std::max(inode.size, (block + 1) * 4096);
      }
    }
  }

  std::string bytes() const { return BtrfsWriter(writer_).End().bytes(); }
  const std::map<std::string, int>& names() const { return names_; }
  const Inode& inode(int number) const { return inodes_[static_cast<size_t>(number)]; }

 private:
  template <typename Container>
  static std::string AnyOf(const Container& container, std::mt19937_64& random) {
    auto it = container.begin();
    std::advance(it, random() % container.size());
    if constexpr (std::is_same_v<Container, std::set<std::string>>) {
      return *it;
    } else {
      return it->first;
    }
  }

  // Often a name that existed before and is free now.
  std::string FreeName(std::mt19937_64& random) const {
    static const char* const kNames[] = {"d", "e", "f", "g", "h", "i", "j", "k", "l", "m"};
    for (;;) {
      std::string name = random() % 2 == 0 || directories_.empty()
                             ? ""
                             : absl::StrCat(AnyOf(directories_, random), "/");
      name += kNames[random() % std::size(kNames)];
      if (random() % 8 == 0) absl::StrAppend(&name, random() % 1000);
      if (!names_.contains(name) && !directories_.contains(name)) return name;
    }
  }

  void MoveDirectory(std::mt19937_64& random) {
    if (directories_.empty()) return;
    const std::string from = AnyOf(directories_, random);
    const std::string to = FreeName(random);
    if (to.starts_with(absl::StrCat(from, "/"))) return;
    writer_.Rename(from, to);
    const auto moved = [&](const std::string& path) {
      if (path != from && !path.starts_with(absl::StrCat(from, "/"))) return path;
      return to + path.substr(from.size());
    };
    std::map<std::string, int> names;
    for (const auto& [path, inode] : names_) names[moved(path)] = inode;
    names_ = std::move(names);
    std::set<std::string> directories;
    for (const std::string& path : directories_) directories.insert(moved(path));
    directories_ = std::move(directories);
  }

  BtrfsWriter writer_;
  std::map<std::string, int> names_;
  std::set<std::string> directories_;
  std::vector<Inode> inodes_;
};

RC_GTEST_PROP(BtrfsSendProperty, NamesLeadToTheRightFile, ()) {
  std::mt19937_64 random = test::AnyRandom();
  Model model;
  for (uint64_t steps = random() % 60; steps > 0; --steps) model.Step(random);
  const std::string bytes = model.bytes();
  for (const auto& [path, number] : model.names()) {
    const Model::Inode& inode = model.inode(number);
    const bool made = inode.origin.empty();
    BtrfsSendOptions options{.path = path, .single_name = true, .path_exists = true};
    if (!made) options.capacity = kSize;
    Ranges changed;
    for (const uint64_t block : inode.blocks) {
      if (!changed.empty() && changed.back().first + changed.back().second == block * 4096) {
        changed.back().second += 4096;
      } else {
        changed.emplace_back(block * 4096, 4096);
      }
    }
    const Ranges all = inode.size == 0 ? Ranges{} : Ranges{{0, inode.size}};
    // Whether the base had this file at this path.
    const Ranges want = inode.origin == path ? changed : all;
    RC_ASSERT(Read(bytes, options) == want);
    if (made) continue;
    options.base_path = inode.origin;
    RC_ASSERT(Read(bytes, options) == changed);
  }
}

}  // namespace btrfs_send_names_test
}  // namespace cbt
