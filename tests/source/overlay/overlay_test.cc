// Overlays against an oracle that reads them by qemu's own document, over sizes, clusters and kinds
// of output.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/source/qcow2.h"
#include "source/overlay/cluster_codec.h"
#include "source/overlay/overlay_input.h"
#include "source/overlay/overlay_plan.h"
#include "source/overlay/overlay_writer.h"
#include "tests/source/overlay/overlay_oracle.h"
#include "tests/support/memory_image.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace overlay_test {

using test::MemoryImage;
using test::OverlayOracle;
using test::ValueOf;
using Kind = OverlayOracle::Kind;
using Bytes = std::vector<uint8_t>;

// Memory in place of a file or a pipe.
class MemoryOverlay final : public OverlayOutput {
 public:
  explicit MemoryOverlay(bool seekable) : seekable_(seekable) {}
  bool seekable() const override { return seekable_; }
  absl::Status Append(std::span<const uint8_t> out) override {
    if (bytes.size() + out.size() > full_at) return absl::ResourceExhaustedError("full");
    bytes.insert(bytes.end(), out.begin(), out.end());
    return absl::OkStatus();
  }
  absl::Status AppendZeros(uint64_t size) override { return Append(Bytes(size)); }
  absl::Status WriteHeader(std::span<const uint8_t> out) override {
    EXPECT_TRUE(seekable_);
    std::copy(out.begin(), out.end(), bytes.begin());
    return absl::OkStatus();
  }

  Bytes bytes;
  size_t full_at = ~size_t{0};

 private:
  const bool seekable_;
};

// A volume before and after, its changes, and where the new one has holes.
struct History {
  Bytes base;
  Bytes target;
  std::vector<Extent> changes;
  std::set<size_t> holes;  // numbers of pages

  std::unique_ptr<CopyInput> Input() const {
    return MakeCopyInput(
        MemoryImage(target, [&](size_t page) { return holes.count(page) != 0; }).Open());
  }
  std::unique_ptr<ExtentCursor> Cursor() const {
    return ValueOf(MakeExtentCursor(changes, {.capacity = target.size(), .granularity = 1}));
  }
};

class OverlayTest : public testing::Test {
 protected:
  // Changes of any length at any place; some of them become zeros, and some of these holes.
  History Random(uint64_t size, size_t count) {
    History history{.base = Bytes(size), .target = {}, .changes = {}, .holes = {}};
    for (uint8_t& byte : history.base) byte = static_cast<uint8_t>(random_());
    history.target = history.base;
    uint64_t at = 0;
    for (size_t i = 0; i < count && at < size; ++i) {
      at += 1 + random_() % (2 * size / count + 1);
      if (at >= size) break;
      const uint64_t length = std::min(size - at, 1 + random_() % (2 * size / count + 1));
      history.changes.push_back({at, length});
      const int kind = static_cast<int>(random_() % 4);
      for (uint64_t k = at; k < at + length; ++k) {
        history.target[k] = kind == 0   ? uint8_t{0}
                            : kind == 1 ? uint8_t{7}
                                        : static_cast<uint8_t>(random_());
      }
      if (kind == 0) {
        for (uint64_t page = (at + 4095) / 4096; (page + 1) * 4096 <= at + length; ++page) {
          if (random_() % 4 != 0) history.holes.insert(page);
        }
      }
      at += length;
    }
    return history;
  }

