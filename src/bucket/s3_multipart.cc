#include "bucket/s3_multipart.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bucket/s3_xml.h"

namespace cbt::bucket {
namespace {

constexpr uint64_t kMiBytes = 1024 * 1024;
// What an upload calls itself, so that its object is recognised whatever ETag it has.
constexpr char kMark[] = "x-amz-meta-cbt-upload";

class Multipart {
 public:
  Multipart(S3Client& client, const std::string& key, uint64_t size, const Bucket::PartReader& read)
      : client_(client),
        key_(key),
        size_(size),
        read_(read),
        part_bytes_(PartBytes(size, client.options().part_bytes)),
        tags_(static_cast<size_t>((size + part_bytes_ - 1) / part_bytes_)) {}

  absl::Status Run() {
    if (part_bytes_ > kMaxPartBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "put ", key_, ": has ", size_, " bytes, S3 takes ", kMaxParts * kMaxPartBytes));
    }
    if (absl::Status begun = Begin(); !begun.ok()) return begun;
    absl::Status status = PutAll();
    if (status.ok()) status = Complete();
    // An end that was asked for and not answered may still come: then this does nothing.
    if (!status.ok()) Abort();
    return status;
  }

 private:
  absl::Status Begin() {
    std::array<uint8_t, 16> random{};
    if (RAND_bytes(random.data(), static_cast<int>(random.size())) != 1) {
      return absl::UnavailableError("no random numbers for the name of an upload");
    }
    mark_ = HexText(random);
    S3Client::Call call{
        .verb = "begin to put", .method = "POST", .key = key_, .max_body = kErrorRoom};
    call.query = {{"uploads", ""}};
    call.signed_headers = {{kMark, mark_}};
    return client_
        .Send(call,
              [&](const HttpAnswer& answer) {
                if (LooksLikeError(answer)) return client_.FromError(call, answer);
                upload_ = ParseUploadId(BodyText(answer));
                if (!upload_.empty()) return Final(absl::OkStatus());
                return Again(absl::UnavailableError("the answer names no upload"));
              })
        .status();
  }

