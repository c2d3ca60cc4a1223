// A receiver of arbitrary messages: the checker against a second implementation of its rules, one
// tuple at a time; the digest, however the stream is cut; and the proof, which must hold for
// exactly what was received.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cbt/extent.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/digest.h"
#include "cbt/wire/message.h"
#include "fuzz/support/check.h"
#include "fuzz/support/input.h"
#include "rpc/contract/completeness.h"

namespace {

using cbt::BlockMetadataType;
using cbt::MetadataMessage;
using Wide = unsigned __int128;

// The rules of a stream.
class Rules {
 public:
  Rules(uint64_t start, uint32_t max_results) : start_(start), max_results_(max_results) {}

  bool Take(const MetadataMessage& message) {
    if (message.type == BlockMetadataType::kUnknown) return false;
    if (message.capacity == 0) return false;
    if (!first_.has_value()) first_ = {message.type, message.capacity};
    if (*first_ != std::pair(message.type, message.capacity)) return false;
    if (max_results_ != 0 && message.tuples.size() > max_results_) return false;
    for (size_t i = 0; i < message.tuples.size(); ++i) {
      const Wide offset = message.tuples[i].offset;
      const Wide length = message.tuples[i].length;
      if (length == 0 || offset >= message.capacity || offset + length <= start_) return false;
      if (offset + length > Wide{cbt::kMaxCapacity} + 1) return false;
      if (!tuples.empty()) {
        if (offset < Wide{tuples.back().first} + tuples.back().second) return false;
        if (message.type == BlockMetadataType::kFixedLength && length != tuples.back().second) {
          return false;
        }
      }
      if (message.type == BlockMetadataType::kVariableLength &&
          offset + length > message.capacity) {
        return false;
      }
      tuples.emplace_back(message.tuples[i].offset, message.tuples[i].length);
    }
    ++messages;
    return true;
  }

  // Type and capacity, once a message has given them.
  const std::optional<std::pair<BlockMetadataType, uint64_t>>& header() const { return first_; }

  std::vector<std::pair<uint64_t, uint64_t>> tuples;
  uint64_t messages = 0;

 private:
  const uint64_t start_;
  const uint32_t max_results_;
  std::optional<std::pair<BlockMetadataType, uint64_t>> first_;
};

class Script : public cbt::fuzz::Input {
 public:
  using Input::Input;

  // Continues the stream validly, or near the limits of its rules.
  void Fill(MetadataMessage& message) {
    const uint64_t head = Take(1);
    if (end_ == 0 || head % 16 == 0) {
      type_ = static_cast<BlockMetadataType>(Take(1) % 3);
      capacity_ = Number();
    }
    message.type = type_;
    message.capacity = capacity_;
    message.tuples.clear();
    for (uint64_t n = (head >> 4) * (head & 3); n > 0 && !empty(); --n) {
      const uint64_t shape = Take(1);
      uint64_t offset = end_;
      if ((shape & 3) == 1) offset = end_ + Take(1);
      if ((shape & 3) == 2) offset = capacity_ - Take(1);
      if ((shape & 15) == 3) offset = Number();
      uint64_t length = size_;
      if ((shape & 48) == 16) length = Take(1);
      if ((shape & 48) == 32) length = Number();
      if ((shape & 240) == 48) length = capacity_ - offset;
      if (type_ == BlockMetadataType::kVariableLength && size_ == 0) length = 1 + Take(1);
      offset &= cbt::kMaxCapacity;
      length &= cbt::kMaxCapacity;
      if (size_ == 0) size_ = length;
      end_ = (offset + length) & cbt::kMaxCapacity;
      message.tuples.push_back({offset, length});
    }
  }

  uint64_t Number() {
    const uint64_t shape = Take(1);
    return Take(shape & 7) >> (shape >> 6) & cbt::kMaxCapacity;
  }

  // The bytes of a message as received.
  std::span<const uint8_t> Raw() {
    const size_t count = std::min<size_t>(Take(1), size());
    const std::span<const uint8_t> bytes(data_, count);
    data_ += count;
    Input::size_ -= count;
    return bytes;
  }
  size_t size() const { return Input::size_; }

