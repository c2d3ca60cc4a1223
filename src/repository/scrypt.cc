#include "repository/scrypt.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "repository/parallel.h"

#define CBT_SCRYPT_NAMESPACE scrypt_base
#include "repository/scrypt_lanes_inl.h"

namespace cbt::repository {
namespace {

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

// Memory that goes back to the kernel, which clears what others get. Not in huge pages: they save a
// tenth of the time, and take a multiple of it to find where memory is in pieces.
class Mapping {
 public:
  explicit Mapping(size_t bytes)
      : size_(bytes),
        memory_(
            ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  ~Mapping() {
    if (memory_ != MAP_FAILED) ::munmap(memory_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  void* begin() const noexcept { return memory_ == MAP_FAILED ? nullptr : memory_; }

 private:
  const size_t size_;
  void* const memory_;
};

// How many lanes each thread mixes side by side, of `lanes` in all.
std::vector<size_t> WidthsOf(SimdLevel level, uint64_t lanes, uint64_t memory_bytes,
                             uint64_t max_bytes) {
  const size_t cores = std::max(std::thread::hardware_concurrency(), 1U);
  uint64_t fit = std::max<uint64_t>(max_bytes / memory_bytes, 1);
  std::vector<size_t> widths;
  while (widths.size() < cores && lanes > 0 && fit > 0) {
    size_t width = WidthOf(level);
    while (width > std::min(lanes, fit)) width /= 2;
    widths.push_back(width);
    lanes -= width;
    fit -= width;
  }
  return widths;
}

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
  const std::vector<size_t> widths = WidthsOf(level, cost.p, memory_bytes, cost.max_bytes);
  std::mutex mutex;
  uint64_t next = 0;
  const absl::Status mixed =
      ParallelFor(widths.size(), widths.size(), {}, [&](size_t thread) -> absl::Status {
        const Mapping memory(widths[thread] * memory_bytes);
        if (memory.begin() == nullptr) {
          return absl::ResourceExhaustedError("no memory for scrypt");
        }
        for (;;) {
          size_t width = widths[thread];
          uint64_t first = 0;
          {
            const std::lock_guard lock(mutex);
            if (next == cost.p) return absl::OkStatus();
            while (width > cost.p - next) width /= 2;
            first = next;
            next += width;
          }
          MixLanesAt(level, width, lanes.data() + first * lane_bytes, cost.n,
                     static_cast<size_t>(cost.r), memory.begin());
        }
      });
  const bool derived = mixed.ok() && Pbkdf2(password, lanes, out);
  OPENSSL_cleanse(lanes.data(), lanes.size());
  if (!mixed.ok()) return mixed;
  return derived ? absl::OkStatus() : absl::InternalError("OpenSSL has no HMAC-SHA-256");
}

}  // namespace cbt::repository
