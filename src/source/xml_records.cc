#include "source/xml_records.h"

#include <charconv>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "core/absl_view.h"
#include "source/change_collector.h"

#if CBT_HAVE_EXPAT
#include <expat.h>
#endif

namespace cbt {

std::optional<std::string_view> XmlAttributes::Find(std::string_view name) const noexcept {
  for (const char* const* pair = pairs_; *pair != nullptr; pair += 2) {
    if (name == pair[0]) return std::string_view(pair[1]);
  }
  return std::nullopt;
}

absl::StatusOr<uint64_t> XmlAttributes::Number(std::string_view name) const {
  const std::optional<std::string_view> text = Find(name);
  if (!text.has_value()) {
    return absl::DataLossError(absl::StrCat("attribute ", AbslView(name), " is missing"));
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (text->empty() || error != std::errc() || end != text->data() + text->size()) {
    return absl::DataLossError(absl::StrCat("attribute ", AbslView(name), " is no number: \"",
                                            AbslView(text->substr(0, 40)), "\""));
  }
  return value;
}

#if CBT_HAVE_EXPAT
namespace {

constexpr int kChunkBytes = 64 << 10;

class Reader {
 public:
  explicit Reader(XmlEvents& events) : events_(events), parser_(XML_ParserCreate(nullptr)) {
    if (parser_ == nullptr) return;
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), &Reader::OnOpen, &Reader::OnClose);
    XML_SetStartDoctypeDeclHandler(parser_.get(), &Reader::OnDoctype);
  }

  absl::Status Read(ByteStream& stream) {
    if (parser_ == nullptr) return absl::ResourceExhaustedError("no memory for a parser");
    uint64_t fed = 0;
    for (;;) {
      void* const buffer = XML_GetBuffer(parser_.get(), kChunkBytes);
      if (buffer == nullptr) return absl::ResourceExhaustedError("no memory for a parser's buffer");
      const absl::StatusOr<size_t> count =
          stream.Read({static_cast<uint8_t*>(buffer), static_cast<size_t>(kChunkBytes)});
      if (!count.ok()) return count.status();
      fed += *count;
      const bool last = *count == 0;
      const XML_Status parsed = XML_ParseBuffer(parser_.get(), static_cast<int>(*count), last);
      if (!status_.ok()) return At(stream.label(), Line(), status_);
      if (parsed != XML_STATUS_OK) {
        const XML_Error error = XML_GetErrorCode(parser_.get());
        return absl::DataLossError(
            absl::StrCat(stream.label(), ": ", Line(),
                         last ? ": ends early: " : ": no XML: ", XML_ErrorString(error)));
      }
      if (last) return absl::OkStatus();
      const auto parsed_bytes = static_cast<uint64_t>(XML_GetCurrentByteIndex(parser_.get()));
      if (fed - parsed_bytes > kMaxXmlTagBytes) {
        return absl::DataLossError(absl::StrCat(
            stream.label(), ": ", Line(), ": a tag of more than ", kMaxXmlTagBytes, " bytes"));
      }
    }
  }

 private:
  struct Free {
    void operator()(XML_Parser parser) const noexcept { XML_ParserFree(parser); }
  };

  std::string Line() const {
    return absl::StrCat("line ", XML_GetCurrentLineNumber(parser_.get()));
  }

  void Stop(absl::Status status) {
    status_ = std::move(status);
    XML_StopParser(parser_.get(), XML_FALSE);
  }

  static void XMLCALL OnOpen(void* self, const char* name, const char** attributes) {
    auto& reader = *static_cast<Reader*>(self);
    if (!reader.status_.ok()) return;  // expat ends a tag that is open and closed at once
    absl::Status status;
    if (reader.depth_ == kMaxXmlDepth) {
      status = absl::DataLossError(absl::StrCat("more than ", kMaxXmlDepth, " levels"));
    } else {
      status = reader.events_.Open(reader.depth_++, name, XmlAttributes(attributes));
    }
    if (!status.ok()) reader.Stop(std::move(status));
  }

  static void XMLCALL OnClose(void* self, const char* name) {
    auto& reader = *static_cast<Reader*>(self);
    if (!reader.status_.ok()) return;
    absl::Status status = reader.events_.Close(--reader.depth_, name);
    if (!status.ok()) reader.Stop(std::move(status));
  }

  static void XMLCALL OnDoctype(void* self, const char*, const char*, const char*, int) {
    static_cast<Reader*>(self)->Stop(absl::DataLossError("a document type is not allowed here"));
  }

  XmlEvents& events_;
  std::unique_ptr<std::remove_pointer_t<XML_Parser>, Free> parser_;
  int depth_ = 0;
  absl::Status status_;
};

}  // namespace

absl::Status ReadXml(ByteStream& stream, XmlEvents& events) { return Reader(events).Read(stream); }
#else
absl::Status ReadXml(ByteStream& stream, XmlEvents& events) {
  static_cast<void>(events);
  return absl::UnimplementedError(
      absl::StrCat(stream.label(), ": XML: this library was built without expat"));
}
#endif

}  // namespace cbt
