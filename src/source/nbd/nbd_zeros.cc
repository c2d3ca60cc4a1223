#include "source/nbd/nbd_zeros.h"

#include <algorithm>
#include <utility>

#include "cbt/bridge/nbd_extents.h"

namespace cbt {

absl::StatusOr<std::shared_ptr<const NbdZeros::Window>> NbdZeros::Ask(
    Extent wanted, NbdConnection& connection) const {
  absl::StatusOr<NbdExtents> extents = NbdExtents::For(NbdExtents::kAllocation);
  if (!extents.ok()) return extents.status();
  const uint64_t block = connection.MinimumBlock();
  const uint64_t begin = AlignDown(wanted.offset, block);
  const uint64_t end = std::max(wanted.end(), begin + kWindowBytes);
  const uint64_t length = std::min(BlockCount(end, block) * block, size_) - begin;
  extents->Expect(begin, length);
  if (absl::Status asked = connection.BlockStatus(begin, length, *extents); !asked.ok()) {
    return asked;
  }
  const absl::StatusOr<uint64_t> known = extents->Finish();
  if (!known.ok()) return known.status();
  return std::make_shared<const Window>(Window{{begin, *known - begin}, extents->extents()});
}

std::vector<Extent> NbdZeros::DataIn(Extent wanted, NbdConnection& connection) {
  std::shared_ptr<const Window> window;
  {
    const std::lock_guard lock(mutex_);
    if (!asks_) return {wanted};
    window = window_;
  }
  if (wanted.offset < window->extent.offset || wanted.end() > window->extent.end()) {
    absl::StatusOr<std::shared_ptr<const Window>> asked = Ask(wanted, connection);
    const std::lock_guard lock(mutex_);
    if (!asked.ok()) {
      asks_ = false;
      return {wanted};
    }
    window = *std::move(asked);
    window_ = window;
  }
  std::vector<Extent> parts;
  const auto add = [&](uint64_t begin, uint64_t end) {
    begin = std::max(begin, wanted.offset);
    end = std::min(end, wanted.end());
    if (begin >= end) return;
    if (!parts.empty() && begin < parts.back().end() + kMinRunBytes) {
      parts.back().length = end - parts.back().offset;
    } else {
      parts.push_back({begin, end - begin});
    }
  };
  for (const Extent extent : window->data) add(extent.offset, extent.end());
  // What the server's answer left out.
  add(window->extent.end(), wanted.end());
  return parts;
}

}  // namespace cbt
