#include "source/overlay/cluster_codec.h"

#ifdef CBT_HAVE_LIBZSTD

#include <zstd.h>

#include "base/system_library.h"
#include "cbt/extent.h"

namespace cbt {
namespace {

// The functions in use: a further one needs a line here.
#define CBT_ZSTD_FUNCTIONS(F) \
  F(compressBound)            \
  F(compressCCtx)             \
  F(createCCtx)               \
  F(createDCtx)               \
  F(DCtx_setParameter)        \
  F(decompressStream)         \
  F(freeCCtx)                 \
  F(freeDCtx)                 \
  F(isError)

// Each has its C name without `ZSTD_`, and the type of its declaration in zstd.h.
struct LibZstd {
#define CBT_POINTER(function) decltype(&::ZSTD_##function) function = nullptr;
  CBT_ZSTD_FUNCTIONS(CBT_POINTER)
#undef CBT_POINTER
};

// libzstd is loaded when the first compressed cluster is written or read.
constinit LibZstd zstd_functions;
constinit SystemLibrary zstd_library("libzstd.so.1", "compressed clusters",
                                     "libzstd1 (Debian, Ubuntu) or zstd-libs, libzstd (others)");

const LibZstd& Zstd() noexcept { return zstd_functions; }

// A window of 8 MiB. qemu's frames are of clusters, which have 2 MiB at most.
constexpr int kMaxWindowLog = 23;
constexpr size_t kSectorBytes = 512;

}  // namespace

absl::Status LoadClusterCodec() {
  static constexpr SystemFunction kFunctions[] = {
#define CBT_FUNCTION(function) {"ZSTD_" #function, &zstd_functions.function},
      CBT_ZSTD_FUNCTIONS(CBT_FUNCTION)
#undef CBT_FUNCTION
  };
  return zstd_library.Load(kFunctions);
}

struct ClusterCompressor::State {
  ZSTD_CCtx* context = nullptr;
  int level = 0;
  std::vector<uint8_t> room = {};
};

ClusterCompressor::ClusterCompressor(int level)
    : state_(std::make_unique<State>(State{Zstd().createCCtx(), level})) {}

ClusterCompressor::~ClusterCompressor() { Zstd().freeCCtx(state_->context); }

absl::StatusOr<size_t> ClusterCompressor::Compress(std::span<const uint8_t> cluster,
                                                   std::vector<uint8_t>& out) {
  State& state = *state_;
  if (state.context == nullptr) return absl::ResourceExhaustedError("no memory to compress");
  state.room.resize(Zstd().compressBound(cluster.size()));
  const size_t size = Zstd().compressCCtx(state.context, state.room.data(), state.room.size(),
                                          cluster.data(), cluster.size(), state.level);
  if (Zstd().isError(size) != 0) return absl::ResourceExhaustedError("no memory to compress");
  if (AlignUp(size, kSectorBytes) >= cluster.size()) return size_t{0};
  out.insert(out.end(), state.room.begin(), state.room.begin() + static_cast<ptrdiff_t>(size));
  return size;
}

absl::Status DecompressCluster(std::span<const uint8_t> bytes, std::span<uint8_t> cluster) {
  struct Free {
    void operator()(ZSTD_DCtx* context) const noexcept { Zstd().freeDCtx(context); }
  };
  const std::unique_ptr<ZSTD_DCtx, Free> context(Zstd().createDCtx());
  if (context == nullptr || Zstd().isError(Zstd().DCtx_setParameter(
                                context.get(), ZSTD_d_windowLogMax, kMaxWindowLog)) != 0) {
    return absl::ResourceExhaustedError("no memory to decompress");
  }
  ZSTD_inBuffer in = {bytes.data(), bytes.size(), 0};
  ZSTD_outBuffer out = {cluster.data(), cluster.size(), 0};
  for (;;) {
    const size_t read = in.pos;
    const size_t written = out.pos;
    const size_t left = Zstd().decompressStream(context.get(), &out, &in);
    if (Zstd().isError(left) != 0) return absl::DataLossError("is no frame of zstd");
    if (left == 0) break;
    // It wants more bytes than there are, or has more of them than fit.
    if (in.pos == read && out.pos == written) {
      return absl::DataLossError("is a frame of zstd that is cut or too long");
    }
  }
  if (out.pos != cluster.size()) {
    return absl::DataLossError("is a frame of zstd that is shorter than a cluster");
  }
  return absl::OkStatus();
}

}  // namespace cbt

#else

namespace cbt {

struct ClusterCompressor::State {};

absl::Status LoadClusterCodec() {
  return absl::UnimplementedError("this build has no zstd, which compressed clusters need");
}
ClusterCompressor::ClusterCompressor(int /*level*/) {}
ClusterCompressor::~ClusterCompressor() = default;
absl::StatusOr<size_t> ClusterCompressor::Compress(std::span<const uint8_t> /*cluster*/,
                                                   std::vector<uint8_t>& /*out*/) {
  return LoadClusterCodec();
}
absl::Status DecompressCluster(std::span<const uint8_t> /*bytes*/, std::span<uint8_t> /*cluster*/) {
  return LoadClusterCodec();
}

}  // namespace cbt

#endif  // CBT_HAVE_LIBZSTD
