#include "cbt/source/ext_filesystem.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <sstream>

#include "tests/reference/volume.h"
#include "tests/support/child_process.h"
#include "tests/support/cursors.h"
#include "tests/support/files.h"
#include "tests/support/memory_image.h"
#include "tests/support/numbers.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace ext_filesystem_test {

using absl::StatusCode;
using reference::Ranges;
using test::MemoryImage;
using test::ValueOf;

std::string TextOfFile(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class ExtFilesystemTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::vector<uint8_t> nothing(4096);
    if (absl::IsUnimplemented(MakeExtAllocationCursor(MemoryImage(nothing).Open()).status())) {
      GTEST_SKIP() << "built without libext2fs";
    }
    for (const char* program : {"mke2fs", "debugfs", "dumpe2fs", "e2fsck"}) {
      if (test::FindProgram(program).empty()) GTEST_SKIP() << "no " << program;
    }
  }

  std::string Path(const std::string& name) const { return directory_ / name; }

  // An image of a file system of `size` (in mke2fs's syntax), in a file that is `extra` bytes
  // longer.
  std::string Make(const std::string& name, const std::string& size,
                   const std::vector<std::string>& options, uint64_t extra = 0) const {
    std::vector<std::string> command = {"mke2fs", "-q", "-F", "-U",
                                        "11111111-2222-3333-4444-555555555555"};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {Path(name), size});
    EXPECT_EQ(test::Run(command, Path("log")), 0) << TextOfFile(Path("log"));
    if (extra > 0) {
      std::filesystem::resize_file(Path(name), std::filesystem::file_size(Path(name)) + extra);
    }
    return Path(name);
  }

  void Debugfs(const std::string& image, const std::string& commands) const {
    directory_.Write("commands", commands);
    EXPECT_EQ(test::Run({"debugfs", "-w", "-f", Path("commands"), image}, Path("log")), 0)
        << TextOfFile(Path("log"));
  }

  // Files of many sizes, some of them removed again.
  void Fill(const std::string& image, std::mt19937_64& random, size_t largest) const {
    std::string commands;
    for (int i = 0; i < 40; ++i) {
      std::string name = std::to_string(i);
      name += "f";  // in two steps: GCC 12 warns falsely about one
      std::string contents(random() % largest + 1, 'x');
      for (size_t at = 0; at < contents.size(); at += 1000) {
        contents[at] = static_cast<char>(random());
      }
      directory_.Write(name, contents);
      commands += "write " + Path(name) + " " + name + "\n";
    }
    for (int i = 0; i < 40; i += 3) commands += "rm " + std::to_string(i) + "f\n";
    Debugfs(image, commands);
  }

  // The complement of the free blocks that dumpe2fs lists.
  Ranges Oracle(const std::string& image) const {
    EXPECT_EQ(test::Run({"dumpe2fs", image}, Path("dump")), 0);
    const std::string dump = TextOfFile(Path("dump"));
    const uint64_t block_size = test::NumberOf(dump, "Block size:");
    // Older versions list only the first block of a free cluster, newer ones (1.47.2) all of them.
    const uint64_t unit = test::NumberAfter(dump, "Cluster size:").value_or(block_size);
    std::vector<std::pair<uint64_t, uint64_t>> free;
    std::istringstream lines(dump);
    for (std::string line; std::getline(lines, line);) {
      constexpr std::string_view kKey = "  Free blocks: ";
      if (line.rfind(kKey, 0) != 0) continue;
      std::string_view rest = std::string_view(line).substr(kKey.size());
      while (const auto first = test::TakeNumber(rest)) {
        uint64_t last = *first;
        if (!rest.empty() && rest.front() == '-') {
          rest.remove_prefix(1);
          last = test::NumberOf(rest, "");
          test::TakeNumber(rest);
        }
        free.emplace_back(*first * block_size, AlignUp((last + 1) * block_size, unit));
        if (!rest.empty()) rest.remove_prefix(1);  // a comma
      }
    }
    EXPECT_FALSE(free.empty());
    const uint64_t capacity = std::filesystem::file_size(image);
    const uint64_t end = EndOf(image);
    Ranges used;
    uint64_t at = 0;
    for (const auto& [begin, stop] : free) {
      if (begin > at) used.emplace_back(at, begin - at);
      at = std::min(stop, end);
    }
    if (at < capacity) used.emplace_back(at, capacity - at);
    return used;
  }

  uint64_t EndOf(const std::string& image) const {
    EXPECT_EQ(test::Run({"dumpe2fs", "-h", image}, Path("dump")), 0);
    const std::string dump = TextOfFile(Path("dump"));
    return test::NumberOf(dump, "Block count:") * test::NumberOf(dump, "Block size:");
  }

  void ExpectOracle(const std::string& image) const {
    const Ranges expected = Oracle(image);
    auto cursor = MakeExtAllocationCursor(ValueOf(Image::Open(image)));
    ASSERT_OK(cursor);
    const uint64_t capacity = (*cursor)->capacity();
    EXPECT_EQ(capacity, std::filesystem::file_size(image));
    const auto all = test::Drain(**cursor);
    ASSERT_OK(all);
    EXPECT_EQ(*all, expected);
    test::SeededRandom random(3);
    std::vector<uint64_t> offsets = {0, 1, 1023, 1024, 4095, capacity - 1, capacity};
    for (int i = 0; i < 50; ++i) offsets.push_back(random() % capacity);
    for (const auto& [offset, length] : expected) {
      if (offsets.size() > 100) break;
      offsets.insert(offsets.end(), {offset, offset + length - 1, offset + length});
    }
    for (const uint64_t offset : offsets) {
      const uint64_t from =
          offset == capacity ? offset : AlignDown(offset, (*cursor)->granularity());
      const auto rest = test::DrainFrom(**cursor, offset, 1 + offset % 9);
      ASSERT_OK(rest);
      EXPECT_EQ(*rest, reference::CutAt(expected, from)) << "from " << offset;
    }
  }

  // Overwrites everything that is not reported in a copy of the image. The copy must be consistent
  // and still have the files of Fill().
  void ExpectNothingMissing(const std::string& image) const {
    const std::string copy = Path("copy");
    std::filesystem::copy_file(image, copy, std::filesystem::copy_options::overwrite_existing);
    auto cursor = MakeExtAllocationCursor(ValueOf(Image::Open(image)));
    ASSERT_OK(cursor);
    const auto all = test::Drain(**cursor);
    ASSERT_OK(all);
    {
      std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
      uint64_t at = 0;
      for (const auto& [offset, length] : *all) {
        file.seekp(static_cast<std::streamoff>(at));
        file << std::string(static_cast<size_t>(offset - at), '\xee');
        at = offset + length;
      }
      ASSERT_TRUE(file.good());
    }
    EXPECT_EQ(test::Run({"e2fsck", "-f", "-n", copy}, Path("log")), 0) << TextOfFile(Path("log"));
    for (int i = 0; i < 40; ++i) {
      if (i % 3 == 0 || i % 4 == 0) continue;  // removed, or skipped to save time
      const std::string name = std::to_string(i) + "f";
      ASSERT_EQ(test::Run({"debugfs", "-R", "dump " + name + " " + Path("dumped"), copy}), 0);
      EXPECT_EQ(TextOfFile(Path("dumped")), TextOfFile(Path(name))) << name;
    }
    std::filesystem::remove(copy);
  }

  // Reads an image with these contents.
  static absl::StatusOr<Ranges> AnswerOf(const std::vector<uint8_t>& bytes) {
    const MemoryImage image(bytes, [&](size_t page) {
      const auto* const begin = bytes.data() + page * test::kHoleBytes;
      const size_t size = std::min(test::kHoleBytes, bytes.size() - page * test::kHoleBytes);
      return std::all_of(begin, begin + size, [](uint8_t byte) { return byte == 0; });
    });
    auto cursor = MakeExtAllocationCursor(image.Open());
    if (!cursor.ok()) return cursor.status();
    return test::Drain(**cursor, 1000);
  }

  test::TempDir directory_;
};

