#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"
#include "base/wipe.h"
#include "bucket/credential_watch.h"
#include "bucket/s3.h"
#ifdef CBT_HAVE_RAPIDJSON
#ifndef RAPIDJSON_ASSERT
#define RAPIDJSON_ASSERT(condition) ((void)0)
#endif
#include "rapidjson/document.h"
#endif

namespace cbt::bucket {
namespace {

constexpr size_t kMaxCredentialBytes = 1024 * 1024;

// The caller wipes `text`. It never grows, so that no copy is left behind.
absl::Status ReadSmallFile(const std::string& path, std::string& text) {
  const OwnedDescriptor file(OpenFile(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.has_value()) return FileError(path, errno);
  struct stat info {};
  if (::fstat(file.number(), &info) != 0) return FileError(path, errno);
  if (!S_ISREG(info.st_mode) || static_cast<size_t>(info.st_size) > kMaxCredentialBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a file of at most ", kMaxCredentialBytes, " bytes"));
  }
  text.resize(static_cast<size_t>(info.st_size));
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t read =
        Retry([&] { return ::read(file.number(), text.data() + size, text.size() - size); });
    if (read < 0) return FileError(path, errno);
    if (read == 0) break;
    size += static_cast<size_t>(read);
  }
  text.resize(size);
  return absl::OkStatus();
}

std::string_view WithoutSpace(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

absl::Status LacksKeys(std::string_view where) {
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(where), ": lacks the access key or the secret key"));
}

absl::Status CheckPlace(const S3Place& place, std::string_view where) {
  if (place.endpoint.empty() || place.bucket.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(AbslView(where), ": lacks the endpoint or the bucket's name"));
  }
  if (place.credentials.access_key.empty() || place.credentials.secret_key.empty()) {
    return LacksKeys(where);
  }
  return absl::OkStatus();
}

#ifdef CBT_HAVE_RAPIDJSON
std::string_view MemberText(const rapidjson::Value& object, const char* name) {
  const auto member = object.FindMember(name);
  if (member == object.MemberEnd() || !member->value.IsString()) return {};
  return {member->value.GetString(), member->value.GetStringLength()};
}
#endif

absl::StatusOr<S3Place> PlaceFromJson(const std::string& path) {
#ifdef CBT_HAVE_RAPIDJSON
  std::string text;
  const Wiper wiper(text);
  if (absl::Status read = ReadSmallFile(path, text); !read.ok()) return read;
  // Texts stay in the buffer, which is wiped; the parser needs no stack.
  rapidjson::Document json;
  json.ParseInsitu<rapidjson::kParseIterativeFlag>(text.data());
  if (json.HasParseError() || !json.IsObject()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a JSON object"));
  }
  const rapidjson::Document& object = json;
  const rapidjson::Value* spec = &object;
  if (const auto member = object.FindMember("spec");
      member != object.MemberEnd() && member->value.IsObject()) {
    spec = &member->value;
  }
  const auto secret = spec->FindMember("secretS3");
  if (secret == spec->MemberEnd() || !secret->value.IsObject()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has no spec.secretS3, so the bucket does not speak S3"));
  }
  S3Place place;
  place.bucket = MemberText(*spec, "bucketName");
  place.endpoint = MemberText(secret->value, "endpoint");
  if (const std::string_view region = MemberText(secret->value, "region"); !region.empty()) {
    place.region = region;
  }
  place.credentials.access_key = MemberText(secret->value, "accessKeyID");
  place.credentials.secret_key = Secret(MemberText(secret->value, "accessSecretKey"));
  if (absl::Status valid = CheckPlace(place, path); !valid.ok()) return valid;
  return place;
#else
  return absl::UnimplementedError(
      absl::StrCat(path, ": this build has no RapidJSON, which reads it"));
#endif
}

// `present`: whether the file COSI_S3_NAME is there.
absl::Status ReadField(const std::string& directory, const char* name, Secret& value,
                       bool& present) {
  std::string text;
  const Wiper wiper(text);
  const absl::Status read = ReadSmallFile(absl::StrCat(directory, "/", name), text);
  present = read.ok();
  if (read.ok()) value = Secret(WithoutSpace(text));
  return absl::IsNotFound(read) ? absl::OkStatus() : read;
}

