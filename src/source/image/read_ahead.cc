#include "source/image/read_ahead.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>

#include "cbt/units.h"

namespace cbt {
namespace {

// The kernel ignores what a hint asks for past the device's own read-ahead, which is this by
// default.
constexpr uint64_t kHintBytes = 128 * kKiB;

// In a file of tiny ranges, looking for them costs more than it hides.
constexpr int kRangesPerHint = 4;

// False for files that are read around the page cache, such as those of FUSE file systems with
// direct_io: what is fetched there is fetched once more by the read. They can't be mapped either.
bool HasPageCache(const Image& image) noexcept {
  if (image.size() == 0) return false;
  void* const page = ::mmap(nullptr, 1, PROT_READ, MAP_SHARED, image.descriptor(), 0);
  if (page == MAP_FAILED) return false;
  ::munmap(page, 1);
  return true;
}

const Image* IfCached(const std::shared_ptr<const Image>& image) noexcept {
  return image != nullptr && HasPageCache(*image) ? image.get() : nullptr;
}

// How often the calling thread has waited for something; 0 if the system does not count it.
long WaitsOfThread() noexcept {
  rusage usage{};
  return ::getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_nvcsw : 0;
}

}  // namespace

ReadAhead::ReadAhead(const ImagePair& pair)
    : base_{IfCached(pair.base), DataWalk(pair.base.get(), pair.skip_holes)},
      target_{IfCached(pair.target), DataWalk(pair.target.get(), pair.skip_holes)} {}

void ReadAhead::Ask(uint64_t begin, uint64_t end) {
  while (begin < end) {
    const uint64_t next = std::min(end, AlignDown(begin, kHintBytes) + kHintBytes);
    AskSide(base_, begin, next);
    AskSide(target_, begin, next);
    begin = next;
  }
}

void ReadAhead::AskSide(Side& side, uint64_t begin, uint64_t end) {
  for (int i = 0; i < kRangesPerHint && begin < end && side.image != nullptr; ++i) {
    if (!side.walk.MoveTo(begin).ok()) {
      side.image = nullptr;
      return;
    }
    const uint64_t from = std::max(begin, side.walk.begin());
    const uint64_t until = std::min(end, side.walk.end());
    if (from >= until) return;
    if (::posix_fadvise(side.image->descriptor(), static_cast<off_t>(from),
                        static_cast<off_t>(until - from), POSIX_FADV_WILLNEED) != 0) {
      side.image = nullptr;
    }
    begin = until;
  }
}

WaitWatch::WaitWatch(std::atomic<bool>* cold) noexcept : cold_(cold) {
  if (Looks()) waits_ = WaitsOfThread();
}

void WaitWatch::Update() noexcept {
  if (Looks() && WaitsOfThread() != waits_) cold_->store(true, std::memory_order_relaxed);
}

bool WaitWatch::Looks() const noexcept {
  return cold_ != nullptr && !cold_->load(std::memory_order_relaxed);
}

}  // namespace cbt
