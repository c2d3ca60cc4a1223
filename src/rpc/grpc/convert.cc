#include "rpc/grpc/convert.h"

#include <grpc/slice.h>
#include <grpcpp/support/slice.h>

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "rpc/contract/status.h"

namespace cbt::rpc {
namespace {

// Copying so little costs less than another owner.
constexpr size_t kMaxCopied = 512;

void Release(void* message) { delete static_cast<absl::Cord*>(message); }

// A slice of `piece`, which is a piece of `message`. gRPC allocates the slice's reference count
// with new, which may throw: until it has taken the owner, this function must have it.
grpc::Slice SliceOf(absl::string_view piece, const absl::Cord& message) {
  if (piece.size() <= kMaxCopied) return {piece.data(), piece.size()};
  auto owner = std::make_unique<absl::Cord>(message);  // a reference
  const grpc_slice slice = grpc_slice_new_with_user_data(const_cast<char*>(piece.data()),
                                                         piece.size(), &Release, owner.get());
  static_cast<void>(owner.release());
  return {slice, grpc::Slice::STEAL_REF};
}

}  // namespace

grpc::ByteBuffer ToByteBuffer(const absl::Cord& message) {
  if (const auto flat = message.TryFlat(); flat.has_value()) {
    const grpc::Slice slice = SliceOf(*flat, message);
    return {&slice, 1};
  }
  std::vector<grpc::Slice> slices;
  for (const absl::string_view piece : message.Chunks()) {
    slices.push_back(SliceOf(piece, message));
  }
  return {slices.data(), slices.size()};
}

absl::Cord ToCord(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  // Fails only for a buffer that was never filled.
  if (!message.Dump(&slices).ok()) return {};
  absl::Cord cord;
  for (const grpc::Slice& slice : slices) {
    const absl::string_view piece(reinterpret_cast<const char*>(slice.begin()), slice.size());
    if (piece.size() <= kMaxCopied) {
      cord.Append(piece);
    } else {
      cord.Append(absl::MakeCordFromExternal(piece, [slice](absl::string_view) {}));
    }
  }
  return cord;
}

bool IsCompressed(const grpc::ByteBuffer& buffer) {
  grpc::Slice whole;
  if (buffer.Length() == 0 || buffer.TrySingleSlice(&whole).ok()) return false;
  std::vector<grpc::Slice> slices;
  return buffer.Dump(&slices).ok() && slices.size() == 1;
}

grpc::Status ToGrpcStatus(const absl::Status& status) noexcept try {
  if (status.ok()) return grpc::Status::OK;
  return {static_cast<grpc::StatusCode>(status.code()),
          std::string(StatusForWire(status).message())};
} catch (const std::bad_alloc&) {
  return {static_cast<grpc::StatusCode>(status.code()), ""};
}

}  // namespace cbt::rpc
