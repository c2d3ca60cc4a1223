#include "repository/config.h"

#include <bit>
#include <charconv>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json_builder.h"
#include "repository/crypto.h"
#include "repository/json.h"

namespace cbt::repository {
namespace {

constexpr int kDegree = 53;

// Polynomials over GF(2): bit i is the coefficient of x^i.
int DegreeOf(uint64_t a) noexcept { return static_cast<int>(std::bit_width(a)) - 1; }

uint64_t Remainder(uint64_t a, uint64_t by) noexcept {
  for (int shift = DegreeOf(a) - DegreeOf(by); a != 0 && shift >= 0;
       shift = DegreeOf(a) - DegreeOf(by)) {
    a ^= by << shift;
  }
  return a;
}

// a * b mod m, all of a degree below 63.
uint64_t Multiply(uint64_t a, uint64_t b, uint64_t m) noexcept {
  uint64_t product = 0;
  for (; b != 0; b >>= 1) {
    if ((b & 1) != 0) product ^= a;
    a <<= 1;
    if (DegreeOf(a) >= DegreeOf(m)) a ^= m;
  }
  return Remainder(product, m);
}

uint64_t CommonDivisor(uint64_t a, uint64_t b) noexcept {
  while (b != 0) {
    const uint64_t rest = Remainder(a, b);
    a = b;
    b = rest;
  }
  return a;
}

}  // namespace

bool IsIrreducible(uint64_t polynomial) noexcept {
  // Ben-Or: no common factor with x^(2^i) - x for any i up to half the degree.
  constexpr uint64_t kX = 2;
  uint64_t power = kX;
  for (int i = 1; i <= DegreeOf(polynomial) / 2; ++i) {
    power = Multiply(power, power, polynomial);
    if (CommonDivisor(polynomial, power ^ kX) != 1) return false;
  }
  return DegreeOf(polynomial) > 0;
}

absl::StatusOr<Config> DecodeConfig(std::string_view json) {
  std::string text(json);
  rapidjson::Document object;
  if (absl::Status parsed = ParseObject(text, object); !parsed.ok()) return parsed;
  Config config;
  config.version = NumberOf(object, "version").value_or(0);
  if (config.version != 1 && config.version != 2) {
    return absl::UnimplementedError(
        absl::StrCat("has the format version ", config.version, ", only 1 and 2 are known"));
  }
  const std::optional<Id> id = Id::Parse(TextOf(object, "id"));
  if (!id.has_value()) return absl::DataLossError("has no id");
  config.id = *id;
  const std::string_view polynomial = TextOf(object, "chunker_polynomial");
  const char* const end = polynomial.data() + polynomial.size();
  const auto parsed = std::from_chars(polynomial.data(), end, config.polynomial, 16);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return absl::DataLossError("has no chunker polynomial");
  }
  return config;
}

std::string EncodeConfig(const Config& config) {
  JsonBuilder json;
  json.BeginObject().Field("version", config.version).Field("id", config.id.Hex());
  json.Field("chunker_polynomial", std::string(absl::StrCat(absl::Hex(config.polynomial))));
  return json.EndObject().Take();
}

absl::StatusOr<Config> RandomConfig() {
  Config config;
  if (absl::Status filled = FillRandom(config.id.bytes); !filled.ok()) return filled;
  // One in about 53 is irreducible.
  for (;;) {
    std::array<uint8_t, 8> bytes{};
    if (absl::Status filled = FillRandom(bytes); !filled.ok()) return filled;
    uint64_t candidate = 0;
    for (const uint8_t byte : bytes) candidate = candidate << 8 | byte;
    candidate &= (uint64_t{1} << kDegree) - 1;
    candidate |= uint64_t{1} << kDegree | 1;
    if (!IsIrreducible(candidate)) continue;
    config.polynomial = candidate;
    return config;
  }
}

}  // namespace cbt::repository
