// Untrusted bytes through every decoder of a repository: an error, or a value that stays the same
// when it is written and read again. The last byte chooses the decoder.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/support/check.h"
#include "repository/compression.h"
#include "repository/config.h"
#include "repository/crypto.h"
#include "repository/index_file.h"
#include "repository/key_file.h"
#include "repository/lock.h"
#include "repository/pack.h"
#include "repository/snapshot.h"
#include "repository/tree.h"

namespace {

using namespace cbt::repository;  // NOLINT(google-build-using-namespace)

constexpr size_t kMaxPlain = size_t{1} << 20;
constexpr size_t kMaxContent = 1000;

absl::StatusOr<std::vector<IndexedPack>> Packs(std::string_view json) {
  std::vector<IndexedPack> packs;
  std::vector<Id> supersedes;
  const absl::Status decoded = DecodeIndex(json, supersedes, [&](const IndexedPack& pack) {
    CBT_FUZZ_CHECK(!pack.blobs.empty());
    packs.push_back(pack);
    return absl::OkStatus();
  });
  if (!decoded.ok()) return decoded;
  return packs;
}

void TryIndex(std::string_view json) {
  const absl::StatusOr<std::vector<IndexedPack>> packs = Packs(json);
  if (!packs.ok()) return;
  for (const IndexedPack& pack : *packs) {
    for (const PackedBlob& blob : pack.blobs) CBT_FUZZ_CHECK(blob.length >= kSealBytes);
  }
  const std::string text = EncodeIndex(*packs);
  const absl::StatusOr<std::vector<IndexedPack>> again = Packs(text);
  CBT_FUZZ_CHECK(again.ok());
  CBT_FUZZ_CHECK(EncodeIndex(*again) == text);
}

void TryTree(std::string_view json) {
  const absl::Time time = absl::UnixEpoch();
  const absl::Status decoded = DecodeTree(json, kMaxContent, [&](TreeNode& node) {
    CBT_FUZZ_CHECK(node.content.size() <= kMaxContent);
    const std::string text = EncodeFileTree(node, time);
    CBT_FUZZ_CHECK(DecodeTree(text, kMaxContent, [&](TreeNode& again) {
                     CBT_FUZZ_CHECK(again.content == node.content && again.size == node.size);
                     return absl::OkStatus();
                   }).ok());
    return absl::OkStatus();
  });
  CBT_FUZZ_CHECK(decoded.ok() || absl::IsDataLoss(decoded) || absl::IsResourceExhausted(decoded));
}

void TryPack(std::span<const uint8_t> header) {
  uint64_t body = 0;
  // The first four bytes say how long the body is.
  for (size_t i = 0; i < 4 && !header.empty(); ++i, header = header.subspan(1)) {
    body = body << 8 | header.front();
  }
  const absl::StatusOr<std::vector<PackedBlob>> blobs = DecodePackHeader(header, body);
  if (!blobs.ok()) return;
  uint64_t end = 0;
  for (const PackedBlob& blob : *blobs) {
    CBT_FUZZ_CHECK(blob.offset == end && blob.length >= kSealBytes);
    end += blob.length;
  }
  CBT_FUZZ_CHECK(end == body);
  const std::vector<uint8_t> again = EncodePackHeader(*blobs);
  CBT_FUZZ_CHECK(std::vector<uint8_t>(header.begin(), header.end()) == again);
}

void TryFiles(std::string_view json) {
  if (const absl::StatusOr<Config> config = DecodeConfig(json); config.ok()) {
    const absl::StatusOr<Config> again = DecodeConfig(EncodeConfig(*config));
    CBT_FUZZ_CHECK(again.ok() && again->polynomial == config->polynomial);
  }
  if (const absl::StatusOr<Snapshot> snapshot = DecodeSnapshot(json); snapshot.ok()) {
    const absl::StatusOr<Snapshot> again = DecodeSnapshot(EncodeSnapshot(*snapshot));
    CBT_FUZZ_CHECK(again.ok() && again->tree == snapshot->tree);
  }
  if (const absl::StatusOr<LockFile> lock = DecodeLock(json); lock.ok()) {
    const absl::StatusOr<LockFile> again = DecodeLock(EncodeLock(*lock));
    CBT_FUZZ_CHECK(again.ok() && again->exclusive == lock->exclusive);
  }
  // Its scrypt is not run: that is slow on purpose.
  DecodeKeyFile(json).IgnoreError();
}

void TryFrame(std::span<const uint8_t> frame) {
  const absl::StatusOr<std::vector<uint8_t>> plain = DecompressUpTo(frame, kMaxPlain);
  if (!plain.ok()) return;
  CBT_FUZZ_CHECK(plain->size() <= kMaxPlain);
  const absl::StatusOr<std::vector<uint8_t>> packed = Compress(*plain, 1);
  CBT_FUZZ_CHECK(packed.ok());
  const absl::StatusOr<std::vector<uint8_t>> again = DecompressExactly(*packed, plain->size());
  CBT_FUZZ_CHECK(again.ok() && *again == *plain);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const uint8_t> bytes(data, size - 1);
  const std::string_view text(reinterpret_cast<const char*>(data), size - 1);
  switch (data[size - 1] % 5) {
    case 0:
      TryIndex(text);
      break;
    case 1:
      TryTree(text);
      break;
    case 2:
      TryPack(bytes);
      break;
    case 3:
      TryFiles(text);
      break;
    default:
      TryFrame(bytes);
      break;
  }
  return 0;
}