struct Layout {
  const char* name;
  const char* size;
  std::vector<std::string> options;
};

TEST_F(ExtFilesystemTest, MatchesDumpe2fs) {
  // Options for the format from before 1995; mke2fs 1.47.2 no longer has -r.
  std::vector<std::string> old = {"-t", "ext2", "-b", "1024", "-r", "0"};
  if (test::Run({"mke2fs", "-q", "-F", "-r", "0", Path("tried"), "20M"}, Path("log")) != 0) {
    old = {"-t", "ext2", "-b", "1024", "-E", "revision=0"};
  }
  const Layout layouts[] = {
      {"ext2_1k", "20M", {"-t", "ext2", "-b", "1024"}},
      {"ext2_2k", "70M", {"-t", "ext2", "-b", "2048"}},
      {"ext2_4k", "300M", {"-t", "ext2", "-b", "4096"}},
      {"ext2_old", "20M", old},
      {"ext2_small_groups", "20M", {"-t", "ext2", "-b", "1024", "-g", "256"}},
      {"ext3", "100M", {"-t", "ext3", "-b", "1024"}},
      {"ext4_1k", "130M", {"-t", "ext4", "-b", "1024"}},
      {"ext4_2k", "200M", {"-t", "ext4", "-b", "2048"}},
      {"ext4_4k", "1500M", {"-t", "ext4", "-b", "4096"}},
      {"ext4_odd", "123457k", {"-t", "ext4", "-b", "1024"}},
      {"ext4_32bit", "200M", {"-t", "ext4", "-b", "1024", "-O", "^64bit"}},
      {"ext4_uninit", "200M", {"-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"}},
      {"ext4_bare", "200M", {"-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg"}},
      {"ext4_apart", "200M", {"-t", "ext4", "-b", "1024", "-O", "^flex_bg"}},
      {"ext4_together", "300M", {"-t", "ext4", "-b", "1024", "-G", "64"}},
      {"ext4_super2", "200M", {"-t", "ext4", "-b", "1024", "-O", "sparse_super2"}},
      {"ext4_seed", "64M", {"-t", "ext4", "-b", "1024", "-O", "metadata_csum_seed"}},
      {"ext4_meta", "200M", {"-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"}},
      {"ext4_meta_apart",
       "200M",
       {"-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode,^flex_bg"}},
      {"big_4k_16k", "700M", {"-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"}},
      {"big_4k_64k", "3000M", {"-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"}},
      {"big_1k_8k", "300M", {"-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"}},
      {"big_odd", "100001k", {"-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384"}},
      {"ext4_large", "40G", {"-t", "ext4", "-b", "4096", "-E", "lazy_itable_init=1"}},
  };
  uint64_t seed = 0;
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    test::SeededRandom random(++seed);
    // The data after the file system may end inside a block.
    const std::string image = Make(layout.name, layout.size, layout.options, random() % 3 * 5000);
    ExpectOracle(image);
    Fill(image, random, 300'000);
    ExpectOracle(image);
    if (std::filesystem::file_size(image) < 150'000'000) ExpectNothingMissing(image);
    std::filesystem::remove(image);
  }
}

