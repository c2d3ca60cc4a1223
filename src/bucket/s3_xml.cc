#include "bucket/s3_xml.h"

#include <expat.h>

#include <charconv>
#include <cstdint>
#include <functional>
#include <memory>
#include <system_error>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cbt::bucket {
namespace {

constexpr size_t kMaxDepth = 16;
constexpr size_t kMaxTextBytes = 16 * 1024;  // a key of 1024 bytes, each as %XX, or a token

// Calls `use(path, text)` for each element without children, with the names above it and its own,
// joined by slashes.
class LeafReader {
 public:
  using Use = std::function<void(std::string_view path, const std::string& text)>;

  explicit LeafReader(Use use) : use_(std::move(use)), parser_(XML_ParserCreate(nullptr)) {}

  // False if it is not well-formed, or too deep or long to be S3's.
  bool Read(std::string_view xml) {
    if (parser_ == nullptr) return false;
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), OnStart, OnEnd);
    XML_SetCharacterDataHandler(parser_.get(), OnText);
    XML_SetStartDoctypeDeclHandler(parser_.get(), OnDoctype);
    return XML_Parse(parser_.get(), xml.data(), static_cast<int>(xml.size()), XML_TRUE) ==
               XML_STATUS_OK &&
           !failed_;
  }

 private:
  struct FreeParser {
    void operator()(XML_Parser parser) const noexcept { XML_ParserFree(parser); }
  };

  void Fail() noexcept {
    failed_ = true;
    XML_StopParser(parser_.get(), XML_FALSE);
  }

  // Callbacks are C's: nothing may be thrown through them.
  template <typename Body>
  static void Guarded(void* self, Body body) noexcept {
    auto& reader = *static_cast<LeafReader*>(self);
    if (reader.failed_) return;
    try {
      body(reader);
    } catch (...) {
      reader.Fail();
    }
  }

  static void OnStart(void* self, const XML_Char* name, const XML_Char** /*attributes*/) noexcept {
    Guarded(self, [&](LeafReader& reader) {
      if (reader.lengths_.size() == kMaxDepth) return reader.Fail();
      reader.lengths_.push_back(reader.path_.size());
      absl::StrAppend(&reader.path_, "/", name);
      reader.text_.clear();
      reader.leaf_ = true;
    });
  }
  static void OnEnd(void* self, const XML_Char* /*name*/) noexcept {
    Guarded(self, [&](LeafReader& reader) {
      if (reader.leaf_) reader.use_(reader.path_, reader.text_);
      reader.leaf_ = false;
      reader.path_.resize(reader.lengths_.back());
      reader.lengths_.pop_back();
      reader.text_.clear();
    });
  }
  static void OnText(void* self, const XML_Char* text, int size) noexcept {
    Guarded(self, [&](LeafReader& reader) {
      if (reader.text_.size() + static_cast<size_t>(size) > kMaxTextBytes) return reader.Fail();
      reader.text_.append(text, static_cast<size_t>(size));
    });
  }
  // S3 sends none, and entities are what one is for.
  static void OnDoctype(void* self, const XML_Char*, const XML_Char*, const XML_Char*,
                        int) noexcept {
    static_cast<LeafReader*>(self)->Fail();
  }

  const Use use_;
  const std::unique_ptr<std::remove_pointer_t<XML_Parser>, FreeParser> parser_;
  std::string path_;
  std::vector<size_t> lengths_;
  std::string text_;
  bool leaf_ = false;
  bool failed_ = false;
};

int HexValue(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// False if it is no such encoding.
bool UrlDecode(std::string& text) {
  size_t out = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size()) return false;
      const int high = HexValue(text[i + 1]);
      const int low = HexValue(text[i + 2]);
      if (high < 0 || low < 0) return false;
      text[out++] = static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      text[out++] = text[i] == '+' ? ' ' : text[i];
    }
  }
  text.resize(out);
  return true;
}

}  // namespace

bool ForEachXmlLeaf(
    std::string_view xml,
    const std::function<void(std::string_view path, const std::string& text)>& use) {
  return LeafReader(use).Read(xml);
}

absl::StatusOr<ListPage> ParseListPage(std::string_view xml) {
  constexpr std::string_view kRoot = "/ListBucketResult";
  ListPage page;
  bool encoded = false;
  bool said = false;  // whether it goes on
  bool good = true;
  bool sized = true;  // the last object has its size
  LeafReader reader([&](std::string_view path, const std::string& text) {
    if (!path.starts_with(kRoot)) {
      good = false;
      return;
    }
    path.remove_prefix(kRoot.size());
    if (path == "/Contents/Key") {
      good &= sized;
      page.objects.push_back({.key = text});
      sized = false;
    } else if (path == "/Contents/Size") {
      uint64_t size = 0;
      const char* const end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data(), end, size);
      good &= !sized && error == std::errc() && stop == end;
      if (good) page.objects.back().size = size;
      sized = true;
    } else if (path == "/IsTruncated") {
      said = text == "true" || text == "false";
      page.truncated = text == "true";
    } else if (path == "/NextContinuationToken") {
      page.next_token = text;
    } else if (path == "/EncodingType") {
      encoded = text == "url";
    }
  });
  good = reader.Read(xml) && good && sized && said && page.truncated != page.next_token.empty();
  for (ObjectInfo& object : page.objects) {
    if (encoded) good &= UrlDecode(object.key);
  }
  if (!good) return absl::UnavailableError("the answer is not a page of a list of objects");
  return page;
}

std::string ParseUploadId(std::string_view xml) {
  std::string id;
  LeafReader reader([&](std::string_view path, const std::string& text) {
    if (path == "/InitiateMultipartUploadResult/UploadId") id = text;
  });
  return reader.Read(xml) ? id : std::string();
}

bool IsCompleted(std::string_view xml) {
  bool named = false;
  LeafReader reader([&](std::string_view path, const std::string&) {
    named |= path == "/CompleteMultipartUploadResult/ETag";
  });
  return reader.Read(xml) && named;
}

std::string XmlText(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

S3Error ParseS3Error(std::string_view xml) {
  S3Error error;
  LeafReader reader([&](std::string_view path, const std::string& text) {
    if (path == "/Error/Code") error.code = text;
    if (path == "/Error/Message") error.message = text;
    if (path == "/Error/Region") error.region = text;
  });
  if (!reader.Read(xml)) return {};
  return error;
}

}  // namespace cbt::bucket
