// JSON on one line, piece by piece. RapidJSON's writer is not always there, and does not mend text
// that is not UTF-8.
#ifndef CBT_BASE_JSON_BUILDER_H_
#define CBT_BASE_JSON_BUILDER_H_

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace cbt {

// Writes commas. That brackets match and that keys stand in objects is for the caller.
class JsonBuilder {
 public:
  JsonBuilder() = default;
  // Goes on behind `text`, which ends with a member of an object or array that is not closed.
  explicit JsonBuilder(std::string text) : text_(std::move(text)), comma_(true) {}

  JsonBuilder& BeginObject() { return Begin('{'); }
  JsonBuilder& EndObject() { return End('}'); }
  JsonBuilder& BeginArray() { return Begin('['); }
  JsonBuilder& EndArray() { return End(']'); }

  JsonBuilder& Key(std::string_view key);
  // A text is written as JsonString() has it.
  template <typename T>
  JsonBuilder& Value(const T& value) {
    if constexpr (std::same_as<T, bool>) {
      return Raw(value ? "true" : "false");
    } else if constexpr (std::is_integral_v<T>) {
      char digits[24] = {};
      return Raw({digits, std::to_chars(digits, digits + sizeof digits, value).ptr});
    } else {
      return Text(value);
    }
  }
  template <typename T>
  JsonBuilder& Field(std::string_view key, const T& value) {
    return Key(key).Value(value);
  }
  // A value that is JSON already.
  JsonBuilder& Raw(std::string_view json);

  std::string Take() { return std::move(text_); }

 private:
  JsonBuilder& Begin(char bracket);
  JsonBuilder& End(char bracket);
  JsonBuilder& Text(std::string_view text);
  void Separate() {
    if (comma_) text_ += ',';
    comma_ = true;
  }

  std::string text_;
  bool comma_ = false;  // before the next key or value
};

}  // namespace cbt

#endif  // CBT_BASE_JSON_BUILDER_H_
