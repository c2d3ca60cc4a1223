#include "programs/cosi/driver/rgw_answers.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "bucket/s3_xml.h"
#include "cbt/kube/object.h"

namespace cbt::cosi {
namespace {

absl::Status NoAccount() {
  return absl::UnavailableError("the answer is not an account of an object gateway");
}

// Written as a boolean, a text or a number, from version to version.
bool IsSet(const kube::Object& object, const char* field) {
  if (const auto flag = object.OptionalBool({field}); flag.ok()) return flag->value_or(false);
  if (const auto text = object.OptionalString({field}); text.ok()) {
    return text->value_or("") == "true";
  }
  const auto number = object.OptionalInt({field});
  // What can't be understood is not handed out.
  return !number.ok() || number->value_or(0) != 0;
}

void AppendXmlText(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += c;
    }
  }
}

}  // namespace

absl::StatusOr<RgwAccount> ParseRgwAccount(std::string_view json) {
  const absl::StatusOr<kube::Object> object = kube::Object::ParseRequest(json);
  if (!object.ok()) return NoAccount();
  RgwAccount account;
  absl::StatusOr<std::string> id = object->String({"user_id"});
  absl::StatusOr<std::optional<std::string>> name = object->OptionalString({"display_name"});
  const absl::StatusOr<std::vector<kube::Object>> caps = object->Children({"caps"});
  const absl::StatusOr<std::vector<kube::Object>> keys = object->Children({"keys"});
  if (!id.ok() || !name.ok() || !caps.ok() || !keys.ok()) return NoAccount();
  account.id = *std::move(id);
  account.display_name = name->value_or("");
  account.suspended = IsSet(*object, "suspended");
  account.privileged = !caps->empty() || IsSet(*object, "system") || IsSet(*object, "admin");
  for (const kube::Object& key : *keys) {
    const absl::StatusOr<std::string> owner = key.String({"user"});
    absl::StatusOr<std::string> access = key.String({"access_key"});
    absl::StatusOr<Secret> secret = key.SecretString({"secret_key"});
    if (!owner.ok() || !access.ok() || !secret.ok()) return NoAccount();
    // Others are those of subusers.
    if (*owner != account.id || secret->empty()) continue;
    account.keys.push_back({.access_key = *std::move(access), .secret_key = *std::move(secret)});
  }
  return account;
}

std::string ParseRgwErrorCode(std::string_view body) {
  std::string code = bucket::ParseS3Error(body).code;
  if (code.empty()) {
    if (const absl::StatusOr<kube::Object> json = kube::Object::ParseRequest(body); json.ok()) {
      code = json->String({"Code"}).value_or("");
    }
  }
  constexpr size_t kMostCode = 64;
  const bool plain = code.size() <= kMostCode && std::all_of(code.begin(), code.end(), [](char c) {
                       return absl::ascii_isalpha(static_cast<unsigned char>(c));
                     });
  return plain ? code : std::string();
}

absl::StatusOr<Parameters> ParseTagging(std::string_view xml) {
  Parameters tags;
  std::string key;
  bool has_key = false;
  bool good = true;
  const bool whole =
      bucket::ForEachXmlLeaf(xml, [&](std::string_view path, const std::string& text) {
        if (!path.starts_with("/Tagging")) good = false;
        if (path == "/Tagging/TagSet/Tag/Key") {
          good &= !has_key;
          key = text;
          has_key = true;
        } else if (path == "/Tagging/TagSet/Tag/Value") {
          good &= has_key && tags.try_emplace(key, text).second;
          has_key = false;
        }
      });
  if (!whole || !good || has_key) {
    return absl::UnavailableError("the answer is not the tags of a bucket");
  }
  return tags;
}

std::string WriteTagging(const Parameters& tags) {
  std::string xml = "<Tagging xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><TagSet>";
  for (const auto& [key, value] : tags) {
    xml += "<Tag><Key>";
    AppendXmlText(xml, key);
    xml += "</Key><Value>";
    AppendXmlText(xml, value);
    xml += "</Value></Tag>";
  }
  return xml + "</TagSet></Tagging>";
}

absl::StatusOr<bool> ParseHasEntries(std::string_view xml) {
  bool good = false;
  bool entries = false;
  const bool whole = bucket::ForEachXmlLeaf(xml, [&](std::string_view path, const std::string&) {
    for (const std::string_view root : {"/ListVersionsResult/", "/ListBucketResult/"}) {
      if (!path.starts_with(root)) continue;
      good = true;
      path.remove_prefix(root.size());
      entries |= path.starts_with("Version/") || path.starts_with("DeleteMarker/") ||
                 path.starts_with("Contents/");
      return;
    }
  });
  if (!whole || !good) return absl::UnavailableError("the answer is not a list of versions");
  return entries;
}

}  // namespace cbt::cosi
