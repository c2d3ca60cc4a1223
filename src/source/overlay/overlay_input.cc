#include "source/overlay/overlay_input.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "source/overlay/cluster_codec.h"
#include "source/qcow2/qcow2_chain.h"
#include "source/qcow2/qcow2_format.h"

namespace cbt {
namespace {

class OverlayInput final : public CopyInput {
 public:
  OverlayInput(std::shared_ptr<const Qcow2Image> image, const Qcow2Tables& tables)
      : image_(std::move(image)),
        layer_(image_->parts().layers.front()),
        walk_(image_, tables, SegmentRule::kContiguous) {}

  uint64_t size() const override { return walk_.size(); }

  absl::Status Read(uint64_t offset, std::span<uint8_t> out) const override {
    while (!out.empty()) {
      Place place;
      if (absl::Status status = Find(offset, place); !status.ok()) return status;
      const auto part =
          out.first(static_cast<size_t>(std::min<uint64_t>(out.size(), place.end - offset)));
      if (absl::Status status = ReadPlace(place, offset, part); !status.ok()) return status;
      out = out.subspan(part.size());
      offset += part.size();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Extent> FindData(uint64_t offset) const override {
    while (offset < size()) {
      Place place;
      if (absl::Status status = Find(offset, place); !status.ok()) return status;
      if (place.kind != Place::Kind::kZero) return Extent{offset, place.end - offset};
      offset = place.end;
    }
    return Extent{size(), 0};
  }

 private:
  using Place = ChainWalk::Place;

  absl::Status Find(uint64_t offset, Place& place) const {
    const std::lock_guard lock(mutex_);
    return walk_.Resolve(offset, 1, place);
  }

  absl::Status ReadPlace(const Place& place, uint64_t offset, std::span<uint8_t> out) const {
    switch (place.kind) {
      case Place::Kind::kZero:
        std::fill(out.begin(), out.end(), uint8_t{0});
        return absl::OkStatus();
      case Place::Kind::kData:
        return ReadData(place.host, out);
      case Place::Kind::kCompressed:
        return ReadCompressed(place.host, offset, out);
      case Place::Kind::kBelow:
      case Place::Kind::kUnknown:
        break;
    }
    return absl::FailedPreconditionError(
        absl::StrCat("qcow2: ", layer_.file->label(), ": does not hold the volume at ", offset));
  }

  absl::Status ReadData(uint64_t host, std::span<uint8_t> out) const {
    // A cluster that the file's end cuts may be what is left of a longer file.
    if (host > layer_.file->size() || out.size() > layer_.file->size() - host) {
      return Qcow2Broken(*layer_.file, layer_.file->size(), "the file ends in a cluster of data");
    }
    return layer_.file->Read(host, out.size(), out.data());
  }

  absl::Status ReadCompressed(uint64_t descriptor, uint64_t offset, std::span<uint8_t> out) const {
    constexpr uint64_t kSector = 512;
    const Qcow2Header& header = layer_.header;
    if (!header.zstd) {
      return absl::UnimplementedError(absl::StrCat(
          "qcow2: ", layer_.file->label(),
          ": has clusters compressed by zlib; make a copy without (qemu-img convert)"));
    }
    if (absl::Status loaded = LoadClusterCodec(); !loaded.ok()) return loaded;
    const unsigned offset_bits = 62 - (header.cluster_bits - 8);
    const uint64_t host = descriptor & ((uint64_t{1} << offset_bits) - 1);
    const uint64_t more = (descriptor & ((uint64_t{1} << 62) - 1)) >> offset_bits;
    const uint64_t end = std::min((host / kSector + more + 1) * kSector, layer_.file->size());
    if (host >= end) return Qcow2Broken(*layer_.file, host, "a compressed cluster past the end");
    std::vector<uint8_t> bytes(static_cast<size_t>(end - host));
    if (absl::Status read = layer_.file->Read(host, bytes.size(), bytes.data()); !read.ok()) {
      return read;
    }
    std::vector<uint8_t> cluster(static_cast<size_t>(header.cluster_size()));
    if (absl::Status done = DecompressCluster(bytes, cluster); !done.ok()) {
      if (!absl::IsDataLoss(done)) return done;
      return Qcow2Broken(*layer_.file, host, std::string(done.message()));
    }
    std::memcpy(out.data(), cluster.data() + offset % header.cluster_size(), out.size());
    return absl::OkStatus();
  }

  const std::shared_ptr<const Qcow2Image> image_;
  const Qcow2Layer& layer_;
  mutable std::mutex mutex_;
  mutable ChainWalk walk_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CopyInput>> MakeOverlayInput(
    std::shared_ptr<const Qcow2Image> image) {
  const absl::StatusOr<Qcow2Tables> tables = FindQcow2Tables({image, std::nullopt});
  if (!tables.ok()) return tables.status();
  if (!image->has_backing()) {
    return absl::FailedPreconditionError(
        absl::StrCat("qcow2: ", image->label(),
                     ": names no backing file: it is a whole image and no increment"));
  }
  if (image->parts().layers.front().header.encrypted) {
    return absl::UnimplementedError(absl::StrCat("qcow2: ", image->label(), ": is encrypted"));
  }
  return std::make_unique<OverlayInput>(std::move(image), *tables);
}

absl::Status CheckOverlayBase(const Qcow2Image& image, const Image& base) {
  return CheckQcow2Base(image, base);
}

}  // namespace cbt