 private:
  BlockMetadataType type_ = BlockMetadataType::kUnknown;
  uint64_t capacity_ = 0;
  uint64_t end_ = 0;
  uint64_t size_ = 0;
};

void CheckProofs(const Rules& rules, const cbt::StreamDigest& digest, uint64_t start,
                 Script& script) {
  using cbt::rpc::ProofVerdict;
  // A stream without messages gives neither capacity nor type; older servers never send them.
  std::optional<cbt::rpc::StreamHeader> header;
  if (rules.header().has_value()) header = {rules.header()->first, rules.header()->second};
  const bool older = script.Take(1) % 4 == 0;
  cbt::rpc::Metadata proof = cbt::rpc::ProofMetadata(digest, start, older ? std::nullopt : header);
  const auto look = [&proof](std::string_view key) -> std::optional<std::string_view> {
    for (const auto& [name, value] : proof) {
      if (name == key) return value;
    }
    return std::nullopt;
  };
  std::string what;
  // The same tuples in one message: a different cut.
  cbt::StreamDigest again;
  for (const auto& [offset, length] : rules.tuples) again.Add({&offset, 1}, {&length, 1});
  CBT_FUZZ_CHECK(cbt::rpc::CheckProof(look, again, start, header, what) == ProofVerdict::kHolds);

  // One tuple is missing or different.
  if (!rules.tuples.empty()) {
    const size_t victim = script.Take(2) % rules.tuples.size();
    const uint64_t change = script.Take(8);
    cbt::StreamDigest wrong;
    for (size_t i = 0; i < rules.tuples.size(); ++i) {
      auto [offset, length] = rules.tuples[i];
      if (i == victim && change == 0) continue;
      if (i == victim) (change & 1 ? offset : length) ^= change;
      wrong.Add({&offset, 1}, {&length, 1});
    }
    CBT_FUZZ_CHECK(cbt::rpc::CheckProof(look, wrong, start, header, what) ==
                   ProofVerdict::kDiffers);
    CBT_FUZZ_CHECK(!what.empty());
  }
  // A different capacity was received.
  if (header.has_value() && !older) {
    auto wrong = header;
    wrong->capacity ^= 1 + script.Take(2);
    CBT_FUZZ_CHECK(cbt::rpc::CheckProof(look, again, start, wrong, what) == ProofVerdict::kDiffers);
  }
  // Part of the proof is missing or different. Only capacity and type may be missing.
  const size_t part = script.Take(1) % proof.size();
  const std::string whole = proof[part].second;
  const uint64_t edit = script.Take(2);
  if ((edit & 3) == 0) {
    proof[part].first = "other";
  } else if ((edit & 3) == 1) {
    proof[part].second += static_cast<char>(edit >> 8);
  } else {
    proof[part].second[(edit >> 2) % whole.size()] = static_cast<char>(edit >> 8);
  }
  const bool same = (edit & 3) == 0 ? part >= 4 : proof[part].second == whole;
  CBT_FUZZ_CHECK(cbt::rpc::CheckProof(look, again, start, header, what) ==
                 (same ? ProofVerdict::kHolds : ProofVerdict::kDiffers));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Script script(data, size);
  const uint64_t start = script.Number();
  const auto max_results = static_cast<uint32_t>(script.Take(1) >> 3);
  const bool raw = script.Take(1) % 4 == 0;
  Rules rules(start, max_results);
  cbt::StreamChecker checker(start, max_results);
  cbt::StreamDigest digest;
  MetadataMessage message;
  while (!script.empty() && rules.messages < 40) {
    if (raw) {
      // Malformed bytes end a stream, as does a message that breaks a rule.
      if (!cbt::DecodeMetadataMessage(script.Raw(), message).ok()) break;
    } else {
      script.Fill(message);
    }
    const bool want = rules.Take(message);
    const absl::Status got = checker.Check(message);
    CBT_FUZZ_CHECK(got.ok() == want);
    CBT_FUZZ_CHECK(got.ok() || got.code() == absl::StatusCode::kDataLoss);
    CBT_FUZZ_CHECK(checker.tuples() == rules.tuples.size());
    CBT_FUZZ_CHECK(checker.messages() == rules.messages);
    uint64_t bytes = 0;
    for (const auto& [offset, length] : rules.tuples) bytes += length;
    CBT_FUZZ_CHECK(checker.bytes() == bytes);
    CBT_FUZZ_CHECK(
        checker.resume_offset() ==
        (rules.tuples.empty() ? start : rules.tuples.back().first + rules.tuples.back().second));
    if (!want) return 0;
    digest.Add(message.tuples.offsets(), message.tuples.lengths());
  }
  CheckProofs(rules, digest, start, script);
  return 0;
}
