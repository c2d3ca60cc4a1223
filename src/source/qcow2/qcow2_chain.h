// Locates the bytes of a state in the files of its chain.
#ifndef CBT_SOURCE_QCOW2_QCOW2_CHAIN_H_
#define CBT_SOURCE_QCOW2_QCOW2_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "source/qcow2/qcow2_tables.h"

namespace cbt {

// The tables of the active state or of a snapshot, checked.
// Errors: INVALID_ARGUMENT without an image; NOT_FOUND, DATA_LOSS.
absl::StatusOr<Qcow2Tables> FindQcow2Tables(const Qcow2State& state);

// A position in a state. Belongs to one thread.
class ChainWalk {
 public:
  // The placement from an offset up to `end`.
  struct Place {
    enum class Kind : uint8_t {
      kZero,  // zeros, for any reason
      kData,  // as Placement
      kCompressed,
      kBelow,   // in the layers that were not searched
      kUnknown  // in a backing file that was not opened
    };
    Kind kind = Kind::kZero;
    size_t layer = 0;  // kData, kCompressed: where
    uint64_t host = 0;
    uint64_t end = 0;
  };

  // `tables`: FindQcow2Tables() of the state.
  ChainWalk(std::shared_ptr<const Qcow2Image> image, const Qcow2Tables& tables, SegmentRule rule);

  // The placement at `offset` (bytes, < size()) in the first `layers` files of the chain, 0 ..
  // depth().
  absl::Status Resolve(uint64_t offset, size_t layers, Place& place);

  uint64_t size() const noexcept { return layers_.front().walk.size(); }
  size_t depth() const noexcept { return layers_.size(); }
  const Qcow2Layer& layer(size_t index) const noexcept { return image_->parts().layers[index]; }
  const Qcow2Tables& tables(size_t index) const noexcept { return layers_[index].tables; }
  TableWalk& walk(size_t index) noexcept { return layers_[index].walk; }
  bool cut() const noexcept { return image_->parts().cut; }

  uint64_t work() const noexcept;
  absl::Status CheckUnchanged() const;

 private:
  struct Layer {
    Qcow2Tables tables;
    TableWalk walk;
    // The last result of the walk, for [begin, segment.end).
    uint64_t begin = 0;
    Segment segment;
  };

  const std::shared_ptr<const Qcow2Image> image_;
  std::deque<Layer> layers_;  // a deque: walks must not move
  uint64_t work_ = 0;
};

// The number of files at the ends of both chains that are the same, read in the same way: whatever
// neither chain has above them reads the same in both. 0 if it is unknown what lies below them.
size_t CommonLayers(const ChainWalk& a, const ChainWalk& b);

}  // namespace cbt

#endif  // CBT_SOURCE_QCOW2_QCOW2_CHAIN_H_
