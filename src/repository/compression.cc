#include "repository/compression.h"

#include <zstd.h>

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cbt::repository {
namespace {

// What zstd allows by default, 128 MiB.
constexpr int kMaxWindowLog = 27;
constexpr size_t kFirstBytes = 64 * 1024;

struct CompressFree {
  void operator()(ZSTD_CCtx* context) const noexcept { ZSTD_freeCCtx(context); }
};
struct DecompressFree {
  void operator()(ZSTD_DCtx* context) const noexcept { ZSTD_freeDCtx(context); }
};

absl::Status NoMemory() { return absl::ResourceExhaustedError("no memory for zstd"); }

absl::Status Damaged(size_t code) {
  return absl::DataLossError(absl::StrCat("can't be decompressed: ", ZSTD_getErrorName(code)));
}

}  // namespace

absl::StatusOr<std::span<const uint8_t>> CompressInto(std::span<const uint8_t> plain, int level,
                                                      std::vector<uint8_t>& buffer) {
  // Kept by each thread, since a context costs megabytes to make.
  thread_local const std::unique_ptr<ZSTD_CCtx, CompressFree> context(ZSTD_createCCtx());
  if (context == nullptr) return NoMemory();
  const size_t bound = ZSTD_compressBound(plain.size());
  if (buffer.size() < bound) buffer.resize(bound);
  const size_t size = ZSTD_compressCCtx(context.get(), buffer.data(), buffer.size(), plain.data(),
                                        plain.size(), level);
  if (ZSTD_isError(size) != 0) return absl::InternalError(ZSTD_getErrorName(size));
  return std::span<const uint8_t>(buffer).first(size);
}

absl::StatusOr<std::vector<uint8_t>> Compress(std::span<const uint8_t> plain, int level) {
  std::vector<uint8_t> buffer;
  const absl::StatusOr<std::span<const uint8_t>> frame = CompressInto(plain, level, buffer);
  if (!frame.ok()) return frame.status();
  buffer.resize(frame->size());
  return buffer;
}

absl::StatusOr<std::span<const uint8_t>> DecompressInto(std::span<const uint8_t> frame, size_t size,
                                                        std::vector<uint8_t>& buffer) {
  thread_local const std::unique_ptr<ZSTD_DCtx, DecompressFree> context(ZSTD_createDCtx());
  if (context == nullptr) return NoMemory();
  if (buffer.size() < size) buffer.resize(size);
  const size_t done =
      ZSTD_decompressDCtx(context.get(), buffer.data(), size, frame.data(), frame.size());
  if (ZSTD_isError(done) != 0) return Damaged(done);
  if (done != size) {
    return absl::DataLossError(
        absl::StrCat("has ", done, " bytes when decompressed, not the ", size, " of the index"));
  }
  return std::span<const uint8_t>(buffer).first(size);
}

absl::StatusOr<std::vector<uint8_t>> DecompressExactly(std::span<const uint8_t> frame,
                                                       size_t size) {
  std::vector<uint8_t> plain;
  if (absl::Status done = DecompressInto(frame, size, plain).status(); !done.ok()) return done;
  return plain;
}

absl::StatusOr<std::vector<uint8_t>> DecompressUpTo(std::span<const uint8_t> frames, size_t max) {
  const std::unique_ptr<ZSTD_DCtx, DecompressFree> context(ZSTD_createDCtx());
  if (context == nullptr) return NoMemory();
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  std::vector<uint8_t> plain;
  ZSTD_inBuffer in{frames.data(), frames.size(), 0};
  size_t filled = 0;
  size_t left = 1;  // 0 at the end of a frame
  while (in.pos < in.size || left != 0) {
    if (filled == plain.size()) {
      // One byte past the bound shows that there is more.
      if (filled > max) {
        return absl::ResourceExhaustedError(
            absl::StrCat("has more than ", max, " bytes when decompressed"));
      }
      plain.resize(std::min(std::max(2 * plain.size(), kFirstBytes), max + 1));
    }
    ZSTD_outBuffer out{plain.data(), plain.size(), filled};
    const size_t consumed = in.pos;
    left = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(left) != 0) return Damaged(left);
    const bool stuck = in.pos == consumed && out.pos == filled && in.pos == in.size;
    filled = out.pos;
    if (stuck && left != 0) return absl::DataLossError("can't be decompressed: it is cut off");
  }
  if (filled > max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("has more than ", max, " bytes when decompressed"));
  }
  plain.resize(filled);
  return plain;
}

}  // namespace cbt::repository