TEST_F(ExtFilesystemTest, AFullDirectoryAtBirth) {
  for (int i = 0; i < 50; ++i) {
    directory_.Write("tree/" + std::to_string(i % 7) + "/" + std::to_string(i),
                     std::string(static_cast<size_t>(i) * 4000, 'y'));
  }
  ExpectOracle(Make("image", "64M", {"-t", "ext4", "-d", Path("tree")}));
}

// Written by the kernel: refused while mounted, exact afterwards.
TEST_F(ExtFilesystemTest, TheKernelsOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can mount";
  struct Mounted {
    explicit Mounted(std::string where) : directory(std::move(where)) {}
    ~Mounted() { test::Run({"umount", directory}); }
    Mounted(const Mounted&) = delete;
    Mounted& operator=(const Mounted&) = delete;
    std::string directory;
  };
  std::filesystem::create_directories(Path("mounted"));
  for (const char* type : {"ext4", "ext3", "ext2"}) {
    const std::string image = Make("image", "200M", {"-t", type, "-b", "1024"});
    if (test::Run({"mount", "-o", "loop", "-t", type, image, Path("mounted")}) != 0) {
      GTEST_SKIP() << "can't mount " << type << " here";
    }
    {
      const Mounted mounted(Path("mounted"));
      test::SeededRandom random(11);
      for (int i = 0; i < 80; ++i) {
        directory_.Write("mounted/" + std::to_string(i), std::string(random() % 500'000, 'z'));
      }
      for (int i = 0; i < 80; i += 2) std::filesystem::remove(Path("mounted/" + std::to_string(i)));
      ASSERT_EQ(test::Run({"sync", "-f", Path("mounted")}), 0);
      EXPECT_EQ(MakeExtAllocationCursor(ValueOf(Image::Open(image))).status().code(),
                StatusCode::kFailedPrecondition)
          << type;
      if (std::string(type) != "ext2" && !test::FindProgram("fsfreeze").empty()) {
        // Frozen as for a snapshot: the journal is empty and the bitmaps are exact.
        ASSERT_EQ(test::Run({"fsfreeze", "-f", Path("mounted")}), 0);
        std::error_code failed;
        std::filesystem::copy_file(image, Path("frozen"), failed);
        ASSERT_EQ(test::Run({"fsfreeze", "-u", Path("mounted")}), 0);
        ASSERT_FALSE(failed) << failed.message();
        ExpectOracle(Path("frozen"));
        std::filesystem::remove(Path("frozen"));
      }
    }
    ExpectOracle(image);
    std::filesystem::remove(image);
  }
}

TEST_F(ExtFilesystemTest, TheMarkIsFound) {
  const std::vector<uint8_t> bytes =
      test::ReadFile<std::vector<uint8_t>>(Make("image", "8M", {"-t", "ext2"}));
  const std::span<const uint8_t> all(bytes);
  EXPECT_TRUE(LooksLikeExt(all.first(kExtProbeBytes)));
  EXPECT_TRUE(LooksLikeExt(all));
  EXPECT_FALSE(LooksLikeExt(all.first(kExtProbeBytes - 1)));
  EXPECT_FALSE(LooksLikeExt({}));
  EXPECT_FALSE(LooksLikeExt(all.subspan(1, kExtProbeBytes)));
}

TEST_F(ExtFilesystemTest, UncleanFileSystemsAreRefusedOrReportedWhole) {
  const std::pair<const char*, const char*> cases[] = {
      {"feature needs_recovery\n", "journal has not been replayed"},
      {"ssv state 0\n", "not unmounted"},
      {"ssv state 3\n", "having errors"},
      {"ssv state 5\n", "orphans"},
  };
  for (const auto& [commands, reason] : cases) {
    SCOPED_TRACE(commands);
    const std::string image = Make("image", "16M", {"-t", "ext4"}, 777);
    Debugfs(image, commands);
    const absl::Status status = MakeExtAllocationCursor(ValueOf(Image::Open(image))).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find(reason), std::string::npos) << status;
    EXPECT_NE(status.message().find(image), std::string::npos) << status;
    auto cursor =
        MakeExtAllocationCursor(ValueOf(Image::Open(image)), {.over_report_unclean = true});
    ASSERT_OK(cursor);
    EXPECT_EQ(ValueOf(test::Drain(**cursor)), (Ranges{{0, std::filesystem::file_size(image)}}));
    std::filesystem::remove(image);
  }
}

TEST_F(ExtFilesystemTest, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(MakeExtAllocationCursor(nullptr).status().code(), StatusCode::kInvalidArgument);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1024}, size_t{2047}, size_t{100'000}}) {
    EXPECT_EQ(AnswerOf(std::vector<uint8_t>(size)).status().code(), StatusCode::kInvalidArgument);
  }
  const std::string journal = Make("journal", "8M", {"-O", "journal_dev", "-b", "1024"});
  EXPECT_EQ(AnswerOf(test::ReadFile<std::vector<uint8_t>>(journal)).status().code(),
            StatusCode::kFailedPrecondition);

  const std::vector<uint8_t> sound =
      test::ReadFile<std::vector<uint8_t>>(Make("image", "8M", {"-t", "ext2"}));
  ASSERT_OK(AnswerOf(sound));
  const std::pair<size_t, uint8_t> features[] = {
      {0x60, 0x01},  // compression
      {0x61, 0x10},  // directory data
      {0x63, 0x40},  // from the future
      {0x64, 0x80},  // snapshots
      {0x65, 0x08},  // replicas
      {0x67, 0x01},  // from the future, read-only compatible
  };
  for (const auto& [at, bit] : features) {
    std::vector<uint8_t> bytes = sound;
    bytes[1024 + at] = static_cast<uint8_t>(bytes[1024 + at] | bit);
    const absl::Status status = AnswerOf(bytes).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << at << ": " << status;
  }
}

