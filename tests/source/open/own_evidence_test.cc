// What an input says of itself counts, beside its name and what the user says of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cbt/source/dense_bitmap.h"
#include "cbt/source/open.h"
#include "cbt/units.h"
#include "map/map_limit.h"
#include "tests/source/support/partclone.h"
#include "tests/support/cursors.h"
#include "tests/support/files.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

// Of the address sanitizer, if the library that is tested has it.
extern "C" void __asan_init() __attribute__((weak));  // NOLINT(bugprone-reserved-identifier)

namespace cbt {
namespace own_evidence_test {

using absl::StatusCode;
using reference::Ranges;
using test::PartcloneOptions;
using test::ValueOf;
using test::WritePartclone;
using testing::HasSubstr;

class OwnEvidenceTest : public testing::Test {
 protected:
  absl::StatusOr<Ranges> Read(const std::string& name, const std::string& content,
                              const std::string& spec = {}, uint64_t capacity = 0) {
    dir_.Write(name, content);
    SourceOptions options;
    if (!spec.empty()) options.spec = ValueOf(ParseSourceSpec(spec));
    if (capacity > 0) options.capacity = capacity;
    options.block_size = 512;
    absl::StatusOr<OpenedSource> source = OpenSource(dir_ / name, options);
    if (!source.ok()) return source.status();
    return test::Drain(*source->cursor);
  }

  const test::TempDir dir_;
};

TEST_F(OwnEvidenceTest, SBPartcloneSaysItsGeometryItself) {
  EXPECT_EQ(ValueOf(Read("image", WritePartclone("\x0f"), "partclone")), (Ranges{{0, 4 * 4096}}));
  // By its name, and by its content where it can't be a volume.
  EXPECT_EQ(ValueOf(Read("image.partclone", WritePartclone("\x81"))),
            (Ranges{{0, 4096}, {7 * 4096, 4096}}));
  EXPECT_EQ(ValueOf(Read("image", WritePartclone("\x81"))), (Ranges{{0, 4096}, {7 * 4096, 4096}}));
  // Blocks of 1 KiB, and a device that ends after the file system.
  const PartcloneOptions small = {.block_size = 1024, .blocks = 12, .device_bytes = 20 * 1024};
  EXPECT_EQ(ValueOf(Read("image", WritePartclone(std::string("\x01\0", 2), small), "partclone")),
            (Ranges{{0, 1024}, {12 * 1024, 8 * 1024}}));
  // The last block is cut by the device's end.
  const PartcloneOptions odd = {.block_size = 4096, .blocks = 8, .device_bytes = 7 * 4096 + 512};
  EXPECT_EQ(ValueOf(Read("image", WritePartclone("\x80", odd), "partclone")),
            (Ranges{{7 * 4096, 512}}));
  EXPECT_EQ(ValueOf(Read("image", WritePartclone("", {.bitmap_mode = 0}), "partclone")),
            (Ranges{{0, 8 * 4096}}));
}

TEST_F(OwnEvidenceTest, SBNumbersThatContradictPartclonesHeaderAreRefused) {
  const std::string layout = "bitmap:granularity=4096,header=110";
  EXPECT_EQ(ValueOf(Read("image", WritePartclone("\x0f"), layout, 8 * 4096)),
            (Ranges{{0, 4 * 4096}}));
  const struct {
    const char* what;
    PartcloneOptions own;
    std::string spec;
    uint64_t capacity;
  } cases[] = {
      {"smaller blocks", {.block_size = 1024, .blocks = 32}, layout, 8 * 4096},
      {"fewer blocks", {.blocks = 16, .device_bytes = 16 * 4096}, layout, 8 * 4096},
      {"more blocks", {}, layout, 9 * 4096},
      {"another header", {}, "bitmap:granularity=4096,header=109", 8 * 4096},
      {"no header", {}, "bitmap:granularity=4096", 8 * 4096},
      {"another bit order", {}, layout + ",order=msb", 8 * 4096},
      {"inverted", {}, layout + ",set=same", 8 * 4096},
      {"a later bit", {}, layout + ",first-bit=1", 8 * 4096},
  };
  for (const auto& [what, own, spec, capacity] : cases) {
    const std::string image = WritePartclone(std::string("\x0f\0\0\0", 4), own);
    for (const bool base64 : {false, true}) {
      const absl::Status status = Read("image", base64 ? absl::Base64Escape(image) : image,
                                       base64 ? spec + ",base64" : spec, capacity)
                                      .status();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << what << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("--from partclone")) << what;
    }
  }
  // Format 0001 has a byte for each block.
  for (const std::string& spec : {layout, std::string("partclone")}) {
    const absl::Status status = Read("image", WritePartclone("\x0f", {.version = "0001"}), spec,
                                     spec == layout ? 8 * 4096 : 0)
                                    .status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status;
  }
}

TEST_F(OwnEvidenceTest, SBEveryFlippedBitOfAPartcloneHeaderIsFound) {
  const std::string sound = WritePartclone("\x0f\xf0", {.blocks = 16, .device_bytes = 16 * 4096});
  for (size_t at = 0; at < sound.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = sound;
      flipped[at] = static_cast<char>(flipped[at] ^ (1 << bit));
      const auto stream = MakeMemoryStream(std::move(flipped), "image");
      EXPECT_FALSE(ReadPartclone(*stream).ok()) << at << " bit " << bit;
    }
  }
  for (size_t size = 0; size < sound.size(); ++size) {
    const auto stream = MakeMemoryStream(sound.substr(0, size), "image");
    EXPECT_FALSE(ReadPartclone(*stream).ok()) << size;
  }
  const std::string contradiction = WritePartclone("\x0f", {.blocks = 9, .device_bytes = 8 * 4096});
  EXPECT_EQ(Read("image", contradiction, "partclone").status().code(), StatusCode::kDataLoss);
}

