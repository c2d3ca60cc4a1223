#include "programs/cosi/conform/tried_keys.h"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bucket/s3.h"

namespace cbt::cosi {
namespace {

constexpr char kTriedKey[] = "cbtctl-conform";
constexpr uint8_t kTriedBytes[] = {'c', 'b', 't'};
constexpr std::chrono::milliseconds kBetweenTries{200};

// A store that does not answer, or has no such object, has refused nothing.
bool IsRefusal(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status) ||
         absl::IsFailedPrecondition(status);
}

absl::Status Try(const char* what, bool wanted, std::chrono::milliseconds settle_time,
                 const std::function<absl::Status()>& request) {
  const auto end = std::chrono::steady_clock::now() + settle_time;
  for (;;) {
    const absl::Status status = request();
    if (wanted ? status.ok() : IsRefusal(status)) return absl::OkStatus();
    if (std::chrono::steady_clock::now() >= end) {
      if (!status.ok()) return status;
      return absl::FailedPreconditionError(absl::StrCat("the store allowed to ", what));
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
}

}  // namespace

absl::StatusOr<TriedKeys> TriedKeys::Open(const S3Keys& keys, const S3Info& info,
                                          const std::string& bucket_id,
                                          const std::string& ca_file) {
  bucket::S3Place place{
      .endpoint = info.endpoint,
      .bucket = bucket_id,
      .ca_file = ca_file,
      .credentials = {.access_key = keys.access_key, .secret_key = keys.secret_key.Copy()}};
  if (!info.region.empty()) place.region = info.region;
  if (info.addressing == Addressing::kVirtual) place.addressing = bucket::Addressing::kVirtual;
  bucket::S3Options options;
  options.attempts = 3;
  options.stall_timeout = std::chrono::seconds(10);
  absl::StatusOr<std::unique_ptr<bucket::Bucket>> opened =
      bucket::OpenS3Bucket(std::move(place), std::move(options));
  if (!opened.ok()) return opened.status();
  return TriedKeys(*std::move(opened));
}

absl::Status TriedKeys::Writes(bool wanted, std::chrono::milliseconds settle_time) const {
  return Try("write", wanted, settle_time, [this] { return bucket_->Put(kTriedKey, kTriedBytes); });
}

absl::Status TriedKeys::Reads(bool wanted, std::chrono::milliseconds settle_time) const {
  return Try("read", wanted, settle_time, [this]() -> absl::Status {
    constexpr uint64_t kMost = 64;
    const absl::StatusOr<std::vector<uint8_t>> bytes = bucket_->Get(kTriedKey, kMost);
    if (!bytes.ok()) return bytes.status();
    if (std::equal(bytes->begin(), bytes->end(), std::begin(kTriedBytes), std::end(kTriedBytes))) {
      return absl::OkStatus();
    }
    return absl::DataLossError("the store answers other bytes than were written");
  });
}

absl::Status TriedKeys::Lists(bool wanted, std::chrono::milliseconds settle_time) const {
  return Try("list", wanted, settle_time, [this] {
    return bucket_->List("", [](const bucket::ObjectInfo&) { return absl::OkStatus(); });
  });
}

absl::Status TriedKeys::Deletes(bool wanted, std::chrono::milliseconds settle_time) const {
  return Try("delete", wanted, settle_time, [this] { return bucket_->Delete(kTriedKey); });
}

}  // namespace cbt::cosi