TEST_F(ExtFilesystemTest, MoreDescriptorsThanAreReadAreRefused) {
  const std::vector<uint8_t> sound =
      test::ReadFile<std::vector<uint8_t>>(Make("image", "8M", {"-t", "ext2", "-b", "1024"}));
  // 2^32 - 1 blocks in groups of 8.
  std::string superblock(sound.begin() + 1024, sound.begin() + 2048);
  superblock.replace(0x4, 4, "\xff\xff\xff\xff");
  superblock.replace(0x20, 4, std::string("\x08\0\0\0", 4));
  MemoryImage image(uint64_t{1} << 42);
  image.Write(1024, superblock);
  const absl::Status status = MakeExtAllocationCursor(image.Open()).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
}

// A group that claims to have no bitmap must not shrink the allocation.
TEST_F(ExtFilesystemTest, GroupsWithoutABitmapThatNobodyVouchesForAreFull) {
  const auto holds = [](const Ranges& ranges, uint64_t first, uint64_t last) {
    const uint64_t begin = first * 1024;
    const uint64_t end = (last + 1) * 1024;
    for (const auto& [offset, length] : ranges) {
      if (offset <= begin && offset + length >= end) return true;
    }
    return false;
  };
  {
    SCOPED_TRACE("no checksums");
    std::vector<uint8_t> bytes =
        test::ReadFile<std::vector<uint8_t>>(Make("image", "20M", {"-t", "ext2", "-b", "1024"}));
    ASSERT_FALSE(holds(ValueOf(AnswerOf(bytes)), 8193, 16384));
    bytes[2048 + 32 + 0x12] |= 2;  // group 1
    EXPECT_TRUE(holds(ValueOf(AnswerOf(bytes)), 8193, 16384));
  }
  {
    SCOPED_TRACE("fewer free blocks than there should be");
    const std::string image =
        Make("image", "64M", {"-t", "ext4", "-b", "1024", "-O", "uninit_bg,^metadata_csum"});
    ASSERT_FALSE(
        holds(ValueOf(AnswerOf(test::ReadFile<std::vector<uint8_t>>(image))), 49153, 57344));
    Debugfs(image, "set_bg 6 free_blocks_count 8000\nset_bg 6 checksum calc\n");
    EXPECT_TRUE(
        holds(ValueOf(AnswerOf(test::ReadFile<std::vector<uint8_t>>(image))), 49153, 57344));
  }
}

