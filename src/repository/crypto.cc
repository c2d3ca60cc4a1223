#include "repository/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "repository/scrypt.h"

namespace cbt::repository {
namespace {

constexpr size_t kNonceBytes = 16;
constexpr size_t kTagBytes = 16;
static_assert(kNonceBytes + kTagBytes == kSealBytes);

// A key file, which is not trusted, says what its scrypt costs.
constexpr uint64_t kMaxScryptBytes = uint64_t{256} << 20;
// What lanes that go side by side may take; a single one may take more.
constexpr uint64_t kLanesBytes = uint64_t{200} << 20;
constexpr uint64_t kMaxLaneBytes = uint64_t{64} << 20;
constexpr uint64_t kMaxScryptWork = uint64_t{1} << 24;

struct CipherFree {
  void operator()(EVP_CIPHER_CTX* context) const noexcept { EVP_CIPHER_CTX_free(context); }
};
struct MacFree {
  void operator()(EVP_MAC_CTX* context) const noexcept { EVP_MAC_CTX_free(context); }
};

// Encrypts or decrypts, which are the same.
bool CounterMode(std::span<const uint8_t, CryptoKey::kEncryptBytes> key, const uint8_t* nonce,
                 std::span<const uint8_t> in, uint8_t* out) {
  const std::unique_ptr<EVP_CIPHER_CTX, CipherFree> context(EVP_CIPHER_CTX_new());
  if (context == nullptr ||
      EVP_EncryptInit_ex(context.get(), EVP_aes_256_ctr(), nullptr, key.data(), nonce) != 1) {
    return false;
  }
  // Lengths are int.
  constexpr size_t kPiece = size_t{1} << 30;
  for (size_t done = 0; done < in.size();) {
    const size_t piece = std::min(kPiece, in.size() - done);
    int written = 0;
    if (EVP_EncryptUpdate(context.get(), out + done, &written, in.data() + done,
                          static_cast<int>(piece)) != 1 ||
        static_cast<size_t>(written) != piece) {
      return false;
    }
    done += piece;
  }
  return true;
}

// Poly1305-AES: the one-time key is r and the encrypted nonce. OpenSSL clears the bits of r that
// must be zero.
bool Authenticate(const CryptoKey& key, const uint8_t* nonce, std::span<const uint8_t> text,
                  uint8_t* tag) {
  static EVP_MAC* const poly1305 = EVP_MAC_fetch(nullptr, "POLY1305", nullptr);
  std::array<uint8_t, 32> once{};
  std::memcpy(once.data(), key.mac_r.data(), key.mac_r.size());
  const std::unique_ptr<EVP_CIPHER_CTX, CipherFree> cipher(EVP_CIPHER_CTX_new());
  int written = 0;
  bool good = poly1305 != nullptr && cipher != nullptr &&
              EVP_EncryptInit_ex(cipher.get(), EVP_aes_128_ecb(), nullptr, key.mac_k.data(),
                                 nullptr) == 1 &&
              EVP_CIPHER_CTX_set_padding(cipher.get(), 0) == 1 &&
              EVP_EncryptUpdate(cipher.get(), once.data() + 16, &written, nonce, kNonceBytes) == 1;
  if (good) {
    const std::unique_ptr<EVP_MAC_CTX, MacFree> mac(EVP_MAC_CTX_new(poly1305));
    size_t length = 0;
    good = mac != nullptr && EVP_MAC_init(mac.get(), once.data(), once.size(), nullptr) == 1 &&
           EVP_MAC_update(mac.get(), text.data(), text.size()) == 1 &&
           EVP_MAC_final(mac.get(), tag, &length, kTagBytes) == 1 && length == kTagBytes;
  }
  OPENSSL_cleanse(once.data(), once.size());
  return good;
}

absl::Status NoCryptography() { return absl::InternalError("OpenSSL can't encrypt or decrypt"); }

}  // namespace

absl::Status FillRandom(std::span<uint8_t> out) {
  if (RAND_bytes(out.data(), static_cast<int>(out.size())) == 1) return absl::OkStatus();
  return absl::InternalError("OpenSSL has no random bytes");
}

CryptoKey::CryptoKey(CryptoKey&& other) noexcept
    : encrypt(other.encrypt), mac_k(other.mac_k), mac_r(other.mac_r) {
  other.Wipe();
}

CryptoKey& CryptoKey::operator=(CryptoKey&& other) noexcept {
  if (this != &other) {
    encrypt = other.encrypt;
    mac_k = other.mac_k;
    mac_r = other.mac_r;
    other.Wipe();
  }
  return *this;
}

CryptoKey::~CryptoKey() { Wipe(); }

void CryptoKey::Wipe() noexcept {
  OPENSSL_cleanse(encrypt.data(), encrypt.size());
  OPENSSL_cleanse(mac_k.data(), mac_k.size());
  OPENSSL_cleanse(mac_r.data(), mac_r.size());
}

absl::StatusOr<CryptoKey> CryptoKey::Random() {
  CryptoKey key;
  for (const std::span<uint8_t> part :
       {std::span<uint8_t>(key.encrypt), std::span<uint8_t>(key.mac_k),
        std::span<uint8_t>(key.mac_r)}) {
    if (absl::Status filled = FillRandom(part); !filled.ok()) return filled;
  }
  return key;
}

absl::StatusOr<CryptoKey> CryptoKey::FromPassword(std::string_view password,
                                                  std::span<const uint8_t> salt, uint64_t n,
                                                  uint64_t r, uint64_t p) {
  const bool small =
      n > 1 && n <= kMaxScryptWork && r > 0 && r <= kMaxScryptWork && p > 0 && p <= kMaxScryptWork;
  if (!small || (n & (n - 1)) != 0 || 128 * n * r > kMaxScryptBytes || n * r > kMaxScryptWork / p ||
      128 * r * p > kMaxLaneBytes) {
    return absl::InvalidArgumentError(
        "its scrypt costs more than 256 MiB or a minute, or has impossible numbers");
  }
  std::array<uint8_t, kEncryptBytes + 2 * kMacBytes> out{};
  const ScryptCost cost{.n = n, .r = r, .p = p, .max_bytes = kLanesBytes};
  absl::Status derived = Scrypt(password, salt, cost, ActiveSimdLevel(), out);
  if (!derived.ok()) {
    return derived;
  }
  CryptoKey key;
  std::memcpy(key.encrypt.data(), out.data(), kEncryptBytes);
  std::memcpy(key.mac_k.data(), out.data() + kEncryptBytes, kMacBytes);
  std::memcpy(key.mac_r.data(), out.data() + kEncryptBytes + kMacBytes, kMacBytes);
  OPENSSL_cleanse(out.data(), out.size());
  return key;
}

absl::Status CryptoKey::SealTo(std::span<const uint8_t> plain, std::span<uint8_t> sealed) const {
  if (sealed.size() != plain.size() + kSealBytes) {
    return absl::InternalError("what is sealed has another length");
  }
  uint8_t* const nonce = sealed.data();
  if (absl::Status filled = FillRandom({nonce, kNonceBytes}); !filled.ok()) return filled;
  uint8_t* const text = nonce + kNonceBytes;
  if (!CounterMode(encrypt, nonce, plain, text) ||
      !Authenticate(*this, nonce, {text, plain.size()}, text + plain.size())) {
    return NoCryptography();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint8_t>> CryptoKey::Seal(std::span<const uint8_t> plain) const {
  std::vector<uint8_t> sealed(plain.size() + kSealBytes);
  if (absl::Status done = SealTo(plain, sealed); !done.ok()) return done;
  return sealed;
}

absl::StatusOr<std::span<const uint8_t>> CryptoKey::CheckTag(
    std::span<const uint8_t> sealed) const {
  if (sealed.size() < kSealBytes) {
    return absl::DataLossError("is too short to be encrypted");
  }
  const uint8_t* const nonce = sealed.data();
  const std::span<const uint8_t> text = sealed.subspan(kNonceBytes, sealed.size() - kSealBytes);
  std::array<uint8_t, kTagBytes> tag{};
  if (!Authenticate(*this, nonce, text, tag.data())) return NoCryptography();
  if (CRYPTO_memcmp(tag.data(), text.data() + text.size(), kTagBytes) != 0) {
    return absl::DataLossError("does not have the tag of its content: it was damaged or changed");
  }
  return text;
}

absl::StatusOr<std::span<uint8_t>> CryptoKey::OpenInPlace(std::span<uint8_t> sealed) const {
  const absl::StatusOr<std::span<const uint8_t>> text = CheckTag(sealed);
  if (!text.ok()) return text.status();
  const std::span<uint8_t> plain = sealed.subspan(kNonceBytes, text->size());
  if (!CounterMode(encrypt, sealed.data(), *text, plain.data())) return NoCryptography();
  return plain;
}

absl::StatusOr<std::vector<uint8_t>> CryptoKey::Open(std::span<const uint8_t> sealed) const {
  const absl::StatusOr<std::span<const uint8_t>> text = CheckTag(sealed);
  if (!text.ok()) return text.status();
  std::vector<uint8_t> plain(text->size());
  if (!CounterMode(encrypt, sealed.data(), *text, plain.data())) return NoCryptography();
  return plain;
}

}  // namespace cbt::repository
