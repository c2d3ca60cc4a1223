#include "repository/blob_ranges.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace cbt::repository {

std::vector<BlobRange> JoinNeighbours(std::vector<WantedBlob>& blobs) {
  std::sort(blobs.begin(), blobs.end(), [](const WantedBlob& a, const WantedBlob& b) {
    return std::tie(a.place.pack, a.place.blob.offset, a.number) <
           std::tie(b.place.pack, b.place.blob.offset, b.number);
  });
  std::vector<BlobRange> ranges;
  size_t first = 0;  // of the last range's blobs
  for (size_t i = 0; i < blobs.size(); ++i) {
    const PackedBlob& blob = blobs[i].place.blob;
    const uint64_t end = uint64_t{blob.offset} + blob.length;
    if (!ranges.empty()) {
      BlobRange& last = ranges.back();
      const uint64_t last_end = last.offset + last.length;
      const uint64_t joined_end = std::max(last_end, end);
      if (blobs[i].place.pack == blobs[first].place.pack &&
          blob.offset <= last_end + kMaxGapBytes && joined_end - last.offset <= kMaxRangeBytes &&
          i - first < kMaxRangeBlobs) {
        last.length = joined_end - last.offset;
        last.end = i + 1;
        continue;
      }
    }
    ranges.push_back({blob.offset, blob.length, i + 1});
    first = i;
  }
  return ranges;
}

void BlobGroups::Add(std::vector<WantedBlob> blobs) {
  const std::vector<BlobRange> ranges = JoinNeighbours(blobs);
  std::vector<std::vector<uint32_t>> groups(ranges.size());
  size_t begin = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    for (; begin < ranges[i].end; ++begin) groups[i].push_back(blobs[begin].number);
    std::sort(groups[i].begin(), groups[i].end());
  }
  // A file that is written roughly in order has fewer pieces on the disk.
  std::sort(groups.begin(), groups.end());
  for (const std::vector<uint32_t>& group : groups) {
    numbers_.insert(numbers_.end(), group.begin(), group.end());
    ends_.push_back(numbers_.size());
  }
}

}  // namespace cbt::repository
