// States of random chains, against a model that locates every byte.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "cbt/source/qcow2.h"
#include "tests/support/cursors.h"
#include "tests/support/qcow2_bytes.h"
#include "tests/support/qcow2_files.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt {
namespace qcow2_chain_test {

using reference::ByteSet;
using reference::Ranges;
using test::Drain;
using test::DrainFrom;
using test::MemoryImage;
using test::Qcow2Bytes;

constexpr uint64_t kCluster = Qcow2Bytes::kCluster;
constexpr uint64_t kClusters = 100;
constexpr uint64_t kPage = test::kHoleBytes;

// One state's volume as one file stores it: level 2 entries as written.
struct Volume {
  uint64_t size = 0;
  std::vector<uint64_t> entries;
};

// A file of the model: qcow2 with an active state and one snapshot, or raw.
struct File {
  bool raw = false;
  Volume active;
  Volume snapshot;
  std::vector<bool> holes;  // by page of a raw file
  int backing = -1;
};

// The location of a byte: zeros, or a file, and a kind and number in it.
struct Where {
  int file = -1;
  bool compressed = false;
  uint64_t number = 0;
  friend bool operator==(const Where&, const Where&) = default;
};

class Model {
 public:
  explicit Model(std::mt19937_64& random) {
    for (int i = 0; i < 5; ++i) {
      File file;
      file.raw = i == 0;
      file.active.size =
          random() % 4 == 0 ? kClusters * kCluster : random() % (kClusters * kCluster);
      file.backing = i > 0 && random() % 5 != 0 ? static_cast<int>(random() % uint64_t(i)) : -1;
      file.snapshot.size = random() % 2 == 0 ? file.active.size : random() % (kClusters * kCluster);
      for (uint64_t page = 0; page * kPage < kClusters * kCluster; ++page) {
        file.holes.push_back(random() % 2 == 0);
      }
      for (uint64_t k = 0; k < kClusters; ++k) {
        file.active.entries.push_back(AnyEntry(k, random));
        // Mostly shared, as snapshots are.
        const bool shared = random() % 3 != 0;
        file.snapshot.entries.push_back(shared ? file.active.entries[k] & ~Qcow2Bytes::kCopied
                                               : AnyEntry(k, random));
      }
      // The second table may be shared too.
      second_shared_.push_back(random() % 2 == 0);
      if (second_shared_.back()) {
        for (uint64_t k = 64; k < kClusters; ++k) {
          file.snapshot.entries[k] = file.active.entries[k];
        }
      }
      files_.push_back(std::move(file));
    }
  }

  void Write(test::Qcow2Files& files) const {
    for (size_t i = 0; i < files_.size(); ++i) {
      const File& file = files_[i];
      if (file.raw) {
        auto raw = std::make_unique<MemoryImage>(file.active.size);
        for (uint64_t page = 0; page * kPage < file.active.size; ++page) {
          const std::vector<uint8_t> bytes(std::min(kPage, file.active.size - page * kPage), 1);
          if (!file.holes[page]) raw->Write(page * kPage, bytes.data(), bytes.size());
        }
        files.Add(std::to_string(i), std::move(raw));
        continue;
      }
      Qcow2Bytes image;
      image.Put(24, 8, file.active.size);
      if (file.backing >= 0) {
        image.Backing(std::to_string(file.backing), file.backing == 0 ? "raw" : "qcow2");
      }
      image.Snapshot("s", "", 8 * kCluster, file.snapshot.size);
      image.Put(8 * kCluster, 8, 9 * kCluster);
      image.Put(8 * kCluster + 8, 8, (second_shared_[i] ? 5 : 10) * kCluster);
      for (uint64_t k = 0; k < kClusters; ++k) {
        image.Entry(k, file.active.entries[k]);
        image.Put(9 * kCluster + 8 * k, 8, file.snapshot.entries[k]);
      }
      files.Add(std::to_string(i), image.bytes());
    }
  }

  size_t files() const { return files_.size(); }

