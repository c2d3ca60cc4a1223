// The size of a history's page. browser_test.py checks its contents in a browser.
#include "programs/cbt/history/history_html.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cbt/memory.h"
#include "cbt/units.h"
#include "tests/support/status.h"

namespace cbt::cli {
namespace history_html_test {

using test::ValueOf;

constexpr uint64_t kCapacity = 64 * kTiB;
constexpr uint64_t kGranularity = 4 * kKiB;

// A chain that makes deltas of adjacent snapshots on demand; others must not be read.
class MadeChain final : public ChangeChain {
 public:
  MadeChain(size_t count, size_t extents, std::string prefix)
      : count_(count), extents_(extents), prefix_(std::move(prefix)) {}

  const std::string& volume() const noexcept override { return volume_; }
  uint64_t granularity() const noexcept override { return kGranularity; }
  std::vector<ChainSnapshot> snapshots() const override {
    std::vector<ChainSnapshot> all;
    for (size_t i = 0; i < count_; ++i) {
      all.push_back({absl::StrFormat("%s%06d", prefix_, i), kCapacity});
    }
    std::mt19937 random(3);
    int64_t seconds = 1'767'225'600;
    for (size_t i = 1; i < count_; ++i) {
      seconds += 3600 + static_cast<int64_t>(random() % 300);
      all[i].time = seconds * 1'000'000'000;
    }
    return all;
  }
  bool Contains(std::string_view) const noexcept override { return true; }
  std::vector<uint64_t> MapBytes() const override { return std::vector<uint64_t>(count_); }
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Delta(std::string_view,
                                                      std::string_view target) const override {
    ++deltas;
    std::mt19937_64 random(std::hash<std::string_view>()(target));
    const uint64_t step = 2 * kCapacity / kGranularity / (extents_ + 1);
    std::vector<Extent> list;
    for (uint64_t block = random() % step; block < kCapacity / kGranularity;) {
      const uint64_t length = std::min(1 + random() % 2000, kCapacity / kGranularity - block);
      list.push_back({block * kGranularity, length * kGranularity});
      block += length + 1 + random() % step;
    }
    return MakeExtentCursor(std::move(list), {.capacity = kCapacity, .granularity = kGranularity});
  }
  absl::Status Append(const ChangeMap&, std::optional<int64_t>) override {
    return absl::UnimplementedError("");
  }
  absl::Status Remove(std::string_view) override { return absl::UnimplementedError(""); }
  absl::Status Verify() const override { return absl::OkStatus(); }

  mutable size_t deltas = 0;

 private:
  const std::string volume_ = "volume";
  const size_t count_;
  const size_t extents_;
  const std::string prefix_;
};

struct Made {
  std::string html;
  HistoryPage page;
};

Made Make(const MadeChain& chain) {
  const History history(chain);
  HistoryPage page = ValueOf(ReadHistoryPage(history));
  std::string html = HistoryHtml(history, page);
  return {std::move(html), std::move(page)};
}

TEST(HistoryHtmlTest, TenThousandSnapshotsOf64TiBStayBelow2MB) {
  for (const size_t extents : {8U, 60U}) {
    const MadeChain chain(10'000, extents, "snapshot-7f3c2a9e-");
    const Made made = Make(chain);
    EXPECT_LT(made.html.size(), 2'000'000U) << extents << " extents";
    EXPECT_EQ(chain.deltas, 9'999U)
        << "each delta of adjacent snapshots is read once, and no other";
    const SizeBounds all = made.page.sizes.Between(0, 9999);
    EXPECT_LE(all.least, all.most);
    EXPECT_LE(all.most, kCapacity);
    // Coarser to save room, but exact for adjacent snapshots.
    for (size_t i = 0; i < 9999; i += 101) {
      const SizeBounds bounds = made.page.sizes.Between(i, i + 1);
      EXPECT_EQ(bounds.least, made.page.rows[i].bytes);
      EXPECT_EQ(bounds.most, made.page.rows[i].bytes);
    }
  }
}

TEST(HistoryHtmlTest, WhatFitsIsExact) {
  const Made made = Make(MadeChain(400, 50, "s"));
  EXPECT_NE(made.html.find(",\"exact\":true,"), std::string::npos);
  for (size_t base = 0; base < 400; base += 7) {
    const SizeBounds bounds = made.page.sizes.Between(base, 399);
    EXPECT_EQ(bounds.least, bounds.most);
  }
}

TEST(HistoryHtmlTest, LongNamesLeaveRoomForThePicture) {
  const Made made = Make(MadeChain(3000, 50, std::string(1000, 'n')));
  EXPECT_GT(made.html.size(), 3'000'000U);
  EXPECT_LT(made.html.size(), 3'400'000U);
}

}  // namespace history_html_test
}  // namespace cbt::cli
