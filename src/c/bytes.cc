#include <memory>
#include <new>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "c/handles.h"
#include "cbt/simd.h"
#include "cbt/version.h"

namespace cbt::c {
namespace {

absl::Status CheckRange(const void* data, uint64_t size) {
  if (data == nullptr && size != 0) return IsNull("data");
  if (size > PTRDIFF_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("size: no memory has ", size, " bytes"));
  }
  return absl::OkStatus();
}

std::span<const uint8_t> Span(const void* data, uint64_t size) {
  return {static_cast<const uint8_t*>(data), static_cast<size_t>(size)};
}

// Calls the caller's function when the last user is gone.
struct Owner {
  Owner() = default;
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() { Release(release, owner); }
  void* owner = nullptr;
  void (*release)(void*) = nullptr;
};

}  // namespace
}  // namespace cbt::c

uint32_t cbt_abi_version(void) noexcept { return CBT_ABI_MAJOR * 65536 + CBT_ABI_MINOR; }

const char* cbt_version_string(void) noexcept { return cbt::kVersion; }

const char* cbt_simd_level(void) noexcept { return cbt::SimdLevelName(cbt::ActiveSimdLevel()); }

cbt_code cbt_bytes_copy(const void* data, uint64_t size, cbt_bytes** bytes,
                        cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (bytes == nullptr) return cbt::c::IsNull("bytes");
    *bytes = nullptr;
    if (absl::Status status = cbt::c::CheckRange(data, size); !status.ok()) return status;
    const std::span<const uint8_t> from = cbt::c::Span(data, size);
    *bytes = new cbt_bytes(std::vector<uint8_t>(from.begin(), from.end()));
    return absl::OkStatus();
  });
}

cbt_code cbt_bytes_own(const void* data, uint64_t size, void* owner, void (*release)(void* owner),
                       cbt_bytes** bytes, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (bytes == nullptr) return cbt::c::IsNull("bytes");
    *bytes = nullptr;
    if (release == nullptr) return cbt::c::IsNull("release");
    if (absl::Status status = cbt::c::CheckRange(data, size); !status.ok()) return status;
    const auto kept = std::make_shared<cbt::c::Owner>();
    *bytes = new cbt_bytes(cbt::SharedBytes(kept, cbt::c::Span(data, size)));
    // From here on nothing fails.
    kept->owner = owner;
    kept->release = release;
    return absl::OkStatus();
  });
}

cbt_code cbt_bytes_borrowed(const void* data, uint64_t size, cbt_bytes** bytes,
                            cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (bytes == nullptr) return cbt::c::IsNull("bytes");
    *bytes = nullptr;
    if (absl::Status status = cbt::c::CheckRange(data, size); !status.ok()) return status;
    *bytes = new cbt_bytes(
        cbt::SharedBytes(std::make_shared<cbt::c::Owner>(), cbt::c::Span(data, size)));
    return absl::OkStatus();
  });
}

const void* cbt_bytes_data_borrowed(const cbt_bytes* bytes) noexcept {
  return cbt::c::Usable(bytes) ? bytes->bytes.data() : nullptr;
}

uint64_t cbt_bytes_size(const cbt_bytes* bytes) noexcept {
  return cbt::c::Usable(bytes) ? bytes->bytes.size() : 0;
}

void cbt_bytes_free(cbt_bytes* bytes) noexcept { cbt::c::Free(bytes); }