// Found by the fuzzer: groups that start at block 0 with 1024-byte blocks, and a bitmap that marks
// the boot block free.
TEST_F(ExtFilesystemTest, TheBootBlockCountsWhereverGroupsBegin) {
  const std::string image =
      Make("image", "256k", {"-t", "ext2", "-b", "1024", "-g", "256", "-N", "16"});
  ASSERT_EQ(test::Run({"dumpe2fs", image}, Path("dump")), 0);
  const size_t at = 1024 * test::NumberOf(TextOfFile(Path("dump")), "Block bitmap at");
  std::vector<uint8_t> bytes = test::ReadFile<std::vector<uint8_t>>(image);
  bytes[1024 + 0x14] = 0;
  size_t free = 0;
  while ((bytes[at + free / 8] >> (free % 8) & 1) != 0) ++free;
  bytes[at + free / 8] ^= static_cast<uint8_t>(1u << (free % 8));
  bytes[at] ^= 1;
  const auto answer = AnswerOf(bytes);
  ASSERT_OK(answer);
  ASSERT_FALSE(answer->empty());
  EXPECT_EQ(answer->front().first, 0u);
}

TEST_F(ExtFilesystemTest, AFileSystemThatGrewOrShrank) {
  if (test::FindProgram("resize2fs").empty()) GTEST_SKIP() << "no resize2fs";
  test::SeededRandom random(9);
  for (const char* features : {"resize_inode", "^resize_inode,meta_bg", "^flex_bg"}) {
    SCOPED_TRACE(features);
    const std::string image = Make("image", "64M", {"-t", "ext4", "-b", "1024", "-O", features});
    Fill(image, random, 100'000);
    for (const char* size : {"150M", "40M"}) {
      ASSERT_EQ(test::Run({"e2fsck", "-f", "-p", image}), 0);
      ASSERT_EQ(test::Run({"resize2fs", image, size}, Path("log")), 0) << TextOfFile(Path("log"));
      ExpectOracle(image);
      ExpectNothingMissing(image);
    }
    std::filesystem::remove(image);
  }
}

TEST_F(ExtFilesystemTest, ATruncatedImageIsDataLoss) {
  for (const char* type : {"ext2", "ext4"}) {
    const std::vector<uint8_t> sound =
        test::ReadFile<std::vector<uint8_t>>(Make("image", "8M", {"-t", type}));
    for (const size_t size : {sound.size() - 1, sound.size() / 2, size_t{5000}, size_t{2048}}) {
      const absl::Status status =
          AnswerOf({sound.begin(), sound.begin() + static_cast<ptrdiff_t>(size)}).status();
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << size << ": " << status;
    }
    std::filesystem::remove(Path("image"));
  }
}

TEST_F(ExtFilesystemTest, AnImageThatChangesIsAborted) {
  const std::vector<uint8_t> sound =
      test::ReadFile<std::vector<uint8_t>>(Make("image", "8M", {"-t", "ext2"}));
  MemoryImage image(sound);
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeExtAllocationCursor(image.Open()));
  image.Resize(sound.size() + 1);
  EXPECT_EQ(test::Drain(*cursor).status().code(), StatusCode::kAborted);
}

