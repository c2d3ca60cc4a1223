// Which blobs are read with one request: those that lie close together in a pack.
#ifndef CBT_REPOSITORY_BLOB_RANGES_H_
#define CBT_REPOSITORY_BLOB_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "repository/blob_index.h"

namespace cbt::repository {

// A request has at most so many bytes, unless a single blob has more, and so many blobs.
inline constexpr uint64_t kMaxRangeBytes = uint64_t{8} << 20;
inline constexpr size_t kMaxRangeBlobs = 64;
// Up to so many bytes between two blobs are read along: a further request costs more.
inline constexpr uint64_t kMaxGapBytes = uint64_t{256} << 10;

struct WantedBlob {
  BlobPlace place = {};
  uint32_t number = 0;  // the caller's
};

// Part of a pack.
struct BlobRange {
  uint64_t offset = 0;
  uint64_t length = 0;
  size_t end = 0;  // of its blobs; they begin where those of the range before end
};

// Sorts `blobs` by their places, and cuts them into ranges. Blobs may overlap and occur twice: an
// index is not trusted.
std::vector<BlobRange> JoinNeighbours(std::vector<WantedBlob>& blobs);

// Numbers of blobs in the order in which they are to be read, a group for each request.
class BlobGroups {
 public:
  size_t size() const noexcept { return ends_.size(); }
  std::span<const uint32_t> operator[](size_t group) const noexcept {
    const size_t begin = group == 0 ? 0 : ends_[group - 1];
    return std::span(numbers_).subspan(begin, ends_[group] - begin);
  }

  // Appends the groups of some blobs, those with the lowest numbers first.
  void Add(std::vector<WantedBlob> blobs);

 private:
  std::vector<uint32_t> numbers_;
  std::vector<size_t> ends_;
};

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_BLOB_RANGES_H_
