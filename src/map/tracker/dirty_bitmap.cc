#include "map/tracker/dirty_bitmap.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "map/container.h"
#include "map/map_access.h"
#include "map/portable_writer.h"

namespace cbt {
namespace {

// While other threads may read, bits are only ever set. So the order between words does not matter,
// and a word of which every bit is to be set can be overwritten. A thread that finds a bit set
// relies on its container being marked as touched: that is stored before, and released with the
// bit.
void SetBits(uint64_t& word, uint64_t bits) noexcept {
  const std::atomic_ref<uint64_t> shared(word);
  if ((shared.load(std::memory_order_acquire) & bits) != bits) {
    shared.fetch_or(bits, std::memory_order_release);
  }
}

void SetWord(uint64_t& word) noexcept {
  const std::atomic_ref<uint64_t> shared(word);
  if (shared.load(std::memory_order_acquire) != ~uint64_t{0}) {
    shared.store(~uint64_t{0}, std::memory_order_release);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<DirtyBitmap>> DirtyBitmap::Create(uint64_t blocks) {
  const uint64_t containers = (blocks + kContainerBlocks - 1) >> kContainerShift;
  // The containers' bytes follow the words.
  constexpr uint64_t kMost = uint64_t{1} << 46;
  const uint64_t mapped = containers * (kBitsetBytes + 1) + 1;
  void* memory = MAP_FAILED;
  if (mapped < kMost) {
    memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory for the bitmap of ", blocks,
                                                     " blocks; use a coarser granularity"));
  }
  // Marks are scattered: with small pages, each would first wait for a TLB miss.
  ::madvise(memory, static_cast<size_t>(mapped), MADV_HUGEPAGE);
  return std::unique_ptr<DirtyBitmap>(
      new DirtyBitmap(memory, static_cast<size_t>(mapped), containers));
}

DirtyBitmap::DirtyBitmap(void* memory, size_t mapped, uint64_t containers) noexcept
    : memory_(memory),
      mapped_(mapped),
      containers_(containers),
      words_(static_cast<uint64_t*>(memory)),
      touched_(static_cast<uint8_t*>(memory) + containers * kBitsetBytes) {}

DirtyBitmap::~DirtyBitmap() { ::munmap(memory_, mapped_); }

void DirtyBitmap::Mark(uint64_t begin, uint64_t end) noexcept {
  for (uint64_t key = begin >> kContainerShift; key <= (end - 1) >> kContainerShift; ++key) {
    const std::atomic_ref<uint8_t> touched(touched_[key]);
    if (touched.load(std::memory_order_relaxed) == 0) touched.store(1, std::memory_order_relaxed);
  }
  const uint64_t first = begin / 64;
  const uint64_t last = (end - 1) / 64;
  const uint64_t head = ~uint64_t{0} << begin % 64;
  const uint64_t tail = ~uint64_t{0} >> (63 - (end - 1) % 64);
  if (first == last) {
    SetBits(words_[first], head & tail);
    return;
  }
  SetBits(words_[first], head);
  for (uint64_t i = first + 1; i < last; ++i) SetWord(words_[i]);
  SetBits(words_[last], tail);
}

void DirtyBitmap::MarkAll(const ChangeMapView& map) noexcept {
  const PortableIndex& index = *ChangeMapAccess::Index(map);
  for (size_t i = 0; i < index.size(); ++i) {
    const Container container = index.Get(i);
    ContainerWords words;
    CopyInto(container, words);
    std::atomic_ref<uint8_t>(touched_[container.key]).store(1, std::memory_order_relaxed);
    for (size_t k = 0; k < kBitsetWords; ++k) {
      if (words[k] != 0) SetBits(words_[container.key * kBitsetWords + k], words[k]);
    }
  }
}

absl::StatusOr<ChangeMap> DirtyBitmap::ToMap(const VolumeGeometry& geometry) const {
  PortableWriter writer;
  for (uint64_t key = 0; key < containers_; ++key) {
    if (std::atomic_ref<uint8_t>(touched_[key]).load(std::memory_order_relaxed) == 0) continue;
    ContainerWords words;
    for (size_t i = 0; i < kBitsetWords; ++i) {
      words[i] =
          std::atomic_ref<uint64_t>(words_[key * kBitsetWords + i]).load(std::memory_order_relaxed);
    }
    writer.AddWords(key, reinterpret_cast<const uint8_t*>(words.data()));
  }
  return ChangeMapAccess::FromWriter(writer.Finish(), geometry);
}

void DirtyBitmap::Clear() noexcept {
  for (uint64_t key = 0; key < containers_; ++key) {
    if (touched_[key] == 0) continue;
    touched_[key] = 0;
    std::memset(words_ + key * kBitsetWords, 0, kBitsetBytes);
  }
}

}  // namespace cbt