TEST_F(ExtFilesystemTest, DamagedBitmapsAreDataLoss) {
  for (const char* type : {"ext2", "ext4"}) {
    SCOPED_TRACE(type);
    const std::string image = Make("image", "8M", {"-t", type, "-b", "1024"});
    ASSERT_EQ(test::Run({"dumpe2fs", image}, Path("dump")), 0);
    const auto block =
        static_cast<size_t>(test::NumberOf(TextOfFile(Path("dump")), "Block bitmap at"));
    ASSERT_GT(block, 0u);
    const std::vector<uint8_t> sound = test::ReadFile<std::vector<uint8_t>>(image);
    const size_t at = block * 1024;
    const auto refused = [&](const std::vector<uint8_t>& bytes, const char* what) {
      const absl::Status status = AnswerOf(bytes).status();
      EXPECT_EQ(status.code(), StatusCode::kDataLoss) << what << ": " << status;
      EXPECT_NE(status.message().find("group 0"), std::string::npos) << status;
      EXPECT_NE(status.message().find("offset " + std::to_string(at)), std::string::npos) << status;
    };
    std::vector<uint8_t> bytes = sound;
    std::fill_n(bytes.begin() + static_cast<ptrdiff_t>(at), 1024, uint8_t{0});
    refused(bytes, "lost");
    for (size_t bit = 0; bit < 8191; bit += 97) {
      bytes = sound;
      bytes[at + bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
      refused(bytes, "one bit");
    }
    // The free count is right, but the bitmap's own block is marked free. Bit 0 is block 1.
    bytes = sound;
    const size_t own = block - 1;
    size_t free = 0;
    while ((bytes[at + free / 8] >> (free % 8) & 1) != 0) ++free;
    bytes[at + own / 8] ^= static_cast<uint8_t>(1u << (own % 8));
    bytes[at + free / 8] ^= static_cast<uint8_t>(1u << (free % 8));
    refused(bytes, "itself free");
    std::filesystem::remove(image);
  }
}

// If checksums cover everything, no flipped bit may change the answer.
TEST_F(ExtFilesystemTest, EveryFlippedBitOfChecksummedMetadataIsFoundOrHarmless) {
  const std::vector<uint8_t> sound = test::ReadFile<std::vector<uint8_t>>(
      Make("image", "512k",
           {"-t", "ext4", "-O", "^has_journal", "-b", "1024", "-g", "256", "-G", "2", "-N", "16"}));
  ASSERT_OK_AND_ASSIGN(const Ranges expected, AnswerOf(sound));
  const auto flip = [&](size_t at, int bit) {
    std::vector<uint8_t> bytes = sound;
    bytes[at] ^= static_cast<uint8_t>(1u << bit);
    const auto answer = AnswerOf(bytes);
    if (answer.ok()) {
      EXPECT_EQ(*answer, expected) << at << " bit " << bit;
    }
  };
  for (size_t at = 1024; at < 2048; ++at) flip(at, static_cast<int>(at % 8));
  for (size_t at = 1024; at < 1024 + 0x180; ++at) {
    for (int bit = 0; bit < 8; ++bit) flip(at, bit);
  }
  for (size_t at = 2048; at < 2048 + 2 * 64; ++at) {
    for (int bit = 0; bit < 8; ++bit) flip(at, bit);
  }
}

TEST_F(ExtFilesystemTest, MutationsNeverCrash) {
  test::SeededRandom random(5);
  for (const Layout& layout :
       {Layout{"a", "2M", {"-t", "ext2", "-b", "1024", "-g", "512"}},
        Layout{"b", "2M", {"-t", "ext4", "-b", "4096"}},
        Layout{"c", "2M", {"-O", "bigalloc,extent,^has_journal", "-C", "16384", "-b", "1024"}}}) {
    const std::vector<uint8_t> sound =
        test::ReadFile<std::vector<uint8_t>>(Make(layout.name, layout.size, layout.options));
    ASSERT_OK(AnswerOf(sound));
    for (int i = 0; i < 500; ++i) {
      std::vector<uint8_t> bytes = sound;
      for (uint64_t count = 1 + random() % 4; count > 0; --count) {
        const size_t at = random() % 2 == 0 ? 1024 + random() % 0x180 : 1024 + random() % 8192;
        bytes[at] = random() % 2 == 0 ? static_cast<uint8_t>(random())
                                      : static_cast<uint8_t>(bytes[at] ^ 1u << (random() % 8));
      }
      const auto answer = AnswerOf(bytes);
      EXPECT_TRUE(answer.ok() || !answer.status().message().empty())
          << layout.name << ", mutation " << i << ": an error without a message, "
          << answer.status();
    }
  }
}

}  // namespace ext_filesystem_test
}  // namespace cbt
