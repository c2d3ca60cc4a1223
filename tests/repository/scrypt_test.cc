// The key derivation against its RFC and against OpenSSL's.
#include "repository/scrypt.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "repository/crypto.h"

namespace cbt::repository {
namespace scrypt_test {

constexpr uint64_t kRoom = uint64_t{256} << 20;

std::vector<uint8_t> Derive(const std::string& password, const std::string& salt, uint64_t n,
                            uint64_t r, uint64_t p, size_t size, SimdLevel level,
                            uint64_t room = kRoom) {
  std::vector<uint8_t> out(size);
  const std::vector<uint8_t> bytes(salt.begin(), salt.end());
  EXPECT_TRUE(
      Scrypt(password, bytes, {.n = n, .r = r, .p = p, .max_bytes = room}, level, out).ok());
  return out;
}

std::string Hex(const std::vector<uint8_t>& bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

// RFC 7914, section 12.
TEST(Scrypt, KnowsThePublishedKeys) {
  for (const SimdLevel level : AvailableSimdLevels()) {
    EXPECT_EQ(Hex(Derive("", "", 16, 1, 1, 64, level)),
              "77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442"
              "fcd0069ded0948f8326a753a0fc81f17e8d3e0fb2e0d3628cf35e20c38d18906");
    EXPECT_EQ(Hex(Derive("password", "NaCl", 1024, 8, 16, 64, level)),
              "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b373162"
              "2eaf30d92e22a3886ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640");
  }
}

TEST(Scrypt, EqualsOpenSsl) {
  const std::random_device::result_type seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const uint64_t n = uint64_t{2} << random() % 9;
    const uint64_t r = 1 + random() % 9;
    const uint64_t p = 1 + random() % 7;
    std::string password(random() % 80, '\0');
    std::string salt(random() % 80, '\0');
    for (char& c : password) c = static_cast<char>(random());
    for (char& c : salt) c = static_cast<char>(random());
    std::vector<uint8_t> expected(1 + random() % 100);
    ASSERT_EQ(EVP_PBE_scrypt(password.data(), password.size(),
                             reinterpret_cast<const uint8_t*>(salt.data()), salt.size(), n, r, p, 0,
                             expected.data(), expected.size()),
              1);
    // Room for one lane, for a few, for all.
    const uint64_t rooms[] = {1, 128 * r * (n + 2) * 3, kRoom};
    const uint64_t room = rooms[random() % 3];
    for (const SimdLevel level : AvailableSimdLevels()) {
      EXPECT_EQ(Hex(Derive(password, salt, n, r, p, expected.size(), level, room)), Hex(expected))
          << n << " " << r << " " << p << " " << SimdLevelName(level);
    }
  }
}

// A key file is not trusted, and lanes cost memory as well.
TEST(Scrypt, IsRefusedWhereItsLanesAreTooLarge) {
  const std::array<uint8_t, 1> salt{};
  EXPECT_TRUE(absl::IsInvalidArgument(CryptoKey::FromPassword("x", salt, 2, 8, 1 << 20).status()));
}

}  // namespace scrypt_test
}  // namespace cbt::repository
