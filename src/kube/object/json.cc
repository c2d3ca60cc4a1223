#include "kube/object/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/charconv.h"
#include "absl/strings/str_cat.h"
#include "rapidjson/error/en.h"
#include "rapidjson/reader.h"
#include "rapidjson/stringbuffer.h"
#include "rapidjson/writer.h"

namespace cbt::kube::json {
namespace {

using Document = rapidjson::GenericDocument<rapidjson::UTF8<>, WipingAllocator, WipingAllocator>;
using Reader = rapidjson::GenericReader<rapidjson::UTF8<>, rapidjson::UTF8<>, WipingAllocator>;

using TextBuffer = rapidjson::GenericStringBuffer<rapidjson::UTF8<>, WipingAllocator>;
using TextWriter =
    rapidjson::Writer<TextBuffer, rapidjson::UTF8<>, rapidjson::UTF8<>, WipingAllocator>;

constexpr size_t kStackBytes = 1024;

// A text as RapidJSON reads one: bounded, and without a zero at its end. A zero inside is no end.
class TextStream {
 public:
  using Ch = char;  // NOLINT(readability-identifier-naming): RapidJSON's name

  explicit TextStream(std::string_view text)
      : begin_(text.data()), at_(begin_), end_(begin_ + text.size()) {}

  // NOLINTBEGIN(readability-identifier-naming): RapidJSON's names
  char Peek() const noexcept { return at_ == end_ ? '\0' : *at_; }
  char Take() noexcept { return at_ == end_ ? '\0' : *at_++; }
  size_t Tell() const noexcept { return static_cast<size_t>(at_ - begin_); }
  // Only for output, which a source is not.
  char* PutBegin() noexcept { return nullptr; }
  void Put(char /*c*/) noexcept {}
  void Flush() noexcept {}
  size_t PutEnd(char* /*begin*/) noexcept { return 0; }
  // NOLINTEND(readability-identifier-naming)

  bool AtEnd() const noexcept { return at_ == end_; }

 private:
  const char* const begin_;
  const char* at_;
  const char* const end_;
};

// Passes events on to a document up to a depth. Reserves the memory that a document takes for an
// event before it gets the event: one that gets none is left with a damaged stack.
template <typename Handler>
class GuardedHandler {
 public:
  GuardedHandler(Handler& handler, WipingAllocator& allocator, int max_depth, size_t max_values)
      : handler_(handler), allocator_(allocator), left_(max_depth), values_left_(max_values) {}

  bool too_deep() const noexcept { return left_ < 0; }
  bool too_large() const noexcept { return too_large_; }  // a number
  bool too_many() const noexcept { return too_many_; }

  // NOLINTBEGIN(readability-identifier-naming): RapidJSON's names
  bool Null() { return OneMore() && handler_.Null(); }
  bool Bool(bool value) { return OneMore() && handler_.Bool(value); }
  bool Int(int value) { return handler_.Int(value); }
  bool Uint(unsigned value) { return handler_.Uint(value); }
  bool Int64(int64_t value) { return handler_.Int64(value); }
  bool Uint64(uint64_t value) { return handler_.Uint64(value); }
  bool Double(double value) { return handler_.Double(value); }
  // Converted here: RapidJSON's own reader makes 6e293 of 0E96, and more of the kind.
  bool RawNumber(const char* text, rapidjson::SizeType size, bool /*copy*/) {
    if (!OneMore()) return false;
    const char* const end = text + size;
    if (std::all_of(text + (*text == '-' ? 1 : 0), end, absl::ascii_isdigit)) {
      int64_t whole = 0;
      if (std::from_chars(text, end, whole).ec == std::errc()) return handler_.Int64(whole);
      uint64_t large = 0;
      if (std::from_chars(text, end, large).ec == std::errc()) return handler_.Uint64(large);
    }
    double value = 0;
    const absl::from_chars_result read = absl::from_chars(text, end, value);
    // A number that is too small becomes the nearest one that exists.
    too_large_ = read.ec != std::errc() && std::abs(value) > 1;
    return !too_large_ && handler_.Double(value);
  }
  bool String(const char* text, rapidjson::SizeType size, bool copy) {
    if (!OneMore()) return false;
    ReserveText(size);
    return handler_.String(text, size, copy);
  }
  bool Key(const char* text, rapidjson::SizeType size, bool copy) {
    if (!OneMore()) return false;
    ReserveText(size);
    return handler_.Key(text, size, copy);
  }
  bool StartObject() { return --left_ >= 0 && OneMore() && handler_.StartObject(); }
  bool EndObject(rapidjson::SizeType count) {
    ++left_;
    allocator_.Reserve(count * sizeof(Value::Member));
    return handler_.EndObject(count);
  }
  bool StartArray() { return --left_ >= 0 && OneMore() && handler_.StartArray(); }
  bool EndArray(rapidjson::SizeType count) {
    ++left_;
    allocator_.Reserve(count * sizeof(Value));
    return handler_.EndArray(count);
  }
  // NOLINTEND(readability-identifier-naming)

