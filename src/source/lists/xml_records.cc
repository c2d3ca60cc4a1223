#include "source/lists/xml_records.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/units.h"
#include "source/lists/change_collector.h"

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
    return absl::DataLossError(absl::StrCat("attribute ", AbslView(name), " is not a number: \"",
                                            AbslView(text->substr(0, 40)), "\""));
  }
  return value;
}

#if CBT_HAVE_EXPAT
namespace {

constexpr size_t kBufferBytes = 64 * kKiB;

bool IsSpace(char c) noexcept { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

class Memory;
// The newest of this thread: expat's memory functions don't get a context.
thread_local Memory* counting = nullptr;

// Counts the memory of the parsers of its lifetime and thread, and refuses more than
// kMaxXmlMemoryBytes: expat keeps every attribute and element name that it has seen, so a list of
// ever new names would take unlimited memory.
class Memory {
 public:
  Memory() noexcept : outer_(counting) { counting = this; }
  ~Memory() { counting = outer_; }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // An allocation was refused.
  bool refused() const noexcept { return refused_; }

  // For parsers that are used and freed during the lifetime of the newest Memory of this thread.
  static constexpr XML_Memory_Handling_Suite Suite() noexcept {
    return {&Memory::Allocate, &Memory::Reallocate, &Memory::Free};
  }

 private:
  // Precedes every block and holds its size.
  struct alignas(std::max_align_t) Header {
    size_t bytes;
  };

  static void* Allocate(size_t bytes) noexcept { return Reallocate(nullptr, bytes); }

  static void* Reallocate(void* block, size_t bytes) noexcept {
    Header* const old = block != nullptr ? static_cast<Header*>(block) - 1 : nullptr;
    const size_t others = counting->bytes_ - (old != nullptr ? old->bytes : 0);
    if (bytes > kMaxXmlMemoryBytes || bytes + sizeof(Header) > kMaxXmlMemoryBytes - others) {
      counting->refused_ = true;
      return nullptr;
    }
    auto* const header = static_cast<Header*>(std::realloc(old, bytes + sizeof(Header)));
    if (header == nullptr) return nullptr;
    header->bytes = bytes + sizeof(Header);
    counting->bytes_ = others + header->bytes;
    return header + 1;
  }

  static void Free(void* block) noexcept {
    if (block == nullptr) return;
    Header* const header = static_cast<Header*>(block) - 1;
    counting->bytes_ -= header->bytes;
    std::free(header);
  }

  Memory* const outer_;
  size_t bytes_ = 0;
  bool refused_ = false;
};

class XmlReader {
 public:
  explicit XmlReader(XmlEvents& events) : events_(events), buffer_(kBufferBytes) {
    static constexpr XML_Memory_Handling_Suite kSuite = Memory::Suite();
    parser_.reset(XML_ParserCreate_MM(nullptr, &kSuite, nullptr));
    if (parser_ == nullptr) return;
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), &XmlReader::OnOpen, &XmlReader::OnClose);
    XML_SetCharacterDataHandler(parser_.get(), &XmlReader::OnText);
    XML_SetStartDoctypeDeclHandler(parser_.get(), &XmlReader::OnDoctype);
#if XML_MAJOR_VERSION > 2 || (XML_MAJOR_VERSION == 2 && XML_MINOR_VERSION >= 6)
    // A complete tag is reported by the call that completes it.
    XML_SetReparseDeferralEnabled(parser_.get(), XML_FALSE);
#endif
  }

