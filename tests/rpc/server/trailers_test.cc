// Metadata beside the messages: the status text, the stream's header, and the final proof.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "cbt/units.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/status.h"

namespace cbt::test {
namespace trailers_test {

using testing::HasSubstr;

TEST(StatusText, IsCutBetweenCharacters) {
  const auto text = [](const std::string& message) {
    const absl::Status status = rpc::StatusForWire(absl::InternalError(message));
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    return std::string(status.message());
  };
  const std::string fits(rpc::kMaxStatusText, 'x');
  EXPECT_EQ(text(fits), fits);
  EXPECT_EQ(text(fits + "y"), fits);
  // Characters of two, three and four bytes that cross the limit are removed whole.
  for (const std::string character : {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x92\xbe"}) {
    for (size_t inside = 1; inside < character.size(); ++inside) {
      const std::string before(rpc::kMaxStatusText - inside, 'x');
      EXPECT_EQ(text(before + character + "y"), before);
    }
    const std::string before(rpc::kMaxStatusText - character.size(), 'x');
    EXPECT_EQ(text(before + character + "y"), before + character);
  }
  // Continuation bytes only: the text becomes empty, and no read goes before its start.
  EXPECT_EQ(text(std::string(rpc::kMaxStatusText + 1, '\x80')), "");
}

using Lines = std::map<std::string, std::string, std::less<>>;

rpc::MetadataLookup In(const Lines& lines) {
  return [&lines](std::string_view key) -> std::optional<std::string_view> {
    const auto found = lines.find(key);
    if (found == lines.end()) return std::nullopt;
    return found->second;
  };
}

TEST(Summaries, HoldNumbersAndNothingElse) {
  const auto bytes = [](const std::string& text) {
    const Lines lines = {{"cbt-bytes-to-come", text}, {"cbt-tuples-to-come", "7"}};
    const StreamSummary summary = rpc::ReadSummary(In(lines));
    EXPECT_EQ(summary.tuples, 7u);
    return summary.bytes;
  };
  EXPECT_EQ(bytes("0"), 0u);
  EXPECT_EQ(bytes("18446744073709551615"), ~uint64_t{0});
  for (const char* text : {"", " ", "-1", "+1", " 1", "1 ", "0x1", "1.0", "many",
                           "18446744073709551616", "99999999999999999999999"}) {
    EXPECT_FALSE(bytes(text).has_value()) << text;
  }
  EXPECT_FALSE(rpc::ReadSummary(In({})).tuples.has_value());
}

TEST(Proofs, DifferByEveryLineAndByOneThatIsMissing) {
  StreamDigest digest;
  const uint64_t offset = 4096;
  const uint64_t length = 512;
  digest.Add({&offset, 1}, {&length, 1});
  const rpc::StreamHeader header{BlockMetadataType::kVariableLength, kMiB};
  Lines sent;
  for (const auto& [key, value] : rpc::ProofMetadata(digest, 77, header)) sent[key] = value;
  ASSERT_EQ(sent.size(), 6u);
  std::string what;
  const auto verdict = [&](const Lines& lines) {
    return rpc::CheckProof(In(lines), digest, 77, header, what);
  };
  EXPECT_EQ(verdict(sent), rpc::ProofVerdict::kHolds);
  EXPECT_EQ(verdict({}), rpc::ProofVerdict::kAbsent);
  for (const auto& [key, value] : sent) {
    Lines changed = sent;
    changed[key] = value + "0";
    EXPECT_EQ(verdict(changed), rpc::ProofVerdict::kDiffers) << key;
    EXPECT_THAT(what, HasSubstr(key + " is " + value + "0, received " + value));
    changed.erase(key);
    // Servers from before the proof do not send these two.
    const bool may_miss = key == rpc::kCapacityKey || key == rpc::kTypeKey;
    EXPECT_EQ(verdict(changed), may_miss ? rpc::ProofVerdict::kHolds : rpc::ProofVerdict::kDiffers)
        << key;
    if (!may_miss) {
      EXPECT_THAT(what, HasSubstr(key + " is missing"));
    }
    // A single key is not a proof, and not the absence of one either.
    EXPECT_EQ(verdict({{key, value}}), rpc::ProofVerdict::kDiffers) << key;
  }
}

TEST(Proofs, AttackJSayWhereTheyBegin) {
  StreamDigest digest;
  const auto sent = [&digest](rpc::ProofScope scope) {
    Lines lines;
    for (const auto& [key, value] : rpc::ProofMetadata(digest, 0, std::nullopt, scope)) {
      lines[key] = value;
    }
    return lines;
  };
  std::string what;
  const auto verdict = [&](const Lines& lines) {
    return rpc::CheckProof(In(lines), digest, 0, std::nullopt, what);
  };
  EXPECT_EQ(verdict(sent(rpc::ProofScope::kSource)), rpc::ProofVerdict::kHolds);
  EXPECT_EQ(sent(rpc::ProofScope::kSource).count("cbt-proof-scope"), 0u);
  Lines relayed = sent(rpc::ProofScope::kRelay);
  EXPECT_EQ(relayed["cbt-proof-scope"], "relay");
  EXPECT_EQ(verdict(relayed), rpc::ProofVerdict::kHoldsFromRelay);
  Lines placed = sent(rpc::ProofScope::kPlace);
  EXPECT_EQ(placed["cbt-proof-scope"], "place");
  EXPECT_EQ(verdict(placed), rpc::ProofVerdict::kHoldsForPlace);
  placed["cbt-tuple-count"] = "1";
  EXPECT_EQ(verdict(placed), rpc::ProofVerdict::kDiffers);
  // A scope of a later version must not count as the source.
  relayed["cbt-proof-scope"] = "elsewhere";
  EXPECT_EQ(verdict(relayed), rpc::ProofVerdict::kHoldsFromRelay);
  relayed["cbt-tuple-count"] = "1";
  EXPECT_EQ(verdict(relayed), rpc::ProofVerdict::kDiffers);
  EXPECT_EQ(verdict({{"cbt-proof-scope", "relay"}}), rpc::ProofVerdict::kDiffers);
}

}  // namespace trailers_test
}  // namespace cbt::test