 private:
  bool OneMore() noexcept {
    too_many_ = values_left_ == 0;
    if (!too_many_) --values_left_;
    return !too_many_;
  }
  // Values hold short texts in themselves.
  void ReserveText(size_t size) {
    constexpr size_t kShort = 8;
    if (size > kShort) allocator_.Reserve(size + 1);
  }

  Handler& handler_;
  WipingAllocator& allocator_;
  int left_;
  size_t values_left_;
  bool too_large_ = false;
  bool too_many_ = false;
};

bool HasKeyTwice(const Value& object) {
  const auto members = Members(object);
  // Most objects are small.
  constexpr size_t kFew = 16;
  if (members.size() <= kFew) {
    for (size_t i = 1; i < members.size(); ++i) {
      const std::string_view key = View(members[i].name);
      for (size_t j = 0; j < i; ++j) {
        if (View(members[j].name) == key) return true;
      }
    }
    return false;
  }
  std::vector<std::string_view> keys;
  keys.reserve(members.size());
  for (const auto& member : members) keys.push_back(View(member.name));
  std::sort(keys.begin(), keys.end());
  return std::adjacent_find(keys.begin(), keys.end()) != keys.end();
}

// Whether an object anywhere in `value`, which is not deeper than Parse() allows, has a key twice.
bool AnyKeyTwice(const Value& value) {
  if (value.IsArray()) {
    const auto list = value.GetArray();
    return std::any_of(list.begin(), list.end(), AnyKeyTwice);
  }
  if (!value.IsObject()) return false;
  if (HasKeyTwice(value)) return true;
  const auto members = Members(value);
  return std::any_of(members.begin(), members.end(),
                     [](const auto& member) { return AnyKeyTwice(member.value); });
}

}  // namespace

WipingAllocator& Allocator() noexcept {
  static WipingAllocator allocator;
  return allocator;
}

absl::Status Parse(std::string_view text, int max_depth, Value& value, size_t max_values) {
  absl::Status status;
  WipingAllocator allocator;
  Document document(&allocator, kStackBytes, &Allocator());
  const auto generate = [&](Document& handler) {
    TextStream stream(text);
    GuardedHandler<Document> guarded(handler, allocator, max_depth, max_values);
    Reader reader(&Allocator(), kStackBytes);
    const rapidjson::ParseResult result =
        reader.Parse<rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag |
                     rapidjson::kParseNumbersAsStringsFlag | rapidjson::kParseStopWhenDoneFlag>(
            stream, guarded);
    if (guarded.too_deep()) {
      status = absl::InvalidArgumentError(
          absl::StrCat("JSON at byte ", stream.Tell(), ": nested deeper than ", max_depth));
      return false;
    }
    if (guarded.too_many()) {
      status = absl::InvalidArgumentError(
          absl::StrCat("JSON at byte ", stream.Tell(), ": more than ", max_values, " values"));
      return false;
    }
    if (guarded.too_large()) {
      status = absl::InvalidArgumentError(
          absl::StrCat("JSON at byte ", stream.Tell(), ": a number is too large"));
      return false;
    }
    if (result.IsError()) {
      status = absl::InvalidArgumentError(absl::StrCat("JSON at byte ", result.Offset(), ": ",
                                                       rapidjson::GetParseError_En(result.Code())));
      return false;
    }
    rapidjson::SkipWhitespace(stream);
    if (!stream.AtEnd()) {
      status = absl::InvalidArgumentError(
          absl::StrCat("JSON at byte ", stream.Tell(), ": more follows the end of the value"));
      return false;
    }
    return true;
  };
  document.Populate(generate);
  if (!status.ok()) return status;
  // Readers differ in which of the two counts: the first, or the last as in Go.
  if (AnyKeyTwice(document)) {
    return absl::InvalidArgumentError("JSON: an object has the same key twice");
  }
  value.Swap(static_cast<Value&>(document));
  return absl::OkStatus();
}

std::string ToText(const Value& value) {
  TextBuffer buffer(&Allocator());
  TextWriter writer(buffer, &Allocator());
  value.Accept(writer);
  return {buffer.GetString(), buffer.GetSize()};
}

std::string ToText(const Value& object, const Edits& edits) {
  TextBuffer buffer(&Allocator());
  TextWriter writer(buffer, &Allocator());
  const auto write_key = [&](std::string_view key) {
    writer.Key(key.data(), static_cast<rapidjson::SizeType>(key.size()));
  };
  const auto write_text = [&](std::string_view text) {
    writer.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
  };
  const std::span members = Members(object);
  writer.StartObject();
  for (const auto& member : members) {
    const std::string_view name = View(member.name);
    write_key(name);
    const auto edit = std::find_if(edits.set.begin(), edits.set.end(),
                                   [&](const Edits::Member& set) { return set.key == name; });
    if (edit != edits.set.end()) {
      write_text(edit->value);
    } else if (name == edits.parent && member.value.IsObject()) {
      writer.StartObject();
      for (const auto& child : Members(member.value)) {
        if (View(child.name) == edits.child) continue;
        write_key(View(child.name));
        child.value.Accept(writer);
      }
      writer.EndObject();
    } else {
      member.value.Accept(writer);
    }
  }
  for (const Edits::Member& set : edits.set) {
    const bool replaced = std::any_of(members.begin(), members.end(), [&](const auto& member) {
      return View(member.name) == set.key;
    });
    if (replaced) continue;
    write_key(set.key);
    write_text(set.value);
  }
  writer.EndObject();
  return {buffer.GetString(), buffer.GetSize()};
}

Value Copy(const Value& value) {
  switch (value.GetType()) {
    case rapidjson::kStringType:
      return MakeString(View(value));
    case rapidjson::kArrayType: {
      Value list(rapidjson::kArrayType);
      list.Reserve(value.Size(), Allocator());
      for (const Value& element : value.GetArray()) list.PushBack(Copy(element), Allocator());
      return list;
    }
    case rapidjson::kObjectType: {
      Value object(rapidjson::kObjectType);
      for (const auto& member : value.GetObject()) {
        object.AddMember(Copy(member.name), Copy(member.value), Allocator());
      }
      return object;
    }
    default:
      return Value(value, Allocator());  // holds no memory
  }
}

Value MakeString(std::string_view text) {
  return Value(text.data() == nullptr ? "" : text.data(),
               static_cast<rapidjson::SizeType>(text.size()), Allocator());
}

const Value* Find(const Value& object, std::string_view key) noexcept {
  if (!object.IsObject()) return nullptr;
  // Not through FindMember(), which wants its key as a value.
  for (auto member = object.MemberBegin(); member != object.MemberEnd(); ++member) {
    if (View(member->name) == key) return member->value.IsNull() ? nullptr : &member->value;
  }
  return nullptr;
}

std::string_view TypeName(const Value& value) noexcept {
  switch (value.GetType()) {
    case rapidjson::kNullType:
      return "null";
    case rapidjson::kFalseType:
    case rapidjson::kTrueType:
      return "a boolean";
    case rapidjson::kObjectType:
      return "an object";
    case rapidjson::kArrayType:
      return "a list";
    case rapidjson::kStringType:
      return "a string";
    default:
      return "a number";
  }
}

}  // namespace cbt::kube::json
