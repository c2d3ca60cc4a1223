// Untrusted bytes as an increment of qcow2: what it holds is read, or refused, with bounded memory.
// And what is written from any history is read back as it was.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cbt/memory.h"
#include "cbt/source/qcow2.h"
#include "fuzz/support/check.h"
#include "source/overlay/cluster_codec.h"
#include "source/overlay/overlay_input.h"
#include "source/overlay/overlay_writer.h"

namespace {

using Bytes = std::vector<uint8_t>;

std::shared_ptr<const cbt::Image> ImageOf(std::span<const uint8_t> bytes) {
  const int descriptor = memfd_create("fuzz", MFD_CLOEXEC);
  CBT_FUZZ_CHECK(descriptor >= 0);
  CBT_FUZZ_CHECK(pwrite(descriptor, bytes.data(), bytes.size(), 0) ==
                 static_cast<ssize_t>(bytes.size()));
  auto image = cbt::Image::FromDescriptor(descriptor, "fuzz");
  CBT_FUZZ_CHECK(image.ok());
  return *std::move(image);
}

// Reads what an increment holds, as far as a few calls go.
void ReadOverlay(std::span<const uint8_t> bytes, Bytes* restored) {
  const auto image = cbt::Qcow2Image::FromImage(ImageOf(bytes), "", {.follow_backing = false});
  CBT_FUZZ_CHECK(restored == nullptr || image.ok());
  if (!image.ok()) return;
  const auto input = cbt::MakeOverlayInput(*image);
  const auto cursor = cbt::MakeQcow2LayerCursor({*image, std::nullopt});
  CBT_FUZZ_CHECK(restored == nullptr || (input.ok() && cursor.ok()));
  if (!input.ok() || !cursor.ok()) return;
  cbt::ExtentBatch batch(16);
  Bytes out;
  for (int calls = 0; restored != nullptr || calls < 4; ++calls) {
    const auto step = (*cursor)->Next(batch);
    CBT_FUZZ_CHECK(restored == nullptr || step.ok());
    if (!step.ok()) return;
    for (size_t i = 0; i < batch.size(); ++i) {
      constexpr uint64_t kMost = 1 << 18;
      const uint64_t length =
          restored != nullptr ? batch[i].length : std::min(batch[i].length, kMost);
      out.assign(static_cast<size_t>(length), 0xee);
      const absl::Status read = (*input)->Read(batch[i].offset, out);
      CBT_FUZZ_CHECK(read.code() != absl::StatusCode::kInternal);
      CBT_FUZZ_CHECK(restored == nullptr || read.ok());
      if (restored != nullptr) {
        std::copy(out.begin(), out.end(),
                  restored->begin() + static_cast<ptrdiff_t>(batch[i].offset));
      }
    }
    if (*step == cbt::Step::kComplete) return;
  }
}

class Memory final : public cbt::OverlayOutput {
 public:
  bool seekable() const override { return true; }
  absl::Status Append(std::span<const uint8_t> out) override {
    bytes.insert(bytes.end(), out.begin(), out.end());
    return absl::OkStatus();
  }
  absl::Status AppendZeros(uint64_t size) override {
    bytes.resize(bytes.size() + size);
    return absl::OkStatus();
  }
  absl::Status WriteHeader(std::span<const uint8_t> out) override {
    std::copy(out.begin(), out.end(), bytes.begin());
    return absl::OkStatus();
  }
  Bytes bytes;
};

// A history from pairs of bytes: how far to go, how much to change and to what.
void WriteOverlay(const uint8_t* data, size_t size) {
  const unsigned bits = 9 + data[0] % 6;
  const uint64_t volume = uint64_t{data[1]} * 512;
  Bytes target(volume, 1);
  const Bytes base = target;
  std::vector<cbt::Extent> changes;
  uint64_t at = 0;
  for (size_t i = 2; i + 2 < size && at < volume; i += 3) {
    at += uint64_t{data[i]} * 16;
    const uint64_t end = std::min(volume, at + 1 + uint64_t{data[i + 1]} * 64);
    if (at >= end) break;
    for (uint64_t k = at; k < end; ++k) {
      target[k] = data[i + 2] < 128 ? 0 : static_cast<uint8_t>(data[i + 2] * k);
    }
    changes.push_back({at, end - at});
    at = end + 1;
  }
  const auto cursor = cbt::MakeExtentCursor(changes, {.capacity = volume, .granularity = 1});
  CBT_FUZZ_CHECK(cursor.ok());
  cbt::OverlayOptions options = {.backing_name = "base", .cluster_size = uint64_t{1} << bits};
  options.find_zeros = (data[0] & 64) != 0;
  options.compress = (data[0] & 128) != 0 && cbt::LoadClusterCodec().ok();
  Memory output;
  const auto written =
      cbt::WriteOverlay(**cursor, *cbt::MakeCopyInput(ImageOf(target)), output, options);
  CBT_FUZZ_CHECK(written.ok() && written->file_bytes == output.bytes.size());
  Bytes restored = base;
  ReadOverlay(output.bytes, &restored);
  CBT_FUZZ_CHECK(restored == target);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  if (data[0] % 3 == 0) {
    WriteOverlay(data + 1, size - 1);
  } else if (data[0] % 3 == 1) {
    if (!cbt::LoadClusterCodec().ok()) return 0;
    Bytes cluster(size_t{512} << (data[1] % 8));
    const absl::Status done = cbt::DecompressCluster({data + 2, size - 2}, cluster);
    CBT_FUZZ_CHECK(done.ok() || absl::IsDataLoss(done) || absl::IsResourceExhausted(done));
  } else {
    ReadOverlay({data + 1, size - 1}, nullptr);
  }
  return 0;
}
