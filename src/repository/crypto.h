// How a repository's bytes are encrypted and authenticated: AES-256-CTR and Poly1305-AES, with keys
// from scrypt.
#ifndef CBT_REPOSITORY_CRYPTO_H_
#define CBT_REPOSITORY_CRYPTO_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::repository {

// A nonce in front and a tag behind.
inline constexpr size_t kSealBytes = 32;

// The keys of a repository, or those that a password gives. Moves wipe their source, the destructor
// wipes. Thread-safe once filled.
class CryptoKey {
 public:
  static constexpr size_t kEncryptBytes = 32;
  static constexpr size_t kMacBytes = 16;

  CryptoKey() = default;
  CryptoKey(CryptoKey&& other) noexcept;
  CryptoKey& operator=(CryptoKey&& other) noexcept;
  CryptoKey(const CryptoKey&) = delete;
  CryptoKey& operator=(const CryptoKey&) = delete;
  ~CryptoKey();

  // Random keys. Errors: INTERNAL without random bytes.
  static absl::StatusOr<CryptoKey> Random();

  // Costs 128 * n * r bytes and time in proportion to n * r * p.
  // Errors: INVALID_ARGUMENT if n is no power of two or the cost passes 256 MiB or about a minute.
  static absl::StatusOr<CryptoKey> FromPassword(std::string_view password,
                                                std::span<const uint8_t> salt, uint64_t n,
                                                uint64_t r, uint64_t p);

  // `plain` under a fresh nonce: kSealBytes longer. Errors: INTERNAL without random bytes.
  absl::StatusOr<std::vector<uint8_t>> Seal(std::span<const uint8_t> plain) const;

  // The same to `sealed`, which has room for exactly that and does not overlap `plain`.
  absl::Status SealTo(std::span<const uint8_t> plain, std::span<uint8_t> sealed) const;

  // What was sealed. Errors: DATA_LOSS if it was not sealed with this key, or was changed since.
  absl::StatusOr<std::vector<uint8_t>> Open(std::span<const uint8_t> sealed) const;
  // The same without a copy: a part of `sealed`. After an error `sealed` is as it was.
  absl::StatusOr<std::span<uint8_t>> OpenInPlace(std::span<uint8_t> sealed) const;

  std::array<uint8_t, kEncryptBytes> encrypt = {};
  std::array<uint8_t, kMacBytes> mac_k = {};
  std::array<uint8_t, kMacBytes> mac_r = {};

 private:
  void Wipe() noexcept;
  // The encrypted text of what was sealed. Errors: as Open().
  absl::StatusOr<std::span<const uint8_t>> CheckTag(std::span<const uint8_t> sealed) const;
};

// Fills `out` with random bytes. Errors: INTERNAL.
absl::Status FillRandom(std::span<uint8_t> out);

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_CRYPTO_H_