  // What a reader of the overlay sees: the base where the overlay has nothing.
  static void Check(const History& history, const Bytes& file, const OverlayOptions& options) {
    const OverlayOracle oracle(file);
    EXPECT_EQ(oracle.size, history.target.size());
    EXPECT_EQ(oracle.cluster, options.cluster_size);
    EXPECT_EQ(oracle.backing, options.backing_name);
    EXPECT_EQ(oracle.format, options.backing_format);
    std::vector<bool> touched(oracle.clusters.size());
    for (const Extent& change : history.changes) {
      for (uint64_t i = change.offset / oracle.cluster; i * oracle.cluster < change.end(); ++i) {
        touched[i] = true;
      }
    }
    for (size_t i = 0; i < oracle.clusters.size(); ++i) {
      const OverlayOracle::Cluster& found = oracle.clusters[i];
      ASSERT_EQ(found.kind != Kind::kAbsent, touched[i]) << "cluster " << i;
      const uint64_t begin = i * oracle.cluster;
      const uint64_t end = std::min<uint64_t>(begin + oracle.cluster, history.target.size());
      const auto expected = std::span(history.target).subspan(begin, end - begin);
      const bool zero =
          std::all_of(expected.begin(), expected.end(), [](auto b) { return b == 0; });
      switch (found.kind) {
        case Kind::kAbsent:
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(),
                                 history.base.begin() + static_cast<int64_t>(begin)));
          break;
        case Kind::kZero:
          ASSERT_TRUE(zero) << "cluster " << i;
          break;
        case Kind::kData: {
          ASSERT_FALSE(zero && options.find_zeros);
          const uint8_t* const data = file.data() + found.host;
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(), data)) << "cluster " << i;
          // Nothing of the memory that it was written from.
          ASSERT_TRUE(std::all_of(data + expected.size(), data + oracle.cluster,
                                  [](uint8_t b) { return b == 0; }));
          break;
        }
        case Kind::kCompressed: {
          ASSERT_TRUE(options.compress && oracle.zstd);
          Bytes cluster(oracle.cluster);
          ASSERT_OK(DecompressCluster({file.data() + found.host, found.size}, cluster));
          ASSERT_TRUE(std::equal(expected.begin(), expected.end(), cluster.begin()));
          break;
        }
      }
    }
  }

  // The same by this library's reader: what it holds, written over the base.
  static void CheckReader(const History& history, const Bytes& file) {
    const auto image =
        ValueOf(Qcow2Image::FromImage(MemoryImage(file).Open(), "", {.follow_backing = false}));
    const auto cursor = ValueOf(MakeQcow2LayerCursor({image, std::nullopt}));
    const auto input = ValueOf(MakeOverlayInput(image));
    Bytes restored = history.base;
    restored.resize(history.target.size());
    ASSERT_OK(ForEachBatch(*cursor, [&](const ExtentBatch& batch) -> absl::Status {
      for (size_t i = 0; i < batch.size(); ++i) {
        const auto out = std::span(restored).subspan(batch[i].offset, batch[i].length);
        if (absl::Status read = input->Read(batch[i].offset, out); !read.ok()) return read;
      }
      return absl::OkStatus();
    }));
    ASSERT_EQ(restored, history.target);
  }

  test::SeededRandom random_{46};
  const OverlayOptions plain_ = {.backing_name = "monday.img", .cluster_size = 4096};
};

