// Untrusted bytes through the service's decoders. A request is an error, or encodes to bytes that
// decode to the same request (except secrets). Also pages and page tokens.
#include <cstddef>
#include <cstdint>
#include <string>

#include "cbt/cursor.h"
#include "fuzz/support/check.h"
#include "rpc/client/paged_inbound.h"
#include "rpc/contract/contract.h"
#include "rpc/contract/resumption.h"
#include "rpc/provider/answer.h"

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

// An untrusted page: an error, or blocks with the numbers on the wire.
void DecodeOnePage(std::span<const uint8_t> bytes) {
  cbt::rpc::SnapshotDeltaPage page;
  if (!cbt::rpc::DecodePage(bytes, page).ok()) return;
  CBT_FUZZ_CHECK(page.capacity <= cbt::kMaxCapacity);
  for (size_t i = 0; i < page.tuples.size(); ++i) {
    CBT_FUZZ_CHECK(page.tuples[i].offset <= cbt::kMaxCapacity &&
                   page.tuples[i].length <= cbt::kMaxCapacity);
  }
}

// An untrusted answer of a plugin: an error, or values in range.
void DecodeOneAnswer(std::span<const uint8_t> bytes) {
  cbt::rpc::AnswerPart part;
  if (!cbt::rpc::DecodeAnswer(bytes, part).ok()) return;
  CBT_FUZZ_CHECK(part.offsets.size() == part.lengths.size());
  CBT_FUZZ_CHECK(cbt::CheckGeometry(part.head.geometry).ok());
  CBT_FUZZ_CHECK(part.head.begins_at <= part.head.geometry.capacity);
  CBT_FUZZ_CHECK(part.head.SameAs(part.head));
  CBT_FUZZ_CHECK(part.bitmap.size() <= bytes.size());
}

// No token can be forged without the key.
void OpenToken(std::span<const uint8_t> bytes) {
  static const cbt::rpc::PageTokens tokens("key of the fuzzer");
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  CBT_FUZZ_CHECK(!tokens.Open("base", "target", text).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const cbt::rpc::Contract* contract :
       {&cbt::rpc::kCsiContract, &cbt::rpc::kKubernetesContract, &cbt::rpc::kSessionContract,
        &cbt::rpc::kPagedContract}) {
    Decode(contract->allocated, {data, size});
    Decode(contract->delta, {data, size});
  }
  DecodeOnePage({data, size});
  DecodeOneAnswer({data, size});
  OpenToken({data, size});
  return 0;
}