  absl::Status Read(ByteStream& stream) {
    if (parser_ == nullptr) return absl::ResourceExhaustedError("no memory for a parser");
    for (bool last = false; !last;) {
      const absl::StatusOr<size_t> count =
          stream.Read({reinterpret_cast<uint8_t*>(buffer_.data()), buffer_.size()});
      if (!count.ok()) return count.status();
      last = *count == 0;
      if (absl::Status status = Feed(*count, last); !status.ok()) {
        return At(stream.label(), absl::StrCat("line ", XML_GetCurrentLineNumber(parser_.get())),
                  status);
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Free {
    void operator()(XML_Parser parser) const noexcept { XML_ParserFree(parser); }
  };

  // Passes the first `size` bytes of the buffer to expat.
  absl::Status Feed(size_t size, bool last) {
    const XML_Status parsed =
        XML_Parse(parser_.get(), buffer_.data(), static_cast<int>(size), last ? 1 : 0);
    if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
    if (!status_.ok()) return status_;
    fed_ += size;
    if (parsed != XML_STATUS_OK && XML_GetErrorCode(parser_.get()) == XML_ERROR_NO_MEMORY) {
      if (!memory_.refused()) return absl::ResourceExhaustedError("no memory for a parser");
      return absl::ResourceExhaustedError(
          absl::StrCat("the different names of attributes and elements so far take more than ",
                       kMaxXmlMemoryBytes, " bytes of memory"));
    }
    if (parsed != XML_STATUS_OK) {
      return absl::DataLossError(absl::StrCat(last ? "ends early: " : "not XML: ",
                                              XML_ErrorString(XML_GetErrorCode(parser_.get()))));
    }
    if (fed_ - static_cast<uint64_t>(XML_GetCurrentByteIndex(parser_.get())) > kMaxXmlTagBytes) {
      return absl::DataLossError(absl::StrCat("a tag of more than ", kMaxXmlTagBytes, " bytes"));
    }
    return absl::OkStatus();
  }

  void Stop(absl::Status status) {
    status_ = std::move(status);
    XML_StopParser(parser_.get(), XML_FALSE);
  }

  // No exception may pass through expat; Feed() rethrows it.
  template <typename Telling>
  void Guarded(Telling telling) noexcept {
    if (!status_.ok() || thrown_ != nullptr) return;
    try {
      absl::Status status = telling();
      if (!status.ok()) Stop(std::move(status));
    } catch (...) {
      thrown_ = std::current_exception();
      XML_StopParser(parser_.get(), XML_FALSE);
    }
  }

  static void XMLCALL OnOpen(void* self, const char* name, const char** attributes) {
    auto& reader = *static_cast<XmlReader*>(self);
    reader.Guarded([&]() -> absl::Status {
      if (reader.depth_ == kMaxXmlDepth) {
        return absl::DataLossError(absl::StrCat("more than ", kMaxXmlDepth, " levels"));
      }
      return reader.events_.Open(reader.depth_++, name, XmlAttributes(attributes));
    });
  }

  static void XMLCALL OnClose(void* self, const char* name) {
    auto& reader = *static_cast<XmlReader*>(self);
    reader.Guarded([&] { return reader.events_.Close(--reader.depth_, name); });
  }

  // An element that lost its < is text, and so is an error message of the tool in the middle of its
  // list: the blocks that it replaced are unknown.
  static void XMLCALL OnText(void* self, const char* text, int size) {
    static_cast<XmlReader*>(self)->Guarded([&] {
      return std::all_of(text, text + size, IsSpace)
                 ? absl::OkStatus()
                 : absl::DataLossError("text where only elements are allowed");
    });
  }

  static void XMLCALL OnDoctype(void* self, const char*, const char*, const char*, int) {
    static_cast<XmlReader*>(self)->Guarded(
        [] { return absl::DataLossError("a document type is not allowed here"); });
  }

  XmlEvents& events_;
  Memory memory_;  // outlives the parser
  std::unique_ptr<std::remove_pointer_t<XML_Parser>, Free> parser_;
  std::vector<char> buffer_;
  int depth_ = 0;
  uint64_t fed_ = 0;  // bytes
  absl::Status status_;
  std::exception_ptr thrown_;
};

}  // namespace

absl::Status ReadXml(ByteStream& stream, XmlEvents& events) {
  return XmlReader(events).Read(stream);
}
#else
absl::Status ReadXml(ByteStream& stream, XmlEvents& events) {
  static_cast<void>(events);
  return absl::UnimplementedError(
      absl::StrCat(stream.label(), ": XML: this library was built without expat"));
}
#endif

}  // namespace cbt
