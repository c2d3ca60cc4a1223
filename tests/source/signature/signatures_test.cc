// Metadata that is sound in itself and was left over from before.
#include "source/signature/signatures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cbt/source/ext_filesystem.h"
#include "cbt/source/open.h"
#include "cbt/source/qcow2.h"
#include "cbt/units.h"
#include "tests/support/child_process.h"
#include "tests/support/cursors.h"
#include "tests/support/files.h"
#include "tests/support/memory_image.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace signatures_test {

using absl::StatusCode;
using test::MemoryImage;
using test::ValueOf;
using testing::HasSubstr;

using Bytes = std::vector<uint8_t>;

void Put(Bytes& to, size_t at, const std::string& text) {
  ASSERT_LE(at + text.size(), to.size());
  std::memcpy(to.data() + at, text.data(), text.size());
}

std::string Little(uint64_t value, size_t width) {
  std::string text;
  for (size_t i = 0; i < width; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
  return text;
}

// The CRC of GPT, bit by bit.
uint32_t Crc32(const std::string& text) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : text) {
    crc ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

// An MBR with one partition of that type, from sector 2048 on.
void PutMbr(Bytes& image, uint8_t type) {
  Put(image, 446, std::string("\0\0\x02\0", 4) + static_cast<char>(type) + "\xff\xff\xff");
  Put(image, 454, Little(2048, 4) + Little(100'000, 4));
  Put(image, 510, "\x55\xaa");
}

// One copy of a GPT with one partition; its table lies beside it, as far as it fits there.
void PutGpt(Bytes& image, size_t sector, bool backup) {
  const uint64_t last = image.size() / sector - 1;
  std::string table(size_t{128} * 128, '\0');
  table.replace(
      0, 48, std::string(16, 'G') + std::string(16, 'u') + Little(4096, 8) + Little(last - 100, 8));
  const uint64_t table_sectors = table.size() / sector;
  const uint64_t own = backup ? last : 1;
  const uint64_t table_at = backup ? last - table_sectors : 2;
  const auto header = [&](uint32_t checksum) {
    return "EFI PART" + Little(0x10000, 4) + Little(92, 4) + Little(checksum, 4) + Little(0, 4) +
           Little(own, 8) + Little(backup ? 1 : last, 8) + Little(table_sectors + 2, 8) +
           Little(last - table_sectors - 1, 8) + std::string(16, 'D') + Little(table_at, 8) +
           Little(128, 4) + Little(128, 4) + Little(Crc32(table), 4);
  };
  Put(image, own * sector, header(Crc32(header(0))));
  Put(image, table_at * sector, table);
}

void PutMd(Bytes& image, uint64_t at) {
  Put(image, at, Little(0xa92b4efc, 4) + Little(1, 4) + Little(0, 4));
  Put(image, at + 144, Little(at / 512, 8));
}

void PutUberblocks(Bytes& image, size_t label) {
  for (size_t i = 0; i < 8; ++i) {
    Put(image, label + 128 * kKiB + i * kKiB, Little(0x00bab10c, 8) + Little(5000, 8));
  }
}

struct Later {
  const char* what;
  const char* type;  // as the error names it
  std::function<void(Bytes&)> write;
};

// What leaves the 1024 bytes of an ext superblock in place.
const Later kLater[] = {
    {"a partition table", "dos at offset 510", [](Bytes& b) { PutMbr(b, 0x83); }},
    {"a protective MBR alone", "PMBR", [](Bytes& b) { PutMbr(b, 0xee); }},
    {"GPT, sectors of 4096 bytes", "gpt at offset 4096",
     [](Bytes& b) {
       PutMbr(b, 0xee);
       PutGpt(b, 4096, false);
       PutGpt(b, 4096, true);
     }},
    {"the copy of a GPT at the end", "gpt", [](Bytes& b) { PutGpt(b, 512, true); }},
    {"the same, sectors of 4096 bytes", "gpt", [](Bytes& b) { PutGpt(b, 4096, true); }},
    {"md 1.1", "linux_raid_member at offset 0", [](Bytes& b) { PutMd(b, 0); }},
    {"md 1.2", "linux_raid_member at offset 4096", [](Bytes& b) { PutMd(b, 4096); }},
    {"md 1.0", "linux_raid_member", [](Bytes& b) { PutMd(b, b.size() - 8192); }},
    {"md 0.90", "linux_raid_member",
     [](Bytes& b) {
       Put(b, b.size() - 65536, Little(0xa92b4efc, 4) + Little(0, 4) + Little(90, 4));
     }},
    {"LVM", "LVM2_member",
     [](Bytes& b) {
       Put(b, 512,
           "LABELONE" + Little(1, 8) + Little(0, 4) + Little(32, 4) + "LVM2 001" +
               std::string(32, 'a'));
     }},
    {"bcache", "bcache at offset 4120",
     [](Bytes& b) {
       Put(b, 4096,
           Little(0, 8) + Little(8, 8) + Little(1, 8) +
               "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81");
     }},
    {"bcachefs", "bcachefs at offset 4120",
     [](Bytes& b) {
       Put(b, 4120, "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef");
     }},
    {"ZFS, the labels in front", "zfs_member", [](Bytes& b) { PutUberblocks(b, 0); }},
    {"ZFS, the labels at the end", "zfs_member",
     [](Bytes& b) { PutUberblocks(b, b.size() - 256 * kKiB); }},
    {"btrfs", "btrfs at offset 65600",
     [](Bytes& b) {
       Put(b, 65536 + 48, Little(65536, 8) + Little(0, 8) + "_BHRfS_M");
       Put(b, 65536 + 0x90, Little(4096, 4) + Little(16384, 4));
     }},
    {"LUKS", "crypto_LUKS at offset 0",
     [](Bytes& b) { Put(b, 0, std::string("LUKS\xba\xbe\0\x01", 8)); }},
    {"ISO 9660", "iso9660",
     [](Bytes& b) {
       Put(b, 32768,
           std::string("\x01"
                       "CD001\x01",
                       7));
       Put(b, 34816,
           std::string("\xff"
                       "CD001\x01",
                       7));
     }},
};

class SignaturesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (absl::IsUnimplemented(FindSignatures(*MemoryImage(4096).Open()).status())) {
      GTEST_SKIP() << "built without libblkid";
    }
  }

  // The bytes of an ext4 file system of 64 MiB.
  Bytes FileSystem() const {
    EXPECT_EQ(test::Run({"mke2fs", "-q", "-F", "-t", "ext4", dir_ / "fs", "64M"}), 0);
    return test::ReadFile<Bytes>(dir_ / "fs");
  }
  static MemoryImage Sparse(const Bytes& bytes) {
    return MemoryImage(bytes, [&](size_t page) {
      const auto* const begin = bytes.data() + page * test::kHoleBytes;
      return std::all_of(begin, begin + test::kHoleBytes, [](uint8_t byte) { return byte == 0; });
    });
  }

  test::TempDir dir_;
};

TEST_F(SignaturesTest, SAAFileSystemFromBeforeIsNoFileSystem) {
  if (test::FindProgram("mke2fs").empty()) GTEST_SKIP() << "no mke2fs";
  const Bytes file_system = FileSystem();
  {
    const MemoryImage image = Sparse(file_system);
    ASSERT_OK(MakeExtAllocationCursor(image.Open()));
  }
  for (const Later& later : kLater) {
    SCOPED_TRACE(later.what);
    Bytes bytes = file_system;
    later.write(bytes);
    const MemoryImage image = Sparse(bytes);
    const absl::Status status = MakeExtAllocationCursor(image.Open()).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(later.type));
    EXPECT_THAT(std::string(status.message()), HasSubstr("ext:other-signatures=ignore"));
    // The user may know better.
    EXPECT_OK(MakeExtAllocationCursor(image.Open(), {.ignore_other_signatures = true}));
  }
}

