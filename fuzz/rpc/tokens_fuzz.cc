// Page tokens: a sealed token opens with its key and for its request, and gives its offset. A
// changed or forged token never opens.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "cbt/extent.h"
#include "fuzz/support/check.h"
#include "rpc/contract/resumption.h"

namespace {

using cbt::rpc::PageTokens;
using Base = std::optional<std::string>;

Base SomeBase(FuzzedDataProvider& in) {
  if (!in.ConsumeBool()) return std::nullopt;
  return in.ConsumeRandomLengthString(20);
}

// Small changes of a text: changes, removes or inserts a byte, or truncates it.
void Edit(FuzzedDataProvider& in, std::string& text) {
  for (auto n = in.ConsumeIntegralInRange<int>(0, 3); n > 0; --n) {
    const size_t at = in.ConsumeIntegralInRange<size_t>(0, text.size());
    switch (in.ConsumeIntegralInRange<int>(0, 3)) {
      case 0:
        if (at < text.size()) text[at] = in.ConsumeIntegral<char>();
        break;
      case 1:
        if (at < text.size()) text.erase(at, 1);
        break;
      case 2:
        text.insert(at, 1, in.PickValueInArray({'=', 'A', '\n', ' ', '-', '/', '\0'}));
        break;
      default:
        text.resize(at);
        break;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const PageTokens ours("key of the fuzzer");
  static const PageTokens others("another key");
  // The whole input as a forged token.
  const std::string whole(reinterpret_cast<const char*>(data), size);
  CBT_FUZZ_CHECK(!ours.Open("base", "target", whole).ok());

  FuzzedDataProvider in(data, size);
  const Base base = SomeBase(in);
  const std::string target = in.ConsumeRandomLengthString(20);
  const uint64_t offset = in.ConsumeIntegral<uint64_t>() >> in.ConsumeIntegralInRange<int>(0, 63);
  const std::string sealed = ours.Seal(base, target, {offset});
  const auto opened = ours.Open(base, target, sealed);
  CBT_FUZZ_CHECK(opened.ok() == (offset <= cbt::kMaxCapacity));
  if (opened.ok()) CBT_FUZZ_CHECK(opened->offset == offset);
  CBT_FUZZ_CHECK(!others.Open(base, target, sealed).ok());

  std::string token = sealed;
  Edit(in, token);
  Base other_base = base;
  if (other_base.has_value()) Edit(in, *other_base);
  if (in.ConsumeBool()) other_base = SomeBase(in);
  std::string other_target = target;
  Edit(in, other_target);
  const auto again = ours.Open(other_base, other_target, token);
  const bool same = token == sealed && other_base == base && other_target == target;
  CBT_FUZZ_CHECK(again.ok() == (same && opened.ok()));
  if (!again.ok()) CBT_FUZZ_CHECK(again.status().code() == absl::StatusCode::kAborted);

  // The boundaries between names are sealed too.
  if (base.has_value() && !target.empty()) {
    CBT_FUZZ_CHECK(!ours.Open(*base + target[0], target.substr(1), sealed).ok());
  }
  return 0;
}
