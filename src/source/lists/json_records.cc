#include "source/lists/json_records.h"

#include <array>
#include <charconv>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "source/lists/change_collector.h"

#if CBT_HAVE_RAPIDJSON
// RapidJSON's assertions must not end the program; the parser gets no input that violates one.
#define RAPIDJSON_ASSERT(condition) ((void)0)
#include "rapidjson/error/en.h"
#include "rapidjson/reader.h"
#endif

namespace cbt {

std::optional<uint64_t> JsonScalar::AsNumber() const noexcept {
  if (kind == Kind::kNumber) return number;
  if (kind != Kind::kString || string.empty()) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(string.data(), string.data() + string.size(), value);
  if (error != std::errc() || end != string.data() + string.size()) return std::nullopt;
  return value;
}

std::optional<bool> JsonScalar::AsBool() const noexcept {
  if (kind == Kind::kBool) return boolean;
  if (kind != Kind::kString) return std::nullopt;
  if (string == "true") return true;
  if (string == "false") return false;
  return std::nullopt;
}

absl::Status TakeNumber(std::string_view key, const JsonScalar& value, std::optional<uint64_t>& out,
                        bool spelt) {
  const std::optional<uint64_t> number = value.AsNumber();
  if (!number.has_value() || out.has_value() ||
      (value.kind != JsonScalar::Kind::kNumber && !spelt)) {
    return absl::DataLossError(
        absl::StrCat("\"", AbslView(key), "\" is duplicated or not a number"));
  }
  out = number;
  return absl::OkStatus();
}

absl::Status JsonPages::Open(int depth, std::string_view key, bool array) {
  if (depth == 0) {
    around_ = array ? 1 : 0;
    if (array) return absl::OkStatus();
  }
  if (depth > around_) return OnOpen(depth - around_, key, array);
  return array ? absl::DataLossError("a page that is not an object") : OnPage();
}

absl::Status JsonPages::Close(int depth, bool array) {
  if (depth > around_) return OnClose(depth - around_, array);
  return depth == around_ ? OnPageEnd() : absl::OkStatus();
}

absl::Status JsonPages::Value(int depth, std::string_view key, const JsonScalar& value) {
  if (depth <= around_) return absl::DataLossError("a page that is not an object");
  return OnValue(depth - around_, key, value);
}

#if CBT_HAVE_RAPIDJSON
namespace {

// RapidJSON's input stream. It takes a NUL as the end; a NUL in the input, an unterminated value
// and a failure are distinguished afterwards.
class Input {
 public:
  using Ch = char;

  explicit Input(ByteStream& stream) : stream_(stream) { Fill(); }

  Ch Peek() const noexcept { return at_ < end_ ? buffer_[at_] : '\0'; }

  Ch Take() {
    if (at_ == end_) return '\0';
    const Ch taken = buffer_[at_++];
    if (at_ == end_) Fill();
    return taken;
  }

  size_t Tell() const noexcept { return static_cast<size_t>(before_) + at_; }

  // Only used for in-situ parsing.
  void Put(Ch) noexcept {}
  void Flush() noexcept {}
  Ch* PutBegin() noexcept { return nullptr; }
  size_t PutEnd(Ch*) noexcept { return 0; }

  // A value begins here.
  void Mark() noexcept { mark_ = Tell(); }

  bool at_end() const noexcept { return at_ == end_; }
  const absl::Status& status() const noexcept { return status_; }

  // Skips white space before the next document.
  void SkipSpace() {
    while (!at_end() && (Peek() == ' ' || Peek() == '\n' || Peek() == '\r' || Peek() == '\t')) {
      Take();
    }
    Mark();
  }

 private:
  void Fill() {
    before_ += end_;
    at_ = end_ = 0;
    if (!status_.ok()) return;
    if (before_ > mark_ + kMaxJsonValueBytes) {
      status_ = absl::DataLossError(
          absl::StrCat("byte ", mark_, ": a value of more than ", kMaxJsonValueBytes, " bytes"));
      return;
    }
    const absl::StatusOr<size_t> count =
        stream_.Read({reinterpret_cast<uint8_t*>(buffer_.data()), buffer_.size()});
    if (count.ok()) {
      end_ = *count;
    } else {
      status_ = count.status();
    }
  }

