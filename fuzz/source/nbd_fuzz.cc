// Arbitrary replies to a block status request: rejected, or extents that are in order, inside the
// request and complete up to the returned offset.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "cbt/bridge/nbd_extents.h"
#include "fuzz/support/check.h"

namespace {

// Reads numbers from the front of the input, zeros past its end.
template <typename T>
T Number(const uint8_t*& data, size_t& size) {
  T value{};
  const size_t count = size < sizeof value ? size : sizeof value;
  std::memcpy(&value, data, count);
  data += count;
  size -= count;
  return value;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const char* const contexts[] = {"base:allocation", "qemu:dirty-bitmap:b",
                                  "qemu:allocation-depth"};
  const auto mode = Number<uint8_t>(data, size);
  const auto deepest = Number<uint8_t>(data, size);
  const uint64_t offset = Number<uint64_t>(data, size) >> (mode & 0x3f);
  const uint64_t length = Number<uint64_t>(data, size) >> (mode & 0x1f);
  const char* const context = contexts[deepest % 3];
  auto extents = cbt::NbdExtents::For(context, 1u + deepest);
  CBT_FUZZ_CHECK(extents.ok());
  extents->Expect(offset, length);
  std::vector<uint32_t> entries(size / sizeof(uint32_t) + 1);
  std::memcpy(entries.data(), data, size);
  int error = 0;
  if (mode % 2 == 0) {
    static_cast<void>(cbt::NbdExtents::Callback(&*extents, context, offset, entries.data(),
                                                entries.size() - (mode >> 7), &error));
  } else {
    struct Entry {
      uint64_t length;
      uint64_t flags;
    };
    std::vector<Entry> wide(size / sizeof(Entry));
    if (!wide.empty()) std::memcpy(wide.data(), data, wide.size() * sizeof(Entry));
    static_cast<void>(cbt::NbdExtents::CallbackLong(&*extents, context, offset, wide.data(),
                                                    wide.size(), &error));
  }
  const auto known = extents->Finish();
  CBT_FUZZ_CHECK(known.ok() == (error == 0) || length == 0 || offset > cbt::kMaxCapacity ||
                 length > cbt::kMaxCapacity - offset);
  if (!known.ok()) return 0;
  CBT_FUZZ_CHECK(*known > offset && *known - offset <= length);
  CBT_FUZZ_CHECK(extents->extents().size() <= cbt::NbdExtents::kMaxExtents);
  uint64_t end = offset;
  bool first = true;
  for (const cbt::Extent& extent : extents->extents()) {
    CBT_FUZZ_CHECK(extent.length > 0 && (first ? extent.offset >= end : extent.offset > end));
    end = extent.end();
    first = false;
  }
  CBT_FUZZ_CHECK(end <= *known);
  return 0;
}
