// Reads an overlay by the words of qemu's docs/interop/qcow2, one field after another, and counts
// every reference to a cluster of the file. Shares no code with what it judges.
#ifndef CBT_TESTS_SOURCE_OVERLAY_OVERLAY_ORACLE_H_
#define CBT_TESTS_SOURCE_OVERLAY_OVERLAY_ORACLE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cbt::test {

class OverlayOracle {
 public:
  enum class Kind : unsigned char { kAbsent, kZero, kData, kCompressed };
  struct Cluster {
    Kind kind = Kind::kAbsent;
    uint64_t host = 0;
    uint64_t size = 0;  // of compressed bytes, in whole sectors
  };

  explicit OverlayOracle(const std::vector<uint8_t>& file) : file_(file) {
    EXPECT_EQ(Number(0, 4), 0x514649fbu);
    EXPECT_EQ(Number(4, 4), 3u);
    const uint64_t bits = Number(20, 4);
    cluster = uint64_t{1} << bits;
    size = Number(24, 8);
    for (uint64_t at = Number(8, 8); at < Number(8, 8) + Number(16, 4); ++at) {
      backing += static_cast<char>(file_[at]);
    }
    // The first extension is the format.
    const uint64_t extensions = Number(100, 4);
    EXPECT_EQ(Number(extensions, 4), 0xe2792acau);
    for (uint64_t i = 0; i < Number(extensions + 4, 4); ++i) {
      format += static_cast<char>(file_[extensions + 8 + i]);
    }
    zstd = (Number(72, 8) & 8) != 0;
    EXPECT_EQ(file_.size() % cluster, 0u);
    Refer(0, cluster);
    ReadTables(bits);
    CheckCounts();
  }

  uint64_t cluster = 0;
  uint64_t size = 0;
  std::string backing;
  std::string format;
  bool zstd = false;
  std::vector<Cluster> clusters;

  uint64_t Number(uint64_t at, int bytes) const {
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | file_.at(at + static_cast<uint64_t>(i));
    return value;
  }

 private:
  static constexpr uint64_t kOffset = 0x00fffffffffffe00;

  void ReadTables(uint64_t bits) {
    clusters.resize((size + cluster - 1) / cluster);
    const uint64_t entries = Number(36, 4);
    const uint64_t l1 = Number(40, 8);
    Refer(l1, entries * 8);
    const uint64_t per_table = cluster / 8;
    EXPECT_GE(entries * per_table, clusters.size());
    for (uint64_t i = 0; i < entries; ++i) {
      const uint64_t l1_entry = Number(l1 + 8 * i, 8);
      if (l1_entry == 0) continue;
      EXPECT_EQ(l1_entry >> 63, 1u);
      const uint64_t table = l1_entry & kOffset;
      Refer(table, cluster);
      for (uint64_t k = 0; k < per_table; ++k) {
        const uint64_t entry = Number(table + 8 * k, 8);
        const uint64_t number = i * per_table + k;
        if (entry == 0) continue;
        ASSERT_LT(number, clusters.size());
        clusters[number] = Decode(entry, bits);
      }
    }
  }

  Cluster Decode(uint64_t entry, uint64_t bits) {
    if (entry == 1) return {Kind::kZero};
    if ((entry >> 62 & 1) != 0) {
      EXPECT_EQ(entry >> 63, 0u);
      const uint64_t x = 62 - (bits - 8);
      const uint64_t host = entry & ((uint64_t{1} << x) - 1);
      const uint64_t sectors = ((entry & ~(uint64_t{3} << 62)) >> x) + 1;
      Refer(host, sectors * 512 - host % 512);
      return {Kind::kCompressed, host, sectors * 512 - host % 512};
    }
    EXPECT_EQ(entry & ~kOffset, uint64_t{1} << 63);
    EXPECT_EQ((entry & kOffset) % cluster, 0u);
    Refer(entry & kOffset, cluster);
    return {Kind::kData, entry & kOffset, cluster};
  }

  void Refer(uint64_t offset, uint64_t bytes) {
    EXPECT_LE(offset + bytes, file_.size());
    for (uint64_t i = offset / cluster; i <= (offset + bytes - 1) / cluster; ++i) ++references_[i];
  }

  void CheckCounts() {
    const uint64_t table = Number(48, 8);
    const uint64_t table_clusters = Number(56, 4);
    for (uint64_t i = 0; i < table_clusters; ++i) Refer(table + i * cluster, cluster);
    std::vector<uint64_t> blocks;
    for (uint64_t i = 0; i < table_clusters * cluster / 8; ++i) {
      blocks.push_back(Number(table + 8 * i, 8));
      if (blocks.back() != 0) Refer(blocks.back(), cluster);
    }
    const uint64_t per_block = cluster / 2;
    for (uint64_t i = 0; i < file_.size() / cluster; ++i) {
      ASSERT_LT(i / per_block, blocks.size());
      const uint64_t block = blocks[i / per_block];
      const uint64_t stored = block == 0 ? 0 : Number(block + i % per_block * 2, 2);
      const auto found = references_.find(i);
      ASSERT_EQ(stored, found == references_.end() ? 0 : found->second) << "cluster " << i;
    }
  }

  const std::vector<uint8_t>& file_;
  std::map<uint64_t, uint64_t> references_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SOURCE_OVERLAY_OVERLAY_ORACLE_H_