// A boot loader in front of a file system ends in the bytes of a partition table.
TEST_F(SignaturesTest, ABootSectorIsNoPartitionTable) {
  if (test::FindProgram("mke2fs").empty()) GTEST_SKIP() << "no mke2fs";
  Bytes bytes = FileSystem();
  Put(bytes, 0, "\xeb\x58\x90" + std::string(300, 'x'));
  Put(bytes, 510, "\x55\xaa");
  const MemoryImage image = Sparse(bytes);
  EXPECT_OK(MakeExtAllocationCursor(image.Open()));
}

// The file position belongs to other readers of the image.
TEST_F(SignaturesTest, LookingMovesNothing) {
  const MemoryImage image(kMiB);
  const std::shared_ptr<const Image> opened = image.Open();
  ASSERT_EQ(::lseek(opened->descriptor(), 777, SEEK_SET), 777);
  ASSERT_OK(FindSignatures(*opened));
  EXPECT_EQ(::lseek(opened->descriptor(), 0, SEEK_CUR), 777);
}

// A superblock that says it is the copy in another group: the image begins inside a file system.
TEST_F(SignaturesTest, SAACopyOfASuperblockIsNoBeginning) {
  if (test::FindProgram("mke2fs").empty()) GTEST_SKIP() << "no mke2fs";
  ASSERT_EQ(test::Run({"mke2fs", "-q", "-F", "-t", "ext2", "-b", "1024", dir_ / "fs", "64M"}), 0);
  const Bytes whole = test::ReadFile<Bytes>(dir_ / "fs");
  // Group 1 begins at block 8193 with a copy of the superblock.
  Bytes rest(whole.begin() + 8192 * 1024, whole.end());
  rest.resize(whole.size());
  const MemoryImage image = Sparse(rest);
  const absl::Status status = MakeExtAllocationCursor(image.Open()).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status;
}

// md leaves the first sectors of a disk alone, and with them the header of an image that was there.
TEST_F(SignaturesTest, SAAQcow2HeaderFromBeforeIsNoImage) {
  if (test::FindProgram("qemu-img").empty()) GTEST_SKIP() << "no qemu-img";
  ASSERT_EQ(test::Run({"qemu-img", "create", "-q", "-f", "qcow2", dir_ / "image", "64M"}), 0);
  Bytes bytes = test::ReadFile<Bytes>(dir_ / "image");
  bytes.resize(2 * kMiB);  // libblkid looks for no RAID in less
  {
    // What a guest writes lies in other clusters.
    Bytes harmless = bytes;
    harmless.resize(harmless.size() + 256 * kKiB);
    PutMd(harmless, harmless.size() - 8192);
    const MemoryImage image = Sparse(harmless);
    EXPECT_OK(Qcow2Image::FromImage(image.Open(), "."));
  }
  PutMd(bytes, 4096);
  const MemoryImage image = Sparse(bytes);
  const absl::Status status = Qcow2Image::FromImage(image.Open(), ".").status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("linux_raid_member at offset 4096"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("qcow2:other-signatures=ignore"));
  EXPECT_OK(Qcow2Image::FromImage(image.Open(), ".", {.ignore_other_signatures = true}));
}

}  // namespace signatures_test
}  // namespace cbt
