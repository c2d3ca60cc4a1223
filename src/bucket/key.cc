#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"
#include "bucket/bucket.h"

namespace cbt::bucket {
namespace {

constexpr size_t kMaxKeyBytes = 1024;
// A file's name has 255 bytes, and while it is written a suffix.
constexpr size_t kMaxSegmentBytes = 200;

bool IsGoodSegment(std::string_view segment) {
  return !segment.empty() && segment != "." && segment != ".." &&
         segment.size() <= kMaxSegmentBytes &&
         !(segment.front() == '.' && segment.ends_with(kPartialExtension));
}

}  // namespace

absl::Status CheckKey(std::string_view key) {
  bool good = !key.empty() && key.size() <= kMaxKeyBytes && IsUtf8(key);
  for (const char c : key) good &= static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  for (size_t begin = 0; good && begin <= key.size();) {
    const size_t end = std::min(key.find('/', begin), key.size());
    good = IsGoodSegment(key.substr(begin, end - begin));
    begin = end + 1;
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a key of ", key.size(), " bytes can't name an object: keys are UTF-8 of up to ",
      kMaxKeyBytes, " bytes without control characters, of names of up to ", kMaxSegmentBytes,
      " bytes between slashes, none of them . or .. or a partial file's"));
}

}  // namespace cbt::bucket