TEST_F(OwnEvidenceTest, SCADamagedBeginningUnderATellingNameIsNoVolume) {
  const std::string damaged(8192, '\x01');
  for (const char* name :
       {"a.qcow2",   "a.QCOW2", "a.cbm",    "a.diff",  "a.rbd", "a.stream", "a.btrfs",
        "a.roaring", "a.json",  "a.ndjson", "a.jsonl", "a.csv", "a.xml",    "a.partclone",
        "a.pcl",     "a.vmdk",  "a.vhd",    "a.vhdx",  "a.vdi", "a.qed",    "a.gz",
        "a.xz",      "a.zst",   "a.bz2",    "a.lz4"}) {
    const absl::Status status = Read(name, damaged).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--from image")) << name;
    EXPECT_EQ(ValueOf(Read(name, damaged, "image")), (Ranges{{0, 8192}})) << name;
  }
  for (const char* name : {"a", "a.img", "a.raw", "a.2024", ".json.d/a"}) {
    EXPECT_EQ(ValueOf(Read(name, damaged)), (Ranges{{0, 8192}})) << name;
  }
  // One known format under the name of another.
  const std::string list = R"({"BlockSize":524288,"VolumeSize":1,"Blocks":[{"BlockIndex":1}]})";
  ASSERT_OK(Read("a.json", list));
  for (const char* name : {"a.qcow2", "a.xml", "a.csv"}) {
    const absl::Status status = Read(name, list).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--from ebs")) << name;
  }
}

