// The XML of S3: a page of a list, and errors.
#ifndef CBT_BUCKET_S3_XML_H_
#define CBT_BUCKET_S3_XML_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bucket/bucket.h"

namespace cbt::bucket {

// Calls `use(path, text)` for each element without children; the path has the names above it and its
// own: "/Tagging/TagSet/Tag/Key". False for what is not well-formed, has a document type, or is too
// deep or long to be S3's; elements before the mistake have been used then.
bool ForEachXmlLeaf(std::string_view xml,
                    const std::function<void(std::string_view path, const std::string& text)>& use);

struct ListPage {
  std::vector<ObjectInfo> objects = {};
  bool truncated = false;
  std::string next_token = {};
};

// A page of ListObjectsV2, with keys as they are ("encoding-type=url" is undone).
// Errors: UNAVAILABLE for anything else, also for a page that says neither that it is the last one
//         nor how to go on.
absl::StatusOr<ListPage> ParseListPage(std::string_view xml);

struct S3Error {
  std::string code = {};
  std::string message = {};
  std::string region = {};
};

// Empty if the body is no error of S3.
S3Error ParseS3Error(std::string_view xml);

// The name of an upload in parts that has begun; empty if this is no such answer.
std::string ParseUploadId(std::string_view xml);

// Whether this says that an upload in parts is done.
bool IsCompleted(std::string_view xml);

// `text` as the content of an element.
std::string XmlText(std::string_view text);

}  // namespace cbt::bucket

#endif  // CBT_BUCKET_S3_XML_H_
