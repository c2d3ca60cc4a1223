#include "repository/key_file.h"

#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/json_builder.h"
#include "base/wipe.h"
#include "repository/host.h"
#include "repository/json.h"

namespace cbt::repository {
namespace {

constexpr uint64_t kScryptN = 32768;
constexpr uint64_t kScryptR = 8;
constexpr uint64_t kScryptP = 1;
constexpr size_t kSaltBytes = 64;

std::span<const uint8_t> BytesOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Fills `part` from base64. False for another length.
bool TakePart(std::string_view base64, std::span<uint8_t> part) {
  std::string bytes;
  const Wiper wiper(bytes);
  if (!FromBase64(base64, bytes) || bytes.size() != part.size()) return false;
  std::memcpy(part.data(), bytes.data(), part.size());
  return true;
}

std::string PartText(std::span<const uint8_t> part) {
  return ToBase64({reinterpret_cast<const char*>(part.data()), part.size()});
}

}  // namespace

absl::StatusOr<KeyFile> DecodeKeyFile(std::string_view json) {
  std::string text(json);
  rapidjson::Document object;
  if (absl::Status parsed = ParseObject(text, object); !parsed.ok()) return parsed;
  if (TextOf(object, "kdf") != "scrypt") {
    return absl::UnimplementedError("derives keys by another function than scrypt");
  }
  KeyFile file;
  file.n = NumberOf(object, "N").value_or(0);
  file.r = NumberOf(object, "r").value_or(0);
  file.p = NumberOf(object, "p").value_or(0);
  if (!FromBase64(TextOf(object, "salt"), file.salt) ||
      !FromBase64(TextOf(object, "data"), file.data) || file.salt.empty()) {
    return absl::DataLossError("has no salt or no data in base64");
  }
  return file;
}

absl::StatusOr<CryptoKey> OpenKeyFile(const KeyFile& file, const Secret& password) {
  const absl::StatusOr<CryptoKey> outer =
      CryptoKey::FromPassword(password.Reveal(), BytesOf(file.salt), file.n, file.r, file.p);
  if (!outer.ok()) return outer.status();
  absl::StatusOr<std::vector<uint8_t>> plain = outer->Open(BytesOf(file.data));
  if (!plain.ok()) return absl::UnauthenticatedError("wrong password");
  std::string text(plain->begin(), plain->end());
  const Wiper wiper(text);
  std::memset(plain->data(), 0, plain->size());
  asm volatile("" : : "r"(plain->data()) : "memory");
  rapidjson::Document document;
  if (absl::Status parsed = ParseObject(text, document); !parsed.ok()) return parsed;
  const rapidjson::Document& object = document;
  CryptoKey key;
  const auto mac = object.FindMember("mac");
  if (mac == object.MemberEnd() || !mac->value.IsObject() ||
      !TakePart(TextOf(object, "encrypt"), key.encrypt) ||
      !TakePart(TextOf(mac->value, "k"), key.mac_k) ||
      !TakePart(TextOf(mac->value, "r"), key.mac_r)) {
    return absl::DataLossError("does not hold the keys of a repository");
  }
  return key;
}

absl::StatusOr<std::string> EncodeKeyFile(const CryptoKey& key, const Secret& password) {
  std::string salt(kSaltBytes, '\0');
  if (absl::Status filled = FillRandom({reinterpret_cast<uint8_t*>(salt.data()), salt.size()});
      !filled.ok()) {
    return filled;
  }
  const absl::StatusOr<CryptoKey> outer =
      CryptoKey::FromPassword(password.Reveal(), BytesOf(salt), kScryptN, kScryptR, kScryptP);
  if (!outer.ok()) return outer.status();
  JsonBuilder keys;
  keys.BeginObject().Key("mac").BeginObject();
  keys.Field("k", PartText(key.mac_k)).Field("r", PartText(key.mac_r)).EndObject();
  std::string plain = keys.Field("encrypt", PartText(key.encrypt)).EndObject().Take();
  const Wiper wiper(plain);
  const absl::StatusOr<std::vector<uint8_t>> sealed = outer->Seal(BytesOf(plain));
  if (!sealed.ok()) return sealed.status();
  JsonBuilder file;
  file.BeginObject().Field("created", TimeText(absl::Now()));
  file.Field("username", UserName()).Field("hostname", HostName());
  file.Field("kdf", "scrypt").Field("N", kScryptN).Field("r", kScryptR).Field("p", kScryptP);
  file.Field("salt", ToBase64(salt)).Field("data", PartText(*sealed));
  return file.EndObject().Take();
}

}  // namespace cbt::repository
