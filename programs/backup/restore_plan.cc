#include "programs/backup/restore_plan.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "cbt/extent.h"

namespace cbt::backup {

absl::StatusOr<std::vector<uint32_t>> FindMissing(const VolumeContent& wanted,
                                                  const HeldContent& held) {
  const VolumeContent& other = held.snapshot;
  uint64_t known = std::min(other.size, held.target_bytes);
  if (held.written != nullptr) known = std::min(known, held.written->capacity());

  std::vector<bool> missing(wanted.blobs.size(), true);
  for (size_t i = 0, j = 0; i < wanted.blobs.size(); ++i) {
    while (j < other.blobs.size() && other.offsets[j] < wanted.offsets[i]) ++j;
    if (j == other.blobs.size() || wanted.offsets[i + 1] > known) break;
    missing[i] = other.offsets[j] != wanted.offsets[i] || other.blobs[j] != wanted.blobs[i] ||
                 other.LengthOf(j) != wanted.LengthOf(i);
  }
  if (held.written != nullptr) {
    const absl::Status read = ForEachBatch(*held.written, [&](const ExtentBatch& batch) {
      for (size_t k = 0; k < batch.size(); ++k) {
        const Extent extent = batch[k];
        // The blob with the first byte, and all up to the last.
        const auto first =
            std::upper_bound(wanted.offsets.begin(), wanted.offsets.end(), extent.offset);
        auto blob = static_cast<size_t>(first - wanted.offsets.begin());
        if (blob > 0) --blob;
        for (; blob < missing.size() && wanted.offsets[blob] < extent.end(); ++blob) {
          missing[blob] = true;
        }
      }
      return absl::OkStatus();
    });
    if (!read.ok()) return read;
  }
  std::vector<uint32_t> blobs;
  for (size_t i = 0; i < missing.size(); ++i) {
    if (missing[i]) blobs.push_back(static_cast<uint32_t>(i));
  }
  return blobs;
}

absl::StatusOr<std::optional<uint32_t>> FindDifferent(const VolumeContent& content,
                                                      std::span<const uint32_t> numbers,
                                                      const ReadBytes& read, size_t samples) {
  if (numbers.empty()) return std::nullopt;
  // In a volume all blobs but the last one have the same length.
  const repository::Id zero = repository::Id::Of(
      std::vector<uint8_t>(static_cast<size_t>(content.LengthOf(numbers.front()))));
  std::vector<uint32_t> with_data;
  std::vector<uint32_t> zeros;
  for (const uint32_t i : numbers) (content.blobs[i] == zero ? zeros : with_data).push_back(i);
  const size_t of_data = std::min(with_data.size(), samples - std::min(zeros.size(), samples / 4));
  std::vector<uint32_t> chosen;
  std::mt19937_64 random(std::random_device{}());
  std::ranges::sample(with_data, std::back_inserter(chosen), static_cast<ptrdiff_t>(of_data),
                      random);
  std::ranges::sample(zeros, std::back_inserter(chosen), static_cast<ptrdiff_t>(samples - of_data),
                      random);
  for (const uint32_t i : chosen) {
    std::vector<uint8_t> bytes(static_cast<size_t>(content.LengthOf(i)));
    if (absl::Status done = read(content.offsets[i], bytes); !done.ok()) return done;
    if (repository::Id::Of(bytes) != content.blobs[i]) return i;
  }
  return std::nullopt;
}

absl::Status CheckHeld(const VolumeContent& wanted, std::span<const uint32_t> missing,
                       CopyOutput& target, size_t samples) {
  std::vector<uint32_t> others;
  for (uint32_t i = 0; i < wanted.blobs.size(); ++i) {
    if (!missing.empty() && missing.front() == i) {
      missing = missing.subspan(1);
    } else if (wanted.LengthOf(i) > 0 && wanted.LengthOf(i) <= repository::kMaxDataBytes) {
      others.push_back(i);
    }
  }
  const absl::StatusOr<std::optional<uint32_t>> different = FindDifferent(
      wanted, others,
      [&target](uint64_t offset, std::span<uint8_t> out) { return target.Read(offset, out); },
      samples);
  if (!different.ok()) return different.status();
  if (!different->has_value()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the target holds other data than the snapshot at byte_offset ",
                   wanted.offsets[**different], ", and nothing says that it was written"));
}

}  // namespace cbt::backup
