#include "programs/cosi/driver/names.h"

#include <algorithm>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace cbt::cosi {
namespace {

bool IsWordCharacter(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

bool ConsistsOf(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return IsWordCharacter(c) || others.find(c) != std::string_view::npos;
  });
}

}  // namespace

absl::Status CheckCosiDriverName(std::string_view name) {
  constexpr size_t kMost = 63;
  if (!name.empty() && name.size() <= kMost && IsWordCharacter(name.front()) &&
      IsWordCharacter(name.back()) && ConsistsOf(name, "-.")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "driver name: expected 1 to 63 letters, digits, '-' and '.', with a letter or digit at both "
      "ends");
}

absl::Status CheckBucketName(std::string_view name) {
  constexpr size_t kLeast = 3;
  constexpr size_t kMost = 63;
  const bool lower = std::none_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isupper(static_cast<unsigned char>(c));
  });
  if (name.size() >= kLeast && name.size() <= kMost && lower && IsWordCharacter(name.front()) &&
      IsWordCharacter(name.back()) && ConsistsOf(name, "-.") &&
      name.find("..") == std::string_view::npos) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "bucket: S3 takes 3 to 63 lower-case letters, digits, '-' and '.', with a letter or digit at "
      "both ends; a prefix has 26 at most");
}

absl::Status CheckAccountName(std::string_view name) {
  constexpr size_t kMost = 253;
  if (!name.empty() && name.size() <= kMost && IsWordCharacter(name.front()) &&
      ConsistsOf(name, "-._")) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "account: expected 1 to 253 letters, digits, '-', '.' and '_', with a letter or digit first");
}

std::string NewAccountName() {
  std::random_device random;
  std::string name = "cosi-";
  for (int i = 0; i < 4; ++i) {
    absl::StrAppend(&name, absl::Hex(static_cast<uint32_t>(random()), absl::kZeroPad8));
  }
  return name;
}

}  // namespace cbt::cosi
