// What comes from outside into a bucket: pages of lists, errors and other answers in XML, files of
// credentials and COSI's JSON. Each is refused or makes sense, and no message has a secret.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "bucket/credential_watch.h"
#include "bucket/s3.h"
#include "bucket/s3_xml.h"
#include "fuzz/support/check.h"

namespace {

constexpr absl::string_view kSecret = "canary-789012345678901234567890123456789";

// A file of these bytes, which has a path in this process.
class AnswerFile {
 public:
  explicit AnswerFile(std::string_view text) : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
    CBT_FUZZ_CHECK(descriptor_ >= 0);
    CBT_FUZZ_CHECK(pwrite(descriptor_, text.data(), text.size(), 0) ==
                   static_cast<ssize_t>(text.size()));
  }
  ~AnswerFile() { close(descriptor_); }
  AnswerFile(const AnswerFile&) = delete;
  AnswerFile& operator=(const AnswerFile&) = delete;
  std::string path() const { return absl::StrCat("/proc/self/fd/", descriptor_); }

 private:
  const int descriptor_;
};

void CheckPage(std::string_view text) {
  const auto page = cbt::bucket::ParseListPage(text);
  if (!page.ok()) {
    CBT_FUZZ_CHECK(absl::IsUnavailable(page.status()));
    return;
  }
  CBT_FUZZ_CHECK(page->truncated != page->next_token.empty());
  size_t bytes = 0;
  for (const cbt::bucket::ObjectInfo& object : page->objects) bytes += object.key.size();
  CBT_FUZZ_CHECK(bytes <= text.size() && page->objects.size() <= text.size());
}

void CheckError(std::string_view text) {
  const cbt::bucket::S3Error error = cbt::bucket::ParseS3Error(text);
  CBT_FUZZ_CHECK(error.code.size() + error.message.size() + error.region.size() <= text.size());
  CBT_FUZZ_CHECK(cbt::bucket::ParseUploadId(text).size() <= text.size());
  // One body can't be both.
  if (cbt::bucket::IsCompleted(text)) CBT_FUZZ_CHECK(error.code.empty());
}

void CheckXmlText(std::string_view text) {
  const std::string xml = absl::StrCat("<InitiateMultipartUploadResult><UploadId>",
                                       cbt::bucket::XmlText({text.data(), text.size()}),
                                       "</UploadId></InitiateMultipartUploadResult>");
  const std::string read = cbt::bucket::ParseUploadId(xml);
  for (const char c : text) {
    if (c < 0x20 || c == 0x7f) return;  // also what is no ASCII
  }
  constexpr size_t kMaxText = 16 * 1024;
  CBT_FUZZ_CHECK(read == text || text.size() > kMaxText);
}

void CheckCredentials(std::string_view text, bool json) {
  const AnswerFile file(text);
  absl::Status status;
  if (json) {
    const auto place = cbt::bucket::ReadS3CosiPlace(file.path());
    status = place.status();
    if (place.ok())
      CBT_FUZZ_CHECK(!place->bucket.empty() && !place->credentials.access_key.empty());
  } else {
    const auto credentials = cbt::bucket::S3CredentialsFromFile(file.path());
    status = credentials.status();
    if (credentials.ok()) {
      CBT_FUZZ_CHECK(!credentials->access_key.empty() && !credentials->secret_key.empty());
    }
  }
  CBT_FUZZ_CHECK(status.message().find(kSecret) == absl::string_view::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0] % 5) {
    case 0:
      CheckPage(text);
      break;
    case 1:
      CheckError(text);
      break;
    case 2:
      CheckXmlText(text);
      break;
    case 3:
      CheckCredentials(
          absl::StrCat("[default]\naws_secret_access_key=", kSecret, "\n", std::string(text)),
          false);
      CheckCredentials(text, false);
      break;
    default:
      CheckCredentials(text, true);
      CheckCredentials(absl::StrCat(R"({"spec":{"secretS3":{"accessSecretKey":")", kSecret, "\",",
                                    std::string(text)),
                       true);
  }
  return 0;
}
