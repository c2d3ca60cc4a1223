#include "base/wipe.h"

#include <gtest/gtest.h>

#include <string>

namespace cbt {
namespace wipe_test {

TEST(Wipe, ReplacesTheBytesAndKeepsTheLength) {
  std::string secret = "a secret";
  Wipe(secret);
  EXPECT_EQ(secret, std::string(8, '\0'));
}

// What a longer value left in the memory goes too.
TEST(Wipe, OfTheWholeMemoryLeavesNothing) {
  std::string secret(100, 's');
  secret.resize(40);
  const char* const memory = secret.data();
  WipeWhole(secret);
  EXPECT_TRUE(secret.empty());
  ASSERT_EQ(secret.data(), memory);
  ASSERT_GE(secret.capacity(), 100u);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(memory[i], 0) << i;
}

TEST(Wipe, ComesAtTheEndOfTheScope) {
  std::string secret = "a secret";
  { const Wiper wiper(secret); }
  EXPECT_TRUE(secret.empty());
}

}  // namespace wipe_test
}  // namespace cbt