  // Locates byte `at` of a file's active state or snapshot: in the file itself if `deep` is false,
  // else anywhere in the chain. nullopt if it is absent.
  std::optional<Where> Find(int index, bool snapshot, uint64_t at, bool deep) const {
    for (; index >= 0; index = files_[uint64_t(index)].backing, snapshot = false) {
      const File& file = files_[uint64_t(index)];
      const Volume& volume = snapshot ? file.snapshot : file.active;
      if (at >= volume.size) return Where{};
      if (file.raw) {
        if (file.holes[at / kPage]) return Where{};
        return Where{index, false, at};
      }
      const uint64_t entry = volume.entries[at / kCluster] & ~Qcow2Bytes::kCopied;
      if ((entry & Qcow2Bytes::kCompressed) != 0) return Where{index, true, entry};
      if ((entry & 1) != 0) return Where{};
      if (entry != 0) return Where{index, false, entry + at % kCluster};
      if (!deep) return std::nullopt;
    }
    return std::nullopt;
  }

  uint64_t Size(int index, bool snapshot) const {
    const File& file = files_[uint64_t(index)];
    return snapshot ? file.snapshot.size : file.active.size;
  }

 private:
  static uint64_t AnyEntry(uint64_t cluster, std::mt19937_64& random) {
    const uint64_t host = (random() % 2 == 0 ? 12 + cluster % 28 : 12 + random() % 28) * kCluster;
    switch (random() % 8) {
      case 0:
        return 1;
      case 1:
        return host | 1;
      case 2:
        return Qcow2Bytes::kCompressed | (host + random() % 3 * 100);
      case 3:
        return host;
      case 4:
        return host | Qcow2Bytes::kCopied;
      default:
        return 0;
    }
  }

  std::vector<File> files_;
  std::vector<bool> second_shared_;
};

void ExpectAnswer(const absl::StatusOr<std::unique_ptr<ExtentCursor>>& cursor,
                  const ByteSet& expected, std::mt19937_64& random) {
  ASSERT_OK(cursor);
  ASSERT_EQ((*cursor)->capacity(), expected.size());
  const Ranges all = reference::RunsOf(expected);
  const auto answer = Drain(**cursor);
  ASSERT_OK(answer);
  ASSERT_EQ(*answer, all);
  for (int i = 0; i < 5; ++i) {
    const uint64_t offset = random() % (expected.size() + 1);
    const auto rest = DrainFrom(**cursor, offset, 1 + random() % 5);
    ASSERT_OK(rest);
    const uint64_t from =
        offset == expected.size() ? offset : AlignDown(offset, (*cursor)->granularity());
    ASSERT_EQ(*rest, reference::CutAt(all, from)) << "from " << offset;
  }
}

TEST(Qcow2ChainTest, IsWhatTheModelSays) {
  test::SeededRandom random(11);
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(absl::StrCat("round ", round));
    const Model model(random);
    test::Qcow2Files files;
    model.Write(files);
    struct State {
      int file;
      bool snapshot;
      Qcow2State state;
    };
    std::vector<State> states;
    for (size_t i = 1; i < model.files(); ++i) {
      for (const bool snapshot : {false, true}) {
        // Each state is opened as its own image.
        const auto image = files.Open(std::to_string(i));
        ASSERT_OK(image);
        Qcow2State state = {*image, std::nullopt};
        if (snapshot) state.snapshot = std::string("s");
        states.push_back({static_cast<int>(i), snapshot, state});
      }
    }
    for (const State& target : states) {
      const uint64_t size = model.Size(target.file, target.snapshot);
      ByteSet allocated(size);
      ByteSet layer(size);
      std::vector<Where> places(size);
      for (uint64_t at = 0; at < size; ++at) {
        places[at] = model.Find(target.file, target.snapshot, at, true).value_or(Where{});
        allocated[at] = places[at].file >= 0;
        layer[at] = model.Find(target.file, target.snapshot, at, false).has_value();
      }
      ExpectAnswer(MakeQcow2AllocationCursor(target.state), allocated, random);
      ExpectAnswer(MakeQcow2LayerCursor(target.state), layer, random);
      for (const State& base : states) {
        if (random() % 3 != 0) continue;
        SCOPED_TRACE(testing::Message() << base.file << base.snapshot << " against " << target.file
                                        << target.snapshot);
        ByteSet changed(size);
        for (uint64_t at = 0; at < size; ++at) {
          // Past its end, a state reads as zeros.
          changed[at] =
              !(model.Find(base.file, base.snapshot, at, true).value_or(Where{}) == places[at]);
        }
        ExpectAnswer(MakeQcow2DeltaCursor(base.state, target.state), changed, random);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace qcow2_chain_test
}  // namespace cbt