  absl::Status PutAll() {
    const size_t most = std::min(client_.options().connections, tags_.size());
    std::vector<std::jthread> threads;
    try {
      for (size_t i = 1; i < most; ++i) threads.emplace_back([this] { PutSome(); });
    } catch (const std::exception&) {
      // Fewer threads do it too.
    }
    PutSome();
    threads.clear();
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  void PutSome() noexcept {
    absl::Status status;
    try {
      std::vector<uint8_t> bytes;
      for (;;) {
        const size_t part = next_.fetch_add(1);
        if (part >= tags_.size() || failed_.load()) return;
        const uint64_t offset = part * part_bytes_;
        bytes.resize(static_cast<size_t>(std::min(part_bytes_, size_ - offset)));
        status = read_(offset, bytes);
        if (status.ok()) status = Put(part, bytes);
        if (!status.ok()) break;
      }
    } catch (const std::exception&) {
      status = absl::ResourceExhaustedError("");  // no memory, not even for a text
    }
    const std::lock_guard lock(mutex_);
    failed_ = true;
    if (failure_.ok()) failure_ = std::move(status);
  }

  absl::Status Put(size_t part, std::span<const uint8_t> bytes) {
    const std::vector<uint8_t> md5 = Md5(bytes);
    S3Client::Call call{.verb = "put a part of",
                        .method = "PUT",
                        .key = key_,
                        .body = bytes,
                        .max_body = kErrorRoom};
    call.query = {{"partNumber", absl::StrCat(part + 1)}, {"uploadId", upload_}};
    if (!md5.empty()) call.signed_headers.emplace_back("content-md5", Base64(md5));
    const auto stored = client_.Send(call, [&](const HttpAnswer& answer) {
      if (LooksLikeError(answer)) return client_.FromError(call, answer);
      const std::optional<std::string> tag = Md5OfETag(answer);
      if (client_.options().etag_is_md5 && tag && !md5.empty() && *tag != HexText(md5)) {
        return Again(absl::DataLossError(
            "the server stored other bytes than it was sent (its ETag is not their MD5)"));
      }
      if (absl::Status tagged = CheckETag(answer); !tagged.ok()) return Again(tagged);
      return Final(absl::OkStatus());
    });
    if (!stored.ok()) return stored.status();
    tags_[part] = stored->Header("etag");
    return absl::OkStatus();
  }

  // Asks for the end once, and again only after a look that shows no object of this upload.
  absl::Status Complete() {
    std::string body = "<CompleteMultipartUpload>";
    for (size_t i = 0; i < tags_.size(); ++i) {
      absl::StrAppend(&body, "<Part><PartNumber>", i + 1, "</PartNumber><ETag>", XmlText(tags_[i]),
                      "</ETag></Part>");
    }
    absl::StrAppend(&body, "</CompleteMultipartUpload>");
    S3Client::Call call{.verb = "finish", .method = "POST", .key = key_};
    call.query = {{"uploadId", upload_}};
    call.body = {reinterpret_cast<const uint8_t*>(body.data()), body.size()};
    call.max_body = kErrorRoom;
    for (int attempt = 1;; ++attempt) {
      bool refused = false;  // for certain, before anything was done
      const absl::Status status = client_
                                      .Send(
                                          call,
                                          [&](const HttpAnswer& answer) {
                                            // 200 is sent before the work is done, so only the body says how it ended.
                                            if (LooksLikeError(answer))
                                              return client_.FromError(call, answer);
                                            if (!IsCompleted(BodyText(answer))) {
                                              return Again(absl::UnavailableError(
                                                  "the answer does not say that it is done"));
                                            }
                                            return Final(absl::OkStatus());
                                          },
                                          1)
                                      .status();
      if (status.ok()) return status;
      refused = absl::IsPermissionDenied(status) || absl::IsUnauthenticated(status);
      if (absl::IsCancelled(status) || refused) return status;
      const absl::StatusOr<bool> there = IsThere();
      if (!there.ok()) return there.status();
      if (*there) return absl::OkStatus();
      const bool again = absl::IsUnavailable(status) || absl::IsDataLoss(status);
      if (!again || attempt >= client_.options().attempts) return status;
    }
  }

  // Whether the object is the one of this upload.
  absl::StatusOr<bool> IsThere() {
    const S3Client::Call call{.verb = "look at", .method = "HEAD", .key = key_};
    bool there = false;
    const absl::Status status =
        client_
            .Send(call,
                  [&](const HttpAnswer& answer) {
                    there = answer.Header(kMark) == mark_ &&
                            NumberOf(answer.Header("content-length")) == std::optional(size_);
                    return Final(absl::OkStatus());
                  })
            .status();
    if (absl::IsNotFound(status)) return false;
    if (!status.ok()) return status;
    return there;
  }

  void Abort() {
    S3Client::Call call{.verb = "give up", .method = "DELETE", .key = key_, .max_body = kErrorRoom};
    call.query = {{"uploadId", upload_}};
    call.last_word = true;
    // The error that matters is the one before. A rule of the bucket removes what stays.
    client_.Send(call, [](const HttpAnswer&) { return Final(absl::OkStatus()); })
        .status()
        .IgnoreError();
  }

  S3Client& client_;
  const std::string& key_;
  const uint64_t size_;
  const Bucket::PartReader& read_;
  const uint64_t part_bytes_;
  std::string mark_;
  std::string upload_;
  std::vector<std::string> tags_;  // of the parts, each written by one thread
  std::atomic<size_t> next_{0};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  absl::Status failure_;
};

}  // namespace

uint64_t PartBytes(uint64_t size, uint64_t wanted) {
  const uint64_t least = (size + kMaxParts - 1) / kMaxParts;
  if (least <= wanted) return wanted;
  return (least + kMiBytes - 1) / kMiBytes * kMiBytes;
}

absl::Status PutMultipart(S3Client& client, const std::string& key, uint64_t size,
                          const Bucket::PartReader& read) {
  return Multipart(client, key, size, read).Run();
}

}  // namespace cbt::bucket