// A base64 text of white space, or a bitmap of a sparse file, costs no more than its set bits.
TEST_F(OwnEvidenceTest, SFABitmapIsDecodedPieceByPiece) {
  constexpr uint64_t kBits = uint64_t{1} << 31;  // 256 MiB of bits
  std::string text = absl::Base64Escape(std::string(3 * kMiB, '\0'));
  class Repeated final : public ByteStream {
   public:
    Repeated(std::string text, uint64_t bytes)
        : ByteStream("repeated"), text_(std::move(text)), left_(bytes) {}

   private:
    absl::StatusOr<size_t> DoRead(std::span<uint8_t> out) override {
      const size_t there = std::min<uint64_t>({out.size(), left_, text_.size() - at_});
      std::copy_n(text_.begin() + static_cast<ptrdiff_t>(at_), there, out.begin());
      at_ = (at_ + there) % text_.size();
      left_ -= there;
      return there;
    }
    const std::string text_;
    uint64_t left_;
    size_t at_ = 0;
  };
  const auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<uint64_t>(usage.ru_maxrss) * kKiB;
  };
  Repeated stream(std::move(text), kBits / 8 / 3 * 4 + 4);
  const uint64_t before = peak();
  ASSERT_OK_AND_ASSIGN(const auto cursor,
                       ReadDenseBitmap(stream, true, {.granularity = 512}, kBits * 512));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), Ranges{});
  // Decoding all of it at once took 600 MiB.
  EXPECT_LT(peak() - before, 32 * kMiB);
}

// Alternating bits, of which a map is as large as the bits themselves.
TEST_F(OwnEvidenceTest, SFTheWorstBitmapKeepsToALimit) {
  constexpr uint64_t kBits = uint64_t{1} << 26;  // 8 MiB of bits
  const std::string bits(kBits / 8, '\x55');
  const auto read = [&bits](uint64_t most) {
    const MapLimit limit(most);
    const auto stream = MakeMemoryStream(bits, "bits");
    return ReadDenseBitmap(*stream, false, {.granularity = 512}, kBits * 512).status();
  };
  EXPECT_OK(read(16 * kMiB));
  const auto peak = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<uint64_t>(usage.ru_maxrss) * kKiB;
  };
  const uint64_t before = peak();
  const absl::Status status = read(2 * kMiB);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("2097152 bytes"));
  // A sanitized library keeps what was freed.
  if (__asan_init == nullptr) {
    EXPECT_LT(peak() - before, 10 * kMiB);
  }
  {
    const MapLimit outer(2 * kMiB);
    EXPECT_EQ(read(16 * kMiB).code(), StatusCode::kResourceExhausted) << "the smallest counts";
  }
  EXPECT_OK(read(kMaxMapBytes)) << "a limit ends with its scope";
}

TEST_F(OwnEvidenceTest, SFBase64InPiecesIsTheSameAsAtOnce) {
  const std::string bytes = "\x01\x80\xff\x10";
  const std::string text = absl::Base64Escape(std::string(7, '\x5a') + bytes);
  const DenseBitmapLayout layout = {.granularity = 512, .header_bytes = 7};
  const auto answer = [&](const std::string& encoded) -> absl::StatusOr<Ranges> {
    const auto stream = MakeMemoryStream(encoded, "bits");
    const auto cursor = ReadDenseBitmap(*stream, true, layout, 32 * 512);
    if (!cursor.ok()) return cursor.status();
    return test::Drain(**cursor);
  };
  const Ranges expected = ValueOf(answer(text));
  EXPECT_EQ(expected, (Ranges{{0, 512}, {15 * 512, 9 * 512}, {28 * 512, 512}}));
  for (size_t at = 0; at <= text.size(); ++at) {
    EXPECT_EQ(ValueOf(answer(text.substr(0, at) + "\r\n \t" + text.substr(at))), expected) << at;
    // What is no digit is an error wherever bits of the volume follow it.
    if (at < 14) {
      for (const char* wrong : {"!", "=", "-", "\x80"}) {
        EXPECT_EQ(answer(text.substr(0, at) + wrong + text.substr(at)).status().code(),
                  StatusCode::kDataLoss)
            << at << wrong;
      }
    }
  }
  EXPECT_FALSE(answer(text.substr(0, 9)).ok());
  EXPECT_FALSE(answer("").ok());
}

}  // namespace own_evidence_test
}  // namespace cbt