absl::StatusOr<S3Place> PlaceFromFields(const std::string& directory) {
  S3Place place;
  Secret value;
  bool present = false;
  const auto read = [&](const char* name) -> absl::StatusOr<std::string> {
    value = Secret();
    if (absl::Status done = ReadField(directory, name, value, present); !done.ok()) return done;
    return std::string(value.Reveal());
  };
  const std::pair<const char*, std::string*> fields[] = {
      {"COSI_S3_BUCKET_ID", &place.bucket},
      {"COSI_S3_ENDPOINT", &place.endpoint},
      {"COSI_S3_ACCESS_KEY_ID", &place.credentials.access_key},
      {"COSI_CERTIFICATE_AUTHORITY", &place.ca_text}};
  for (const auto& [name, field] : fields) {
    absl::StatusOr<std::string> text = read(name);
    if (!text.ok()) return text.status();
    *field = *std::move(text);
  }
  const absl::StatusOr<std::string> region = read("COSI_S3_REGION");
  if (!region.ok()) return region.status();
  if (!region->empty()) place.region = *region;
  const absl::StatusOr<std::string> style = read("COSI_S3_ADDRESSING_STYLE");
  if (!style.ok()) return style.status();
  if (*style == "virtual") place.addressing = Addressing::kVirtual;
  if (absl::Status done =
          ReadField(directory, "COSI_S3_ACCESS_SECRET_KEY", place.credentials.secret_key, present);
      !done.ok()) {
    return done;
  }
  if (absl::Status valid = CheckPlace(place, directory); !valid.ok()) return valid;
  return place;
}

}  // namespace

absl::StatusOr<S3Credentials> S3CredentialsFromEnvironment() {
  const char* const access = std::getenv("AWS_ACCESS_KEY_ID");
  const char* const secret = std::getenv("AWS_SECRET_ACCESS_KEY");
  if (access == nullptr || secret == nullptr || *access == '\0' || *secret == '\0') {
    return absl::NotFoundError(
        "no S3 credentials in the environment: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  }
  const char* const token = std::getenv("AWS_SESSION_TOKEN");
  return S3Credentials{.access_key = access,
                       .secret_key = Secret(secret),
                       .session_token = Secret(token == nullptr ? "" : token)};
}

absl::StatusOr<S3Credentials> S3CredentialsFromFile(const std::string& path,
                                                    const std::string& profile) {
  std::string text;
  const Wiper wiper(text);
  if (absl::Status read = ReadSmallFile(path, text); !read.ok()) return read;
  S3Credentials found;
  bool in_profile = false;
  bool seen = false;
  const std::string_view all = text;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    const std::string_view line = WithoutSpace(all.substr(begin, end - begin));
    begin = end + 1;
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      in_profile = line.back() == ']' && WithoutSpace(line.substr(1, line.size() - 2)) == profile;
      seen |= in_profile;
      continue;
    }
    const size_t equals = line.find('=');
    if (!in_profile || equals == std::string_view::npos) continue;
    const std::string_view name = WithoutSpace(line.substr(0, equals));
    const std::string_view value = WithoutSpace(line.substr(equals + 1));
    if (name == "aws_access_key_id") found.access_key = value;
    if (name == "aws_secret_access_key") found.secret_key = Secret(value);
    if (name == "aws_session_token") found.session_token = Secret(value);
  }
  if (!seen) return absl::NotFoundError(absl::StrCat(path, ": has no profile [", profile, "]"));
  if (found.access_key.empty() || found.secret_key.empty()) return LacksKeys(path);
  return found;
}

absl::StatusOr<S3Place> S3PlaceFromCosi(const std::string& path) {
  absl::StatusOr<S3Place> place = ReadS3CosiPlace(path);
  if (place.ok()) place->watched = WatchS3CosiCredentials(path);
  return place;
}

absl::StatusOr<S3Place> ReadS3CosiPlace(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return FileError(path, errno);
  if (!S_ISDIR(info.st_mode)) return PlaceFromJson(path);
  const std::string json = path + "/BucketInfo";
  if (::stat(json.c_str(), &info) == 0) return PlaceFromJson(json);
  if (errno != ENOENT) return FileError(json, errno);
  return PlaceFromFields(path);
}

}  // namespace cbt::bucket