TEST_F(OverlayTest, EverySizeInEveryWay) {
  ThreadPool pool(3);
  const bool codec = LoadClusterCodec().ok();
  for (const uint64_t cluster : {uint64_t{512}, uint64_t{4096}, uint64_t{65536}}) {
    for (const uint64_t size : {uint64_t{512}, cluster, cluster + 512, 3 * cluster - 512,
                                70 * cluster, 131 * cluster + 1024}) {
      for (const size_t count : {size_t{1}, size_t{9}, size_t{200}}) {
        const History history = Random(size, count);
        OverlayOptions options = {.backing_name = "a/monday.img", .cluster_size = cluster};
        options.executor = count == 9 ? &pool : nullptr;
        options.pieces_in_flight = 1 + random_() % 5;
        MemoryOverlay pipe(false);
        ASSERT_OK(WriteOverlay(*history.Cursor(), *history.Input(), pipe, options));
        for (const bool compress : {false, true}) {
          for (const bool find_zeros : {false, true}) {
            if (compress && !codec) continue;
            SCOPED_TRACE(absl::StrCat("cluster ", cluster, " size ", size, " count ", count,
                                      compress ? " compress" : "", find_zeros ? " zeros" : ""));
            options.compress = compress;
            options.find_zeros = find_zeros;
            MemoryOverlay output(true);
            const auto summary = WriteOverlay(*history.Cursor(), *history.Input(), output, options);
            ASSERT_OK(summary);
            EXPECT_EQ(summary->file_bytes, output.bytes.size());
            Check(history, output.bytes, options);
            CheckReader(history, output.bytes);
            if (!compress && !find_zeros) {
              EXPECT_EQ(output.bytes, pipe.bytes);
            }
            if (HasFatalFailure() || HasNonfatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(OverlayTest, HolesAreZerosAndTakeNoSpace) {
  History history{.base = Bytes(1 << 20, 5), .target = Bytes(1 << 20), .changes = {}, .holes = {}};
  history.changes.push_back({0, 1 << 20});
  for (size_t page = 0; page < 256; ++page) history.holes.insert(page);
  MemoryOverlay output(true);
  const auto summary = WriteOverlay(*history.Cursor(), *history.Input(), output, plain_);
  ASSERT_OK(summary);
  EXPECT_EQ(summary->data_bytes, 0u);
  EXPECT_EQ(summary->zero_bytes, uint64_t{1} << 20);
  EXPECT_LT(output.bytes.size(), 100'000u);
  Check(history, output.bytes, plain_);
}

TEST_F(OverlayTest, NoChangesAreAnOverlayToo) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{512}, kMiB}) {
    const History history{
        .base = Bytes(size, 5), .target = Bytes(size, 5), .changes = {}, .holes = {}};
    MemoryOverlay output(true);
    ASSERT_OK(WriteOverlay(*history.Cursor(), *history.Input(), output, plain_));
    Check(history, output.bytes, plain_);
  }
}

// A stream that was cut lacks its tables, so that it can't pass for an increment.
TEST_F(OverlayTest, CutAnywhereIsRefused) {
  const History history = Random(300'032, 20);
  MemoryOverlay pipe(false);
  ASSERT_OK(WriteOverlay(*history.Cursor(), *history.Input(), pipe, plain_));
  for (size_t i = 0; i < 300; ++i) {
    const size_t size = i < 20 ? pipe.bytes.size() - 1 - i : random_() % pipe.bytes.size();
    const Bytes cut(pipe.bytes.begin(), pipe.bytes.begin() + static_cast<int64_t>(size));
    EXPECT_FALSE(Qcow2Image::FromImage(MemoryImage(cut).Open(), "", {.follow_backing = false}).ok())
        << size << " of " << pipe.bytes.size();
  }
}

// A cursor that fails at an offset.
class FailingCursor final : public ExtentCursor {
 public:
  explicit FailingCursor(uint64_t size) : ExtentCursor({.capacity = size, .granularity = 1}) {}

 private:
  absl::Status DoSeek(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<uint64_t> DoNext(ExtentBatch&) override { return absl::AbortedError("changed"); }
};

TEST_F(OverlayTest, WhatFailsLeavesNoHeader) {
  const History history = Random(1 << 20, 30);
  FailingCursor failing(1 << 20);
  MemoryOverlay nothing(true);
  EXPECT_TRUE(absl::IsAborted(WriteOverlay(failing, *history.Input(), nothing, plain_).status()));
  EXPECT_TRUE(nothing.bytes.empty());

  MemoryOverlay whole(true);
  ASSERT_OK(WriteOverlay(*history.Cursor(), *history.Input(), whole, plain_));
  for (int i = 0; i < 30; ++i) {
    MemoryOverlay output(true);
    output.full_at = random_() % whole.bytes.size();
    const auto written = WriteOverlay(*history.Cursor(), *history.Input(), output, plain_);
    EXPECT_TRUE(absl::IsResourceExhausted(written.status()));
    EXPECT_TRUE(output.bytes.empty() || output.bytes[0] == 0);
  }

  std::stop_source stop;
  OverlayOptions options = plain_;
  options.stop = stop.get_token();
  options.on_progress = [&](uint64_t, uint64_t) { stop.request_stop(); };
  MemoryOverlay output(true);
  EXPECT_TRUE(absl::IsCancelled(
      WriteOverlay(*history.Cursor(), *history.Input(), output, options).status()));
  EXPECT_EQ(output.bytes[0], 0);
}

TEST_F(OverlayTest, RefusesWhatCanNotBe) {
  const History history = Random(1 << 20, 3);
  const auto refused = [&](const History& of, OverlayOptions options, bool seekable = true) {
    MemoryOverlay output(seekable);
    const auto written = WriteOverlay(*of.Cursor(), *of.Input(), output, options);
    return absl::IsInvalidArgument(written.status()) && output.bytes.empty();
  };
  OverlayOptions options = plain_;
  options.backing_name = "";
  EXPECT_TRUE(refused(history, options));
  options.backing_name = std::string(1024, 'a');
  EXPECT_TRUE(refused(history, options));
  options.backing_name = std::string(500, 'a');
  options.cluster_size = 512;
  EXPECT_TRUE(refused(history, options));
  options = plain_;
  options.backing_format = "vmdk";
  EXPECT_TRUE(refused(history, options));
  for (const uint64_t cluster : {uint64_t{0}, uint64_t{256}, uint64_t{5000}, 4 * kMiB}) {
    options = plain_;
    options.cluster_size = cluster;
    EXPECT_TRUE(refused(history, options)) << cluster;
  }
  options = plain_;
  options.find_zeros = true;
  EXPECT_TRUE(refused(history, options, false));
  options = plain_;
  options.pieces_in_flight = 0;
  EXPECT_TRUE(refused(history, options));
  EXPECT_TRUE(refused(Random(1000, 3), plain_));  // no whole sectors

  // Data of another size than the changes.
  MemoryOverlay output(true);
  EXPECT_TRUE(absl::IsInvalidArgument(
      WriteOverlay(*history.Cursor(), *Random(2 << 20, 1).Input(), output, plain_).status()));
  // More than 32 MiB of a first-level table.
  EXPECT_FALSE(CheckOverlayShape({.cluster_bits = 9, .size = uint64_t{1} << 40}).ok());
  EXPECT_OK(CheckOverlayShape({.cluster_bits = 16, .size = uint64_t{1} << 46}));
}

TEST_F(OverlayTest, FilesAndPipesAreTold) {
  const History history = Random(1 << 20, 9);
  MemoryOverlay expected(true);
  ASSERT_OK(WriteOverlay(*history.Cursor(), *history.Input(), expected, plain_));
  test::TempDir directory;
  const auto written = [&](int flags) {
    const std::string path = directory / absl::StrCat(flags);
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | flags, 0600);
    const auto output = MakeOverlayOutput(descriptor, "overlay");
    EXPECT_EQ(output->seekable(), (flags & O_APPEND) == 0);
    EXPECT_OK(WriteOverlay(*history.Cursor(), *history.Input(), *output, plain_));
    Bytes bytes(expected.bytes.size() + 1);
    bytes.resize(static_cast<size_t>(::pread(descriptor, bytes.data(), bytes.size(), 0)));
    ::close(descriptor);
    return bytes;
  };
  EXPECT_EQ(written(0), expected.bytes);
  EXPECT_EQ(written(O_APPEND), expected.bytes);
}

// A reader that takes little at a time gets all of it; one that leaves early makes an error.
TEST_F(OverlayTest, PipesAreWrittenToTheirEnd) {
  const History history = Random(4 << 20, 11);
  MemoryOverlay expected(false);
  ASSERT_OK(WriteOverlay(*history.Cursor(), *history.Input(), expected, plain_));
  for (const bool leaves : {false, true}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    Bytes bytes;
    std::thread reader([&] {
      Bytes part(leaves ? 3 : 4999);
      for (ssize_t got = 1; got > 0 && !(leaves && !bytes.empty());) {
        got = ::read(ends[0], part.data(), part.size());
        bytes.insert(bytes.end(), part.begin(), part.begin() + std::max<ssize_t>(got, 0));
      }
      ::close(ends[0]);
    });
    const auto before = std::signal(SIGPIPE, SIG_IGN);
    const auto output = MakeOverlayOutput(ends[1], "overlay");
    const absl::Status written =
        WriteOverlay(*history.Cursor(), *history.Input(), *output, plain_).status();
    ::close(ends[1]);
    reader.join();
    std::signal(SIGPIPE, before);
    EXPECT_EQ(written.ok(), !leaves) << written;
    if (!leaves) {
      EXPECT_EQ(bytes, expected.bytes);
    }
  }
}

TEST_F(OverlayTest, DamagedClustersAreErrors) {
  if (!LoadClusterCodec().ok()) GTEST_SKIP() << "without zstd";
  History history{
      .base = Bytes(1 << 20, 5), .target = Bytes(1 << 20, 6), .changes = {}, .holes = {}};
  history.changes.push_back({0, 4096});
  OverlayOptions options = plain_;
  options.compress = true;
  MemoryOverlay output(true);
  ASSERT_OK(WriteOverlay(*history.Cursor(), *history.Input(), output, options));
  const auto input_of = [](const Bytes& file) {
    return ValueOf(MakeOverlayInput(
        ValueOf(Qcow2Image::FromImage(MemoryImage(file).Open(), "", {.follow_backing = false}))));
  };
  Bytes cluster(4096);
  EXPECT_OK(input_of(output.bytes)->Read(0, cluster));
  EXPECT_EQ(cluster, Bytes(4096, 6));
  // What the overlay does not hold is not zeros.
  EXPECT_TRUE(absl::IsFailedPrecondition(input_of(output.bytes)->Read(4096, cluster)));

  for (size_t i = 0; i < 20; ++i) {
    Bytes damaged = output.bytes;
    damaged[65536 + i % 4] ^= static_cast<uint8_t>(1 + i);
    EXPECT_TRUE(absl::IsDataLoss(input_of(damaged)->Read(0, cluster)));
  }
  Bytes of_zlib = output.bytes;
  of_zlib[104] = 0;
  EXPECT_TRUE(absl::IsUnimplemented(input_of(of_zlib)->Read(0, cluster)));
  Bytes encrypted = output.bytes;
  encrypted[35] = 1;
  const auto image =
      ValueOf(Qcow2Image::FromImage(MemoryImage(encrypted).Open(), "", {.follow_backing = false}));
  EXPECT_TRUE(absl::IsUnimplemented(MakeOverlayInput(image).status()));
}

TEST_F(OverlayTest, FramesOfAnyBytesAreBounded) {
  if (!LoadClusterCodec().ok()) GTEST_SKIP() << "without zstd";
  Bytes cluster(4096);
  for (int i = 0; i < 2000; ++i) {
    Bytes bytes(random_() % 600);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_());
    if (bytes.size() > 4 && i % 2 == 0) {
      const uint8_t magic[] = {0x28, 0xb5, 0x2f, 0xfd};
      std::copy(std::begin(magic), std::end(magic), bytes.begin());
    }
    const absl::Status done = DecompressCluster(bytes, cluster);
    EXPECT_TRUE(done.ok() || absl::IsDataLoss(done));
  }
}

}  // namespace overlay_test
}  // namespace cbt
