#include "programs/backup/place.h"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"
#include "bucket/s3.h"

namespace cbt::backup {
namespace {

constexpr std::string_view kForms =
    "expected a directory, s3:HOST/BUCKET[/PREFIX] or cosi:PATH[#PREFIX]";

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string AsPrefix(std::string_view text) {
  while (!text.empty() && text.front() == '/') text.remove_prefix(1);
  while (!text.empty() && text.back() == '/') text.remove_suffix(1);
  return text.empty() ? std::string() : std::string(text) + "/";
}

// `text`: what follows "s3:".
absl::StatusOr<bucket::S3Place> ParseS3(std::string_view text, std::string& prefix) {
  bucket::S3Place place;
  std::string_view scheme = "https://";
  for (const std::string_view known : {"https://", "http://", "//"}) {
    if (!text.starts_with(known)) continue;
    if (known != "//") scheme = known;
    text.remove_prefix(known.size());
    break;
  }
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || slash == 0) return absl::InvalidArgumentError("");
  const std::string_view host = text.substr(0, slash);
  text.remove_prefix(slash + 1);
  const size_t end = std::min(text.find('/'), text.size());
  place.endpoint = absl::StrCat(AbslView(scheme), AbslView(host));
  place.bucket = text.substr(0, end);
  prefix = AsPrefix(text.substr(end));
  if (place.bucket.empty()) return absl::InvalidArgumentError("");
  // Amazon's own names need no option.
  if (host.ends_with(".amazonaws.com")) place.addressing = bucket::Addressing::kVirtual;
  return place;
}

absl::StatusOr<bucket::S3Credentials> FindCredentials() {
  absl::StatusOr<bucket::S3Credentials> found = bucket::S3CredentialsFromEnvironment();
  if (!absl::IsNotFound(found.status())) return found;
  std::string file = Environment("AWS_SHARED_CREDENTIALS_FILE");
  const bool named = !file.empty();
  if (!named) file = Environment("HOME") + "/.aws/credentials";
  std::string profile = Environment("AWS_PROFILE");
  if (profile.empty()) profile = "default";
  absl::StatusOr<bucket::S3Credentials> in_file = bucket::S3CredentialsFromFile(file, profile);
  // The environment is what most forget.
  if (absl::IsNotFound(in_file.status()) && !named) return found;
  return in_file;
}

absl::StatusOr<Place> OpenDirectory(const std::string& path, bool create) {
  if (create) {
    if (absl::Status made = MakeDirectory(path, true); !made.ok()) return made;
  }
  absl::StatusOr<std::unique_ptr<bucket::Bucket>> directory = bucket::OpenDirectoryBucket(path);
  if (!directory.ok()) return directory.status();
  return Place{*std::move(directory), ""};
}

}  // namespace

absl::StatusOr<Place> OpenPlace(const PlaceOptions& options) {
  const std::string_view text = options.repository;
  const auto wrong = [&] {
    return absl::InvalidArgumentError(
        absl::StrCat("--repo: ", options.repository, ": ", AbslView(kForms)));
  };
  const auto after = [&](std::string_view scheme) -> std::string {
    return std::string(text.substr(scheme.size()));
  };
  for (const std::string_view other :
       {"sftp:", "rest:", "b2:", "azure:", "gs:", "swift:", "rclone:"}) {
    if (text.starts_with(other)) return wrong();
  }
  if (text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--repo, RESTIC_REPOSITORY: ", AbslView(kForms)));
  }
  if (text.starts_with("local:")) return OpenDirectory(after("local:"), options.create);
  Place opened;
  absl::StatusOr<bucket::S3Place> place;
  if (text.starts_with("cosi:")) {
    std::string path = after("cosi:");
    if (const size_t hash = path.find('#'); hash != std::string::npos) {
      opened.prefix = AsPrefix(std::string_view(path).substr(hash + 1));
      path.resize(hash);
    }
    place = bucket::S3PlaceFromCosi(path);
    if (!place.ok()) return place.status();
  } else if (text.starts_with("s3:")) {
    place = ParseS3(text.substr(3), opened.prefix);
    if (!place.ok()) return wrong();
    for (const char* variable : {"AWS_REGION", "AWS_DEFAULT_REGION"}) {
      if (std::string region = Environment(variable); !region.empty()) {
        place->region = std::move(region);
        break;
      }
    }
    absl::StatusOr<bucket::S3Credentials> credentials = FindCredentials();
    if (!credentials.ok()) return credentials.status();
    place->credentials = *std::move(credentials);
  } else {
    return OpenDirectory(options.repository, options.create);
  }
  if (!options.ca_file.empty()) place->ca_file = options.ca_file;
  if (options.virtual_host) place->addressing = bucket::Addressing::kVirtual;
  absl::StatusOr<std::unique_ptr<bucket::Bucket>> opened_bucket = bucket::OpenS3Bucket(
      *std::move(place), {.connections = options.connections, .stop = options.stop});
  if (!opened_bucket.ok()) return opened_bucket.status();
  opened.bucket = *std::move(opened_bucket);
  return opened;
}

}  // namespace cbt::backup
