// Page tokens that were altered in transit: every bit, every length, parts of other tokens.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cbt/extent.h"
#include "rpc/contract/resumption.h"
#include "tests/support/figures.h"
#include "tests/support/seeded_random.h"

namespace cbt::rpc {
namespace page_token_test {

class PageTokenTest : public testing::Test {
 protected:
  // `token` must be refused for the pair (a, b).
  void Refuse(const std::string& token, const std::string& what) {
    ++tried_;
    if (tokens_.Open("a", "b", token).ok()) {
      ++missed_;
      ADD_FAILURE() << what;
    }
  }
  void Print(const std::string& name) const {
    test::PrintFigure(absl::StrCat(name, "_tried"), tried_);
    test::PrintFigure(absl::StrCat(name, "_missed"), missed_);
  }

  const PageTokens tokens_{"key"};
  const std::vector<uint64_t> offsets_ = {0, 1, 4096, uint64_t{1} << 32, kMaxCapacity};

 private:
  uint64_t tried_ = 0;
  uint64_t missed_ = 0;
};

TEST_F(PageTokenTest, EveryFlippedBitIsFoundInTextAndInBytes) {
  for (const uint64_t offset : offsets_) {
    const std::string token = tokens_.Seal("a", "b", {offset});
    ASSERT_EQ(tokens_.Open("a", "b", token)->offset, offset);
    for (size_t bit = 0; bit < token.size() * 8; ++bit) {
      std::string text = token;
      text[bit / 8] = static_cast<char>(text[bit / 8] ^ 1 << bit % 8);
      Refuse(text, absl::StrCat("bit ", bit, " of the text of ", offset));
    }
    std::string bytes;
    ASSERT_TRUE(absl::WebSafeBase64Unescape(token, &bytes));
    for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      std::string changed = bytes;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
      Refuse(absl::WebSafeBase64Escape(changed), absl::StrCat("bit ", bit, " of ", offset));
    }
  }
  Print("r7_token_flips");
}

TEST_F(PageTokenTest, TwoFlippedBitsAreFound) {
  std::string bytes;
  ASSERT_TRUE(absl::WebSafeBase64Unescape(tokens_.Seal("a", "b", {123'456'789}), &bytes));
  test::SeededRandom random(1);
  for (int64_t i = 0; i < 4000 * test::TestScale(); ++i) {
    const size_t first = random() % (bytes.size() * 8);
    const size_t second = random() % (bytes.size() * 8);
    if (first == second) continue;
    std::string changed = bytes;
    changed[first / 8] = static_cast<char>(changed[first / 8] ^ 1 << first % 8);
    changed[second / 8] = static_cast<char>(changed[second / 8] ^ 1 << second % 8);
    Refuse(absl::WebSafeBase64Escape(changed), absl::StrCat("bits ", first, " and ", second));
  }
  Print("r7_token_double_flips");
}

TEST_F(PageTokenTest, EveryOtherLengthAndForeignPartsAreFound) {
  for (const uint64_t offset : offsets_) {
    const std::string token = tokens_.Seal("a", "b", {offset});
    for (size_t size = 0; size < token.size(); ++size) {
      Refuse(token.substr(0, size), absl::StrCat("the first ", size));
      Refuse(token.substr(token.size() - size), absl::StrCat("the last ", size));
    }
    std::string longer = token;
    for (size_t more = 1; more <= 64; ++more) {
      longer += "A=\n\0z"[more % 5];
      Refuse(longer, absl::StrCat(more, " more"));
      Refuse(std::string(more, 'A') + token, absl::StrCat(more, " in front"));
    }
    // The front of one token with the seal of another: of another page, request or key.
    for (const std::string& other :
         {tokens_.Seal("a", "b", {offset ^ 4096}), tokens_.Seal("a", "c", {offset}),
          tokens_.Seal(std::nullopt, "b", {offset}), PageTokens("yek").Seal("a", "b", {offset})}) {
      for (size_t cut = 1; cut < token.size(); ++cut) {
        const std::string mixed = token.substr(0, cut) + other.substr(cut);
        const std::string swapped = other.substr(0, cut) + token.substr(cut);
        // If the parts are equal, the result is one of the two tokens.
        for (const std::string& spliced : {mixed, swapped}) {
          if (spliced != token && spliced != other) Refuse(spliced, absl::StrCat("cut at ", cut));
        }
      }
    }
  }
  Print("r8_token_lengths_and_splices");
}

// A valid seal, made with the key, on an offset outside of any volume.
TEST_F(PageTokenTest, OffsetsPastAnyCapacityAreFound) {
  EXPECT_EQ(tokens_.Open("a", "b", tokens_.Seal("a", "b", {kMaxCapacity}))->offset, kMaxCapacity);
  for (const uint64_t offset : {kMaxCapacity + 1, ~uint64_t{0}}) {
    const absl::Status status = tokens_.Open("a", "b", tokens_.Seal("a", "b", {offset})).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << offset;
  }
}

}  // namespace page_token_test
}  // namespace cbt::rpc
