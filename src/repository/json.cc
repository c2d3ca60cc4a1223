#include "repository/json.h"

#include <openssl/evp.h>

namespace cbt::repository {

absl::Status ParseObject(std::string& text, rapidjson::Document& object) {
  // A NUL would end the text early.
  if (text.find('\0') != std::string::npos) return absl::DataLossError("is not JSON");
  object.ParseInsitu<rapidjson::kParseIterativeFlag>(text.data());
  if (object.HasParseError() || !object.IsObject()) {
    return absl::DataLossError("is not a JSON object");
  }
  return absl::OkStatus();
}

std::string_view TextOf(const rapidjson::Value& object, const char* name) {
  const auto member = object.FindMember(name);
  if (member == object.MemberEnd() || !member->value.IsString()) return {};
  return {member->value.GetString(), member->value.GetStringLength()};
}

std::optional<uint64_t> NumberOf(const rapidjson::Value& object, const char* name) {
  const auto member = object.FindMember(name);
  if (member == object.MemberEnd() || !member->value.IsUint64()) return std::nullopt;
  return member->value.GetUint64();
}

bool BoolOf(const rapidjson::Value& object, const char* name) {
  const auto member = object.FindMember(name);
  return member != object.MemberEnd() && member->value.IsTrue();
}

std::vector<std::string> TextsOf(const rapidjson::Value& object, const char* name) {
  std::vector<std::string> texts;
  const auto member = object.FindMember(name);
  if (member == object.MemberEnd() || !member->value.IsArray()) return texts;
  for (const rapidjson::Value& value : member->value.GetArray()) {
    if (value.IsString()) texts.emplace_back(value.GetString(), value.GetStringLength());
  }
  return texts;
}

std::string ToBase64(std::string_view bytes) {
  std::string text(4 * ((bytes.size() + 2) / 3) + 1, '\0');
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(bytes.data()),
                                   static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(size));
  return text;
}

bool FromBase64(std::string_view text, std::string& bytes) {
  constexpr size_t kMaxBytes = size_t{1} << 20;
  if (text.size() % 4 != 0 || text.size() > kMaxBytes) return false;
  bytes.assign(text.size() / 4 * 3, '\0');
  if (text.empty()) return true;
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0 || static_cast<size_t>(size) != bytes.size()) return false;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  bytes.resize(bytes.size() - padding);
  return true;
}

}  // namespace cbt::repository
