#include "repository/scrypt.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "repository/parallel.h"
#include "repository/scrypt_levels.h"

#define CBT_SCRYPT_NAMESPACE scrypt_base
#include "repository/scrypt_lanes_inl.h"

namespace cbt::repository {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

struct Free {
  void operator()(void* memory) const noexcept { std::free(memory); }
};

// How many lanes go side by side at a level.
size_t WidthOf([[maybe_unused]] SimdLevel level) {
#ifdef CBT_HAVE_SCRYPT_LEVELS
  if (level == SimdLevel::kAvx512) return 4;
  if (level == SimdLevel::kAvx2) return 2;
#endif
  return 1;
}

void MixLanesAt([[maybe_unused]] SimdLevel level, [[maybe_unused]] size_t count, uint8_t* lanes,
                uint64_t n, size_t r, void* memory) {
#ifdef CBT_HAVE_SCRYPT_LEVELS
  if (level == SimdLevel::kAvx512) return MixLanesAvx512(count, lanes, n, r, memory);
  if (level == SimdLevel::kAvx2) return MixLanesAvx2(count, lanes, n, r, memory);
#endif
  scrypt_base::MixLanes<1>(lanes, n, r, memory);
}

// Lanes that are mixed side by side.
struct Group {
  uint64_t first = 0;
  size_t lanes = 0;
};

bool Pbkdf2(std::string_view password, std::span<const uint8_t> salt, std::span<uint8_t> out) {
  return PKCS5_PBKDF2_HMAC(password.data(), static_cast<int>(password.size()), salt.data(),
                           static_cast<int>(salt.size()), 1, EVP_sha256(),
                           static_cast<int>(out.size()), out.data()) == 1;
}

}  // namespace

absl::Status Scrypt(std::string_view password, std::span<const uint8_t> salt,
                    const ScryptCost& cost, SimdLevel level, std::span<uint8_t> out) {
  const auto lane_bytes = static_cast<size_t>(128 * cost.r);
  const auto memory_bytes = static_cast<size_t>((cost.n + 2) * lane_bytes);
  std::vector<uint8_t> lanes(lane_bytes * static_cast<size_t>(cost.p));
  if (!Pbkdf2(password, salt, lanes)) return absl::InternalError("OpenSSL has no HMAC-SHA-256");
  size_t width = WidthOf(level);
  while (width > 1 && width * memory_bytes > cost.max_bytes) width /= 2;
  std::vector<Group> groups;
  for (uint64_t lane = 0; lane < cost.p; lane += groups.back().lanes) {
    while (width > cost.p - lane) width /= 2;
    groups.push_back({lane, width});
  }
  // As many threads as have room: the largest groups come first.
  const size_t cores = std::max(std::thread::hardware_concurrency(), 1U);
  size_t threads = 0;
  for (uint64_t bytes = 0; threads < std::min(groups.size(), cores); ++threads) {
    bytes += groups[threads].lanes * memory_bytes;
    if (threads > 0 && bytes > cost.max_bytes) break;
  }
  const absl::Status mixed = ParallelFor(groups.size(), threads, {}, [&](size_t i) -> absl::Status {
    const Group& group = groups[i];
    const size_t bytes = group.lanes * memory_bytes;
    const size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    const std::unique_ptr<void, Free> memory(std::aligned_alloc(kHugePage, rounded));
    if (memory == nullptr) return absl::ResourceExhaustedError("no memory for scrypt");
    // It is read at random: with small pages, much of the time goes to finding them.
    ::madvise(memory.get(), rounded, MADV_HUGEPAGE);
    MixLanesAt(level, group.lanes, lanes.data() + group.first * lane_bytes, cost.n,
               static_cast<size_t>(cost.r), memory.get());
    OPENSSL_cleanse(memory.get(), bytes);
    return absl::OkStatus();
  });
  const bool derived = mixed.ok() && Pbkdf2(password, lanes, out);
  OPENSSL_cleanse(lanes.data(), lanes.size());
  if (!mixed.ok()) return mixed;
  return derived ? absl::OkStatus() : absl::InternalError("OpenSSL has no HMAC-SHA-256");
}

}  // namespace cbt::repository
