#include "base/json_builder.h"

#include "base/text.h"

namespace cbt {

JsonBuilder& JsonBuilder::Begin(char bracket) {
  Separate();
  text_ += bracket;
  comma_ = false;
  return *this;
}

JsonBuilder& JsonBuilder::End(char bracket) {
  text_ += bracket;
  comma_ = true;
  return *this;
}

JsonBuilder& JsonBuilder::Key(std::string_view key) {
  Text(key);
  text_ += ':';
  comma_ = false;
  return *this;
}

JsonBuilder& JsonBuilder::Raw(std::string_view json) {
  Separate();
  text_ += json;
  return *this;
}

JsonBuilder& JsonBuilder::Text(std::string_view text) {
  Separate();
  AppendJsonString(text_, text);
  return *this;
}

}  // namespace cbt