  ByteStream& stream_;
  std::vector<char> buffer_ = std::vector<char>(64 * kKiB);
  size_t at_ = 0;
  size_t end_ = 0;
  uint64_t before_ = 0;  // bytes before the buffer
  uint64_t mark_ = 0;
  absl::Status status_;
};

// Translates RapidJSON's events to ours.
class Handler {
 public:
  Handler(Input& input, JsonEvents& events) : input_(input), events_(events) {}

  using Kind = JsonScalar::Kind;
  // RapidJSON requires these names. NOLINTBEGIN(readability-identifier-naming)
  bool Null() { return Say({}); }
  bool Bool(bool value) { return Say({.kind = Kind::kBool, .boolean = value}); }
  bool Int(int value) { return Int64(value); }
  bool Uint(unsigned value) { return Uint64(value); }
  bool Int64(int64_t) { return Say({.kind = Kind::kOther}); }
  bool Uint64(uint64_t value) { return Say({.kind = Kind::kNumber, .number = value}); }
  bool Double(double) { return Say({.kind = Kind::kOther}); }
  bool RawNumber(const char*, unsigned, bool) { return Say({.kind = Kind::kOther}); }
  bool String(const char* text, unsigned size, bool) {
    return Say({.kind = Kind::kString, .string = {text, size}});
  }
  bool Key(const char* text, unsigned size, bool) {
    input_.Mark();
    key_.assign(text, size);
    return true;
  }
  bool StartObject() { return Start(false); }
  bool EndObject(unsigned) { return End(false); }
  bool StartArray() { return Start(true); }
  bool EndArray(unsigned) { return End(true); }
  // NOLINTEND(readability-identifier-naming)

  const absl::Status& status() const noexcept { return status_; }

 private:
  std::string_view KeyHere() const noexcept {
    return depth_ > 0 && !array_[static_cast<size_t>(depth_ - 1)] ? std::string_view(key_)
                                                                  : std::string_view();
  }

  bool Say(const JsonScalar& value) {
    input_.Mark();
    status_ = events_.Value(depth_, KeyHere(), value);
    return status_.ok();
  }

  bool Start(bool array) {
    input_.Mark();
    if (depth_ == kMaxJsonDepth) {
      status_ = absl::DataLossError(absl::StrCat("more than ", kMaxJsonDepth, " levels"));
      return false;
    }
    status_ = events_.Open(depth_, KeyHere(), array);
    array_[static_cast<size_t>(depth_++)] = array;
    return status_.ok();
  }

  bool End(bool array) {
    input_.Mark();
    status_ = events_.Close(--depth_, array);
    return status_.ok();
  }

  Input& input_;
  JsonEvents& events_;
  int depth_ = 0;
  std::array<bool, kMaxJsonDepth> array_ = {};
  std::string key_;
  absl::Status status_;
};

}  // namespace

absl::Status ReadJson(ByteStream& stream, JsonEvents& events) {
  Input input(stream);
  bool any = false;
  for (;;) {
    input.SkipSpace();
    if (!input.status().ok()) return At(stream.label(), "", input.status());
    if (input.at_end() && any) return absl::OkStatus();
    any = true;
    Handler handler(input, events);
    rapidjson::GenericReader<rapidjson::UTF8<>, rapidjson::UTF8<>> reader;
    // Iterative: recursion would let the input exhaust the stack.
    const rapidjson::ParseResult result =
        reader.Parse<rapidjson::kParseIterativeFlag | rapidjson::kParseStopWhenDoneFlag>(input,
                                                                                         handler);
    if (!input.status().ok()) return At(stream.label(), "", input.status());
    if (!handler.status().ok()) {
      return At(stream.label(), absl::StrCat("byte ", input.Tell()), handler.status());
    }
    if (result.IsError()) {
      return absl::DataLossError(absl::StrCat(stream.label(), ": byte ", result.Offset(),
                                              input.at_end() ? ": ends early: " : ": not JSON: ",
                                              rapidjson::GetParseError_En(result.Code())));
    }
  }
}
#else
absl::Status ReadJson(ByteStream& stream, JsonEvents& events) {
  static_cast<void>(events);
  return absl::UnimplementedError(
      absl::StrCat(stream.label(), ": JSON: this library was built without RapidJSON"));
}
#endif

}  // namespace cbt
