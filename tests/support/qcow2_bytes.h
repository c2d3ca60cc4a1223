// Handmade qcow2 images, for what qemu would not write.
#ifndef CBT_TESTS_SUPPORT_QCOW2_BYTES_H_
#define CBT_TESTS_SUPPORT_QCOW2_BYTES_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace cbt::test {

// An image with clusters of 512 bytes and a volume of 100 clusters: an L1 table in cluster 3, its
// L2 tables (64 entries each) in clusters 4 and 5. Clusters 8 to 39 hold data.
class Qcow2Bytes {
 public:
  static constexpr uint64_t kCluster = 512;
  static constexpr uint64_t kSize = 100 * kCluster;
  static constexpr uint64_t kSnapshots = 6 * kCluster;
  static constexpr uint64_t kDirectory = 7 * kCluster;
  static constexpr uint64_t kL1 = 3 * kCluster;
  static constexpr uint64_t kCopied = uint64_t{1} << 63;
  static constexpr uint64_t kCompressed = uint64_t{1} << 62;

  Qcow2Bytes() : bytes_(40 * kCluster, 0) {
    Put(0, 4, 0x514649fb);
    Put(4, 4, 3);
    Put(20, 4, 9);
    Put(24, 8, kSize);
    Put(36, 4, 2);
    Put(40, 8, kL1);
    Put(48, 8, kCluster);
    Put(56, 4, 1);
    Put(96, 4, 4);
    Put(100, 4, 104);
    Put(kCluster, 8, 2 * kCluster);
    Put(kL1, 8, 4 * kCluster | kCopied);
    Put(kL1 + 8, 8, 5 * kCluster | kCopied);
  }

  // A big-endian number.
  Qcow2Bytes& Put(uint64_t offset, unsigned size, uint64_t value) {
    if (bytes_.size() < offset + size) bytes_.resize(offset + size);
    for (unsigned i = 0; i < size; ++i) {
      bytes_[offset + i] = static_cast<uint8_t>(value >> 8 * (size - 1 - i));
    }
    return *this;
  }
  Qcow2Bytes& Put(uint64_t offset, const std::string& text) {
    for (char c : text) Put(offset++, 1, static_cast<uint8_t>(c));
    return *this;
  }

  // L2 entry `cluster`.
  Qcow2Bytes& Entry(uint64_t cluster, uint64_t entry) {
    return Put(4 * kCluster + 8 * cluster, 8, entry);
  }

  // A backing file name, and its format as a header extension unless empty.
  Qcow2Bytes& Backing(const std::string& name, const std::string& format) {
    Put(8, 8, 256);
    Put(16, 4, name.size());
    Put(256, name);
    if (format.empty()) return *this;
    Put(extension_, 4, 0xe2792aca);
    Put(extension_ + 4, 4, format.size());
    Put(extension_ + 8, format);
    extension_ += 8 + (format.size() + 7) / 8 * 8;
    return *this;
  }

  // A snapshot table with one entry, whose L1 table is at `l1`.
  Qcow2Bytes& Snapshot(const std::string& id, const std::string& name, uint64_t l1, uint64_t size) {
    const uint64_t at = kSnapshots + snapshot_bytes_;
    Put(at, 8, l1);
    Put(at + 8, 4, 2);
    Put(at + 12, 2, id.size());
    Put(at + 14, 2, name.size());
    Put(at + 36, 4, 16);
    Put(at + 48, 8, size);
    Put(at + 56, id + name);
    snapshot_bytes_ += (56 + id.size() + name.size() + 7) / 8 * 8;
    Put(60, 4, ++snapshots_);
    return Put(64, 8, kSnapshots);
  }

  // A directory with one bitmap of 512-byte blocks: 13 bytes, in one cluster.
  Qcow2Bytes& Bitmap(const std::string& name, uint64_t table, uint64_t entry) {
    Put(88, 8, 1);
    Put(extension_, 4, 0x23852875);
    Put(extension_ + 4, 4, 24);
    Put(extension_ + 8, 4, 1);
    Put(extension_ + 16, 8, (24 + name.size() + 7) / 8 * 8);
    Put(extension_ + 24, 8, kDirectory);
    extension_ += 32;
    Put(kDirectory, 8, table);
    Put(kDirectory + 8, 4, 1);
    Put(kDirectory + 16, 1, 1);
    Put(kDirectory + 17, 1, 9);
    Put(kDirectory + 18, 2, name.size());
    Put(kDirectory + 24, name);
    return Put(table, 8, entry);
  }

  const std::vector<uint8_t>& bytes() const { return bytes_; }
  std::string text() const { return {bytes_.begin(), bytes_.end()}; }

 private:
  std::vector<uint8_t> bytes_;
  uint64_t extension_ = 104;
  uint64_t snapshot_bytes_ = 0;
  uint64_t snapshots_ = 0;
};

// One of each: data, zeros, compressed, absent; a snapshot that shares some of them; a bitmap.
inline Qcow2Bytes BusyQcow2(bool with_backing = false) {
  constexpr uint64_t kCluster = Qcow2Bytes::kCluster;
  constexpr uint64_t kCopied = Qcow2Bytes::kCopied;
  Qcow2Bytes image;
  if (with_backing) image.Backing("base", "raw");
  image.Entry(0, 10 * kCluster | kCopied).Entry(1, 11 * kCluster | kCopied).Entry(2, 1);
  image.Entry(3, 30 * kCluster).Entry(5, Qcow2Bytes::kCompressed | (20 * kCluster + 77));
  image.Entry(6, 21 * kCluster | 1).Entry(63, 12 * kCluster).Entry(64, 13 * kCluster);
  image.Entry(99, 14 * kCluster | kCopied);
  // The snapshot has its own L2 table in cluster 9 and shares the second one.
  image.Snapshot("1", "first", 8 * kCluster, Qcow2Bytes::kSize);
  image.Put(8 * kCluster, 8, 9 * kCluster).Put(8 * kCluster + 8, 8, 5 * kCluster);
  image.Put(9 * kCluster, 8, 10 * kCluster).Put(9 * kCluster + 16, 8, 15 * kCluster);
  image.Put(9 * kCluster + 24, 8, 30 * kCluster).Put(9 * kCluster + 32, 8, 1);
  image.Bitmap("changes", 16 * kCluster, 17 * kCluster);
  image.Put(17 * kCluster, 8, 0x81000000ff000000).Put(17 * kCluster + 8, 8, 0x00000000ff000000);
  return image;
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_QCOW2_BYTES_H_
