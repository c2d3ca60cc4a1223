// Request bytes from anybody through the decoder: an error, or a request that encodes to bytes
// which decode to the same again (secrets apart: nobody may read them out).
#include <cstddef>
#include <cstdint>
#include <string>

#include "check.h"
#include "rpc/contract.h"

namespace {

void Decode(const cbt::rpc::MethodContract& method, std::span<const uint8_t> bytes) {
  auto request = cbt::rpc::DecodeRequest(method, bytes);
  if (!request.ok() || !cbt::rpc::CheckRequest(method, *request).ok()) return;
  CBT_FUZZ_CHECK(!request->target_snapshot_id.empty());
  CBT_FUZZ_CHECK(request->starting_offset >= 0 && request->max_results >= 0);
  request->secrets = cbt::Secrets();
  const std::string encoded = cbt::rpc::EncodeRequest(method, *request);
  const auto again = cbt::rpc::DecodeRequest(
      method, {reinterpret_cast<const uint8_t*>(encoded.data()), encoded.size()});
  CBT_FUZZ_CHECK(again.ok());
  CBT_FUZZ_CHECK(
      again->base_snapshot_id == request->base_snapshot_id &&
      again->target_snapshot_id == request->target_snapshot_id &&
      again->starting_offset == request->starting_offset &&
      again->max_results == request->max_results && again->name_space == request->name_space &&
      again->volume_id == request->volume_id && again->page_token == request->page_token &&
      again->token.Equals(request->token.Reveal()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const cbt::rpc::Contract* contract :
       {&cbt::rpc::kCsiContract, &cbt::rpc::kKubernetesContract, &cbt::rpc::kSessionContract,
        &cbt::rpc::kPagedContract}) {
    Decode(contract->allocated, {data, size});
    Decode(contract->delta, {data, size});
  }
  return 0;
}
