// The names of blobs and files in a repository: SHA-256 sums of what they name.
#ifndef CBT_REPOSITORY_ID_H_
#define CBT_REPOSITORY_ID_H_

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace cbt::repository {

struct Id {
  std::array<uint8_t, 32> bytes = {};

  auto operator<=>(const Id&) const = default;

  // 64 digits, lower case.
  std::string Hex() const;
  // The first eight digits, as restic prints them.
  std::string Short() const { return Hex().substr(0, 8); }

  // Empty for anything but 64 lower-case digits.
  static std::optional<Id> Parse(std::string_view text) noexcept;

  // The SHA-256 sum of `bytes`.
  static Id Of(std::span<const uint8_t> bytes);
};

}  // namespace cbt::repository

#endif  // CBT_REPOSITORY_ID_H_
