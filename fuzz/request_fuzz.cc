// Request bytes from anybody through the decoder: an error, or a request that encodes to bytes
// which decode to the same again (secrets apart: nobody may read them out).
#include <cstddef>
#include <cstdint>
#include <string>

#include "check.h"
#include "rpc/contract.h"

namespace {

void Decode(const cbt::rpc::MethodContract& method, std::span<const uint8_t> bytes) {
  const auto request = cbt::rpc::DecodeRequest(method, bytes);
  if (!request.ok() || !cbt::rpc::CheckRequest(method, *request).ok()) return;
  CBT_FUZZ_CHECK(!request->target_snapshot_id.empty());
  CBT_FUZZ_CHECK(request->starting_offset >= 0 && request->max_results >= 0);
  const std::string* base =
      request->base_snapshot_id.has_value() ? &*request->base_snapshot_id : nullptr;
  const std::string encoded = cbt::rpc::EncodeRequest(
      method, base, request->target_snapshot_id, static_cast<uint64_t>(request->starting_offset),
      request->max_results, {});
  const auto again = cbt::rpc::DecodeRequest(
      method, {reinterpret_cast<const uint8_t*>(encoded.data()), encoded.size()});
  CBT_FUZZ_CHECK(again.ok());
  CBT_FUZZ_CHECK(again->base_snapshot_id == request->base_snapshot_id &&
                 again->target_snapshot_id == request->target_snapshot_id &&
                 again->starting_offset == request->starting_offset &&
                 again->max_results == request->max_results);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Decode(cbt::rpc::kCsiContract.allocated, {data, size});
  Decode(cbt::rpc::kCsiContract.delta, {data, size});
  return 0;
}
