#include "base/json_builder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace cbt {
namespace json_builder_test {

TEST(JsonBuilder, CommasStandBetweenMembersOnly) {
  JsonBuilder json;
  json.BeginObject().Key("empty").BeginObject().EndObject().Key("list").BeginArray();
  json.Value(1).BeginArray().EndArray().Value("two").BeginObject().Field("a", true).EndObject();
  json.EndArray().Field("b", false).Key("raw").Raw("null").EndObject();
  EXPECT_EQ(json.Take(), R"({"empty":{},"list":[1,[],"two",{"a":true}],"b":false,"raw":null})");
}

TEST(JsonBuilder, NumbersAreWhole) {
  JsonBuilder json;
  json.BeginArray().Value(std::numeric_limits<uint64_t>::max());
  json.Value(std::numeric_limits<int64_t>::min()).Value(uint8_t{7}).Value(0).EndArray();
  EXPECT_EQ(json.Take(), "[18446744073709551615,-9223372036854775808,7,0]");
}

TEST(JsonBuilder, TextsAreJsonWhateverTheyHold) {
  JsonBuilder json;
  json.BeginObject().Field("a\"", std::string("\n\xff")).Field("b", std::string_view("\\"));
  json.Field("c", "</script>").EndObject();
  EXPECT_EQ(json.Take(), R"({"a\"":"\u000a\ufffd","b":"\\","c":"</script>"})");
}

TEST(JsonBuilder, GoesOnBehindAText) {
  JsonBuilder json(R"({"a":1)");
  json.Field("b", 2).EndObject();
  EXPECT_EQ(json.Take(), R"({"a":1,"b":2})");
  JsonBuilder rest("]");
  EXPECT_EQ(rest.Field("b", 2).EndObject().Take(), R"(],"b":2})");
}

}  // namespace json_builder_test
}  // namespace cbt
