#include "source/lists/xml_records.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/absl_view.h"
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
    return absl::DataLossError(absl::StrCat("attribute ", AbslView(name), " is no number: \"",
                                            AbslView(text->substr(0, 40)), "\""));
  }
  return value;
}

#if CBT_HAVE_EXPAT
namespace {

constexpr size_t kBufferBytes = size_t{64} << 10;
constexpr size_t kMaxQuickAttributes = 8;

bool IsSpace(char c) noexcept { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool IsNameStart(char c) noexcept { return (c >= 'a' && c <= 'z') || c == '_'; }
bool IsName(char c) noexcept { return IsNameStart(c) || (c >= '0' && c <= '9'); }
bool IsPlainValue(char c) noexcept { return c >= ' ' && c < '\x7f' && c != '<' && c != '&'; }

// A tag of the kind that lists consist of: small letters, plain values in double quotes. What is
// anything else is left to expat, with all that follows it.
class QuickTag {
 public:
  enum class Kind { kOther, kOpen, kClose, kEmpty };

  // The tag [begin, end), from its < to its >.
  Kind Parse(char* begin, const char* end) noexcept {
    const char* const last = end - 1;
    char* at = begin + 1;
    const bool close = at < last && *at == '/';
    if (close) ++at;
    name_ = at;
    if (at == last || !IsNameStart(*at)) return Kind::kOther;
    while (at < last && IsName(*at)) ++at;
    name_size_ = static_cast<size_t>(at - name_);
    count_ = 0;
    for (;;) {
      char* const space = at;
      while (at < last && IsSpace(*at)) ++at;
      if (at == last) return close ? Kind::kClose : Kind::kOpen;
      if (close) return Kind::kOther;
      if (*at == '/') return at + 1 == last ? Kind::kEmpty : Kind::kOther;
      if (at == space || count_ == kMaxQuickAttributes || !IsNameStart(*at)) return Kind::kOther;
      Attribute& attribute = attributes_[count_];
      attribute.name = at;
      while (at < last && IsName(*at)) ++at;
      attribute.name_end = at;
      while (at < last && IsSpace(*at)) ++at;
      if (at == last || *at++ != '=') return Kind::kOther;
      while (at < last && IsSpace(*at)) ++at;
      if (at == last || *at++ != '"') return Kind::kOther;
      attribute.value = at;
      while (at < last && *at != '"') {
        if (!IsPlainValue(*at)) return Kind::kOther;
        ++at;
      }
      if (at == last) return Kind::kOther;
      attribute.value_end = at++;
      for (size_t i = 0; i < count_; ++i) {
        if (NameOf(attributes_[i]) == NameOf(attribute)) return Kind::kOther;
      }
      ++count_;
    }
  }

  std::string_view name() const noexcept { return {name_, name_size_}; }

  // The attributes, as XmlAttributes wants them; overwrites what stands behind each.
  XmlAttributes Take() noexcept {
    for (size_t i = 0; i < count_; ++i) {
      *attributes_[i].name_end = '\0';
      *attributes_[i].value_end = '\0';
      pairs_[2 * i] = attributes_[i].name;
      pairs_[2 * i + 1] = attributes_[i].value;
    }
    pairs_[2 * count_] = nullptr;
    return XmlAttributes(pairs_.data());
  }

 private:
  struct Attribute {
    const char* name;
    char* name_end;
    const char* value;
    char* value_end;
  };
  static std::string_view NameOf(const Attribute& attribute) noexcept {
    return {attribute.name, static_cast<size_t>(attribute.name_end - attribute.name)};
  }

  const char* name_ = nullptr;
  size_t name_size_ = 0;
  size_t count_ = 0;
  std::array<Attribute, kMaxQuickAttributes> attributes_;
  std::array<const char*, 2 * kMaxQuickAttributes + 1> pairs_;
};

class Memory;
// The newest of this thread: expat's calls for memory do not say for whom.
thread_local Memory* counting = nullptr;

// Counts what the parsers of its time and thread have in memory, and refuses them more than
// kMaxXmlMemoryBytes: expat keeps the name of every attribute and element that it has ever seen, so
// that a list that never uses one twice would cost memory without end.
class Memory {
 public:
  Memory() noexcept : outer_(counting) { counting = this; }
  ~Memory() { counting = outer_; }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // It was asked for more.
  bool refused() const noexcept { return refused_; }

  // For parsers that are used and freed before the newest Memory of this thread goes.
  static constexpr XML_Memory_Handling_Suite Suite() noexcept {
    return {&Memory::Allocate, &Memory::Reallocate, &Memory::Free};
  }

 private:
  // In front of every block, so that it tells its size when it is freed.
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

class Reader {
 public:
  Reader(XmlEvents& events, bool quick) : events_(events), quick_(quick), buffer_(kBufferBytes) {
    static constexpr XML_Memory_Handling_Suite kSuite = Memory::Suite();
    parser_.reset(XML_ParserCreate_MM(nullptr, &kSuite, nullptr));
    if (parser_ == nullptr) return;
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(parser_.get(), &Reader::OnOpen, &Reader::OnClose);
    XML_SetCharacterDataHandler(parser_.get(), &Reader::OnText);
    XML_SetStartDoctypeDeclHandler(parser_.get(), &Reader::OnDoctype);
#if XML_MAJOR_VERSION > 2 || (XML_MAJOR_VERSION == 2 && XML_MINOR_VERSION >= 6)
    // A tag that was handed over as a whole has been looked at when the call returns.
    XML_SetReparseDeferralEnabled(parser_.get(), XML_FALSE);
#endif
  }

  absl::Status Read(ByteStream& stream) {
    if (parser_ == nullptr) return absl::ResourceExhaustedError("no memory for a parser");
    absl::Status status;
    size_t there = 0;  // bytes in the buffer
    for (bool last = false; !last;) {
      const absl::StatusOr<size_t> count =
          stream.Read({reinterpret_cast<uint8_t*>(buffer_.data()) + there, kBufferBytes - there});
      if (!count.ok()) return count.status();
      last = *count == 0;
      there += *count;
      size_t done = 0;
      status = quick_ ? Quickly(there, done) : absl::OkStatus();
      // A tag, a comment or white space that fills the buffer is none of the quick kind.
      if (status.ok() && quick_ && done == 0 && there == kBufferBytes) status = LeaveToExpat();
      if (status.ok() && (!quick_ || last)) {
        status = Feed(done, there);
        done = there;
      }
      if (status.ok() && last) status = Feed(0, 0, true);
      if (!status.ok()) return At(stream.label(), Line(), status);
      std::memmove(buffer_.data(), buffer_.data() + done, there - done);
      there -= done;
    }
    return absl::OkStatus();
  }

 private:
  struct Free {
    void operator()(XML_Parser parser) const noexcept { XML_ParserFree(parser); }
  };

  std::string Line() const {
    return absl::StrCat("line ", XML_GetCurrentLineNumber(parser_.get()) + lines_passed_);
  }

  // Hands bytes [begin, end) of the buffer to expat.
  absl::Status Feed(size_t begin, size_t end, bool last = false) {
    return Feed(std::string_view(buffer_.data() + begin, end - begin), last);
  }

  absl::Status Feed(std::string_view bytes, bool last) {
    const XML_Status parsed =
        XML_Parse(parser_.get(), bytes.data(), static_cast<int>(bytes.size()), last ? 1 : 0);
    if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
    if (!status_.ok()) return status_;
    fed_ += bytes.size();
    if (parsed != XML_STATUS_OK && XML_GetErrorCode(parser_.get()) == XML_ERROR_NO_MEMORY) {
      if (!memory_.refused()) return absl::ResourceExhaustedError("no memory for a parser");
      return absl::ResourceExhaustedError(
          absl::StrCat("the different names of attributes and elements so far take more than ",
                       kMaxXmlMemoryBytes, " bytes of memory"));
    }
    if (parsed != XML_STATUS_OK) {
      return absl::DataLossError(absl::StrCat(last ? "ends early: " : "no XML: ",
                                              XML_ErrorString(XML_GetErrorCode(parser_.get()))));
    }
    if (fed_ - static_cast<uint64_t>(XML_GetCurrentByteIndex(parser_.get())) > kMaxXmlTagBytes) {
      return absl::DataLossError(absl::StrCat("a tag of more than ", kMaxXmlTagBytes, " bytes"));
    }
    return absl::OkStatus();
  }

  // Reads tags of the quick kind. Inside of the document's element it tells of them by itself;
  // expat sees none of them unless something comes that is left to it, and then those that are
  // open. `done` becomes the number of bytes that have been dealt with.
  absl::Status Quickly(size_t there, size_t& done) {
    char* const bytes = buffer_.data();
    for (;;) {
      size_t at = done;
      while (at < there && IsSpace(bytes[at])) ++at;
      if (at == there) return absl::OkStatus();
      if (bytes[at] != '<') break;
      const auto* const close = static_cast<const char*>(std::memchr(bytes + at, '>', there - at));
      if (close == nullptr) return absl::OkStatus();
      const auto end = static_cast<size_t>(close - bytes) + 1;
      QuickTag tag;
      const QuickTag::Kind kind = tag.Parse(bytes + at, bytes + end);
      if (kind == QuickTag::Kind::kOther || depth_ == kMaxXmlDepth) break;
      // The document's own element is expat's.
      if (depth_ == 0 || (kind == QuickTag::Kind::kClose && open_.empty())) {
        if (absl::Status status = Feed(done, end); !status.ok()) return status;
      } else {
        lines_passed_ += Lines(done, at);
        const uint64_t lines = Lines(at, end);
        if (absl::Status status = Tell(kind, tag); !status.ok()) return status;
        lines_passed_ += lines;
      }
      done = end;
    }
    return LeaveToExpat();
  }

  // Expat has all from here on, also what is in the buffer. It has to see the elements that are
  // open first: else it would take their ends for mismatched, and a list without them for whole.
  absl::Status LeaveToExpat() {
    quick_ = false;
    replaying_ = true;
    for (const std::string& name : open_) {
      if (absl::Status status = Feed(absl::StrCat("<", name, ">"), false); !status.ok()) {
        return status;
      }
    }
    replaying_ = false;
    return absl::OkStatus();
  }

  absl::Status Tell(QuickTag::Kind kind, QuickTag& tag) {
    if (kind == QuickTag::Kind::kClose) {
      if (open_.back() != tag.name()) return absl::DataLossError("no XML: mismatched tag");
      open_.pop_back();
      return events_.Close(--depth_, tag.name());
    }
    absl::Status status = events_.Open(depth_, tag.name(), tag.Take());
    if (kind == QuickTag::Kind::kOpen) {
      open_.emplace_back(tag.name());
      ++depth_;
    } else if (status.ok()) {
      status = events_.Close(depth_, tag.name());
    }
    return status;
  }

  uint64_t Lines(size_t begin, size_t end) const noexcept {
    return static_cast<uint64_t>(std::count(buffer_.begin() + static_cast<std::ptrdiff_t>(begin),
                                            buffer_.begin() + static_cast<std::ptrdiff_t>(end),
                                            '\n'));
  }

  void Stop(absl::Status status) {
    status_ = std::move(status);
    XML_StopParser(parser_.get(), XML_FALSE);
  }

  // Nothing may be thrown through expat; what is comes out of Feed().
  template <typename Telling>
  void Guarded(Telling telling) noexcept {
    if (!status_.ok() || thrown_ != nullptr || replaying_) return;
    try {
      absl::Status status = telling();
      if (!status.ok()) Stop(std::move(status));
    } catch (...) {
      thrown_ = std::current_exception();
      XML_StopParser(parser_.get(), XML_FALSE);
    }
  }

  static void XMLCALL OnOpen(void* self, const char* name, const char** attributes) {
    auto& reader = *static_cast<Reader*>(self);
    reader.Guarded([&]() -> absl::Status {
      if (reader.depth_ == kMaxXmlDepth) {
        return absl::DataLossError(absl::StrCat("more than ", kMaxXmlDepth, " levels"));
      }
      return reader.events_.Open(reader.depth_++, name, XmlAttributes(attributes));
    });
  }

  static void XMLCALL OnClose(void* self, const char* name) {
    auto& reader = *static_cast<Reader*>(self);
    reader.Guarded([&] { return reader.events_.Close(--reader.depth_, name); });
  }

  // An element that lost its < is text, and so is what a tool said in the midst of its list: what
  // the list told there is not known.
  static void XMLCALL OnText(void* self, const char* text, int size) {
    static_cast<Reader*>(self)->Guarded([&] {
      return std::all_of(text, text + size, IsSpace)
                 ? absl::OkStatus()
                 : absl::DataLossError("text where only elements may stand");
    });
  }

  static void XMLCALL OnDoctype(void* self, const char*, const char*, const char*, int) {
    static_cast<Reader*>(self)->Guarded(
        [] { return absl::DataLossError("a document type is not allowed here"); });
  }

  XmlEvents& events_;
  bool quick_;     // nothing has come yet that is left to expat
  Memory memory_;  // outlives the parser
  std::unique_ptr<std::remove_pointer_t<XML_Parser>, Free> parser_;
  std::vector<char> buffer_;
  int depth_ = 0;
  std::vector<std::string> open_;  // elements that expat has not seen
  bool replaying_ = false;         // those are shown to it
  uint64_t fed_ = 0;               // bytes
  uint64_t lines_passed_ = 0;      // that expat has not seen
  absl::Status status_;
  std::exception_ptr thrown_;
};

}  // namespace

absl::Status ReadXml(ByteStream& stream, XmlEvents& events, bool quick) {
  return Reader(events, quick).Read(stream);
}
#else
absl::Status ReadXml(ByteStream& stream, XmlEvents& events, bool quick) {
  static_cast<void>(events);
  static_cast<void>(quick);
  return absl::UnimplementedError(
      absl::StrCat(stream.label(), ": XML: this library was built without expat"));
}
#endif

}  // namespace cbt
