#include "cbt/kube/object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/status.h"

namespace cbt::kube {
namespace object_test {

using test::ValueOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;
using testing::Pair;

Object Sample() {
  return ValueOf(Object::Parse(R"({
    "apiVersion": "example.com/v1", "kind": "Thing",
    "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "12",
                 "generation": 3, "labels": {"l": "1"},
                 "annotations": {"example.com/key": "value", "none": null},
                 "creationTimestamp": "2024-05-01T10:00:00Z", "finalizers": ["x/y"]},
    "spec": {"text": "t", "number": -5, "real": 1.5, "large": 18446744073709551615, "yes": true,
             "no": false, "null": null, "list": ["a", "b"], "objects": [{"n": 1}, {"n": 2}],
             "map": {"k": "v"}, "lists": {"k": ["v", "w"]}, "data": "aGk=", "unknown": {"x": [1.25]}}
  })"));
}

// A value takes far more memory than its one byte of JSON.
TEST(ObjectTest, ZARequestsHaveNoMoreValuesThanTheLimit) {
  std::string json = R"({"x":[0)";
  // Beside the object, its key and the list.
  for (size_t i = 4; i < Object::kMaxRequestValues; ++i) json += ",0";
  EXPECT_OK(Object::ParseRequest(json + "]}"));
  EXPECT_OK(Object::Parse(json + ",0]}"));
  const absl::Status more = Object::ParseRequest(json + ",0]}").status();
  EXPECT_EQ(more.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(more.message()), HasSubstr("more than 100000 values"));
  for (const std::string one : {"null", "true", "1", "\"s\"", "{}", "[]"}) {
    EXPECT_FALSE(Object::ParseRequest(json + "," + one + "]}").ok()) << one;
  }
  // Text counts once, whatever its length.
  EXPECT_OK(Object::ParseRequest(R"({"x":")" + std::string(1 << 20, 'x') + "\"}"));
}

TEST(ObjectTest, ReadsEveryType) {
  const Object object = Sample();
  EXPECT_EQ(ValueOf(object.String({"spec", "text"})), "t");
  EXPECT_EQ(ValueOf(object.Int({"spec", "number"})), -5);
  EXPECT_TRUE(ValueOf(object.Bool({"spec", "yes"})));
  EXPECT_FALSE(ValueOf(object.Bool({"spec", "no"})));
  EXPECT_THAT(ValueOf(object.Strings({"spec", "list"})), ElementsAre("a", "b"));
  EXPECT_EQ(ValueOf(object.String({"spec", "list", "1"})), "b");
  EXPECT_EQ(ValueOf(object.Int({"spec", "objects", "1", "n"})), 2);
  EXPECT_THAT(ValueOf(object.StringMap({"spec", "map"})), ElementsAre(Pair("k", "v")));
  EXPECT_THAT(ValueOf(object.StringsMap({"spec", "lists"})),
              ElementsAre(Pair("k", ElementsAre("v", "w"))));
  EXPECT_EQ(ValueOf(object.Bytes({"spec", "data"})), "hi");
  EXPECT_EQ(ValueOf(object.SecretString({"spec", "text"})).Reveal(), "t");
  EXPECT_EQ(ValueOf(object.Children({"spec", "objects"})).size(), 2U);
  EXPECT_EQ(ValueOf(ValueOf(object.Child({"spec"})).String({"text"})), "t");
}

TEST(ObjectTest, AbsentNullAndZeroMeanTheSame) {
  const Object object = Sample();
  for (const char* const key : {"absent", "null"}) {
    EXPECT_FALSE(object.Has({"spec", key}));
    EXPECT_FALSE(ValueOf(object.Bool({"spec", key})));
    EXPECT_EQ(ValueOf(object.OptionalBool({"spec", key})), std::nullopt);
    EXPECT_EQ(ValueOf(object.OptionalString({"spec", key})), std::nullopt);
    EXPECT_EQ(ValueOf(object.OptionalInt({"spec", key, "below"})), std::nullopt);
    EXPECT_THAT(ValueOf(object.Strings({"spec", key})), IsEmpty());
    EXPECT_THAT(ValueOf(object.StringMap({"spec", key})), IsEmpty());
    EXPECT_THAT(ValueOf(object.Children({"spec", key})), IsEmpty());
    EXPECT_THAT(object.String({"spec", key}).status().message(),
                HasSubstr(absl::StrCat("spec.", key, ": is missing")));
    EXPECT_THAT(object.Int({"spec", key}).status().message(), HasSubstr("is missing"));
  }
}

TEST(ObjectTest, AnotherTypeIsAnErrorWithItsPathAndWithoutItsValue) {
  const Object object = Sample();
  const auto expect = [](const absl::Status& status, const std::string& text) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(std::string(status.message()), text);
  };
  expect(object.String({"spec", "number"}).status(),
         "spec.number: expected a string, found a number");
  expect(object.Int({"spec", "text"}).status(), "spec.text: expected an integer, found a string");
  expect(object.Int({"spec", "real"}).status(),
         "spec.real: expected an integer of 64 bits, found another number");
  expect(object.Int({"spec", "large"}).status(),
         "spec.large: expected an integer of 64 bits, found another number");
  expect(object.Bool({"spec", "text"}).status(), "spec.text: expected a boolean, found a string");
  expect(object.Strings({"spec", "objects"}).status(),
         "spec.objects: expected a list of strings, of which one is, found an object");
  expect(object.StringMap({"spec", "lists"}).status(),
         "spec.lists.k: expected a string, found a list");
  expect(object.String({"spec", "text", "below"}).status(),
         "spec.text: expected an object, found a string");
  expect(object.String({"metadata", "annotations", "example.com/key", "x"}).status(),
         "metadata.annotations[example.com/key]: expected an object, found a string");
  expect(object.Bytes({"spec", "text"}).status(), "spec.text: expected base64");
  expect(object.SecretMap({"spec", "map"}).status(), "spec.map.k: expected base64");
  expect(object.OptionalTime({"spec", "text"}).status(),
         "spec.text: expected a time in the form of RFC 3339");
}

TEST(ObjectTest, KeepsWhatItDoesNotKnow) {
  Object object = Sample();
  object.SetString({"spec", "text"}, "changed");
  Object expected = Sample();
  const std::string before = expected.ToJson();
  std::string json = object.ToJson();
  EXPECT_THAT(json, HasSubstr(R"("unknown":{"x":[1.25]})"));
  EXPECT_THAT(json, HasSubstr(R"("large":18446744073709551615)"));
  json.replace(json.find("changed"), 7, "t");
  EXPECT_EQ(json, before);
  EXPECT_EQ(ValueOf(Object::Parse(before)), expected);
}

TEST(ObjectTest, WritersMakeWhatIsMissing) {
  Object object;
  object.SetString({"a", "b/c", "d"}, "x");
  object.SetInt({"n"}, -1);
  object.SetBool({"a", "flag"}, true);
  object.SetStrings({"list"}, {"p", "q"});
  object.SetStringMap({"map"}, {{"k", "v"}});
  object.SetStringsMap({"maps"}, {{"k", {"v"}}});
  object.SetBytes({"bytes"}, "hi");
  object.SetChild({"child"}, Object("v1", "Pod", "ns", "n"));
  object.SetChildren({"children"}, {Object("v1", "Pod")});
  EXPECT_EQ(object.ToJson(),
            R"({"a":{"b/c":{"d":"x"},"flag":true},"n":-1,"list":["p","q"],"map":{"k":"v"},)"
            R"("maps":{"k":["v"]},"bytes":"aGk=","child":{"apiVersion":"v1","kind":"Pod",)"
            R"("metadata":{"namespace":"ns","name":"n"}},"children":[{"apiVersion":"v1",)"
            R"("kind":"Pod"}]})");
  object.SetString({"list", "1"}, "r");
  object.SetString({"list", "2"}, "beyond");
  EXPECT_THAT(ValueOf(object.Strings({"list"})), ElementsAre("p", "r"));
  object.Remove({"list", "0"});
  EXPECT_THAT(ValueOf(object.Strings({"list"})), ElementsAre("r"));
  object.Remove({"a"});
  object.Remove({"absent", "too"});
  EXPECT_FALSE(object.Has({"a"}));
  object.SetChild({"self"}, object);
  EXPECT_EQ(ValueOf(object.String({"self", "list", "0"})), "r");
}

TEST(ObjectTest, CopiesAreIndependent) {
  const Object object = Sample();
  Object copy = object;
  EXPECT_EQ(copy, object);
  copy.SetString({"spec", "text"}, std::string(1000, 'x'));
  EXPECT_NE(copy, object);
  EXPECT_EQ(ValueOf(object.String({"spec", "text"})), "t");
  const Object moved = std::move(copy);
  EXPECT_EQ(ValueOf(moved.String({"spec", "text"})).size(), 1000U);
  copy = moved;
  EXPECT_EQ(copy, moved);
  EXPECT_EQ(Object(), ValueOf(Object::Parse("{}")));
}

TEST(ObjectTest, Metadata) {
  const Object object = Sample();
  EXPECT_EQ(object.api_version(), "example.com/v1");
  EXPECT_EQ(object.kind(), "Thing");
  EXPECT_EQ(object.name(), "a");
  EXPECT_EQ(object.name_space(), "ns");
  EXPECT_EQ(object.uid(), "u");
  EXPECT_EQ(object.resource_version(), "12");
  EXPECT_THAT(object.label("l"), Optional(std::string_view("1")));
  EXPECT_THAT(object.annotation("example.com/key"), Optional(std::string_view("value")));
  EXPECT_EQ(object.annotation("none"), std::nullopt);
  EXPECT_FALSE(object.being_deleted());
  const ObjectMeta meta = ValueOf(object.Meta());
  EXPECT_EQ(meta.generation, 3);
  EXPECT_EQ(FormatTime(*meta.creation_timestamp), "2024-05-01T10:00:00Z");
  EXPECT_EQ(meta.deletion_timestamp, std::nullopt);
  EXPECT_THAT(meta.finalizers, ElementsAre("x/y"));

  Object wrong = ValueOf(Object::Parse(R"({"kind": 5, "metadata": {"name": ["a"]}})"));
  EXPECT_EQ(wrong.kind(), "");
  EXPECT_EQ(wrong.name(), "");
  EXPECT_EQ(std::string(wrong.Meta().status().message()),
            "metadata.name: expected a string, found a list");
}

TEST(ObjectTest, RefusesWhatIsNotOneObject) {
  for (const char* const text :
       {"", " ", "null", "[]", "3", "{", "{}}", "{} {}", "{\"a\":}", "{\"a\" 1}", "{'a':1}",
        "{\"a\":1,}", "{\"a\":\"\\ud800\"}", "{\"a\":\"\xff\"}", "{\"a\":01}", "{\"a\":NaN}",
        "\xef\xbb\xbf{}", "{\"a\":\"\n\"}"}) {
    const absl::StatusOr<Object> object = Object::Parse(text);
    EXPECT_EQ(object.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(object.status().message()), HasSubstr("JSON")) << text;
  }
  using std::string_literals::operator""s;
  EXPECT_FALSE(Object::Parse("{}\0"s).ok());
  EXPECT_FALSE(Object::Parse("{\"a\":\"x\0y\"}"s).ok());
}

// RapidJSON reads some zeros as huge numbers; found by fuzz_aggregated.
TEST(ObjectTest, RegressionNumbersStayWhatTheyAre) {
  for (const auto& [text, written] : std::vector<std::pair<std::string, std::string>>{
           {"0E96", "0.0"},
           {"0.000000000000000000000000", "0.0"},
           {"-0.0e1", "-0.0"},
           {"1e-400", "0.0"},
           {"0.1", "0.1"},
           {"5e-324", "5e-324"},
           {"1.7976931348623157e308", "1.7976931348623157e308"},
           {"-9223372036854775808", "-9223372036854775808"},
           {"18446744073709551615", "18446744073709551615"},
           {"-0", "0"}}) {
    const absl::StatusOr<Object> object = Object::Parse("{\"a\":" + text + "}");
    ASSERT_OK(object) << text;
    EXPECT_EQ(object->ToJson(), "{\"a\":" + written + "}") << text;
  }
  for (const char* const bad : {"1e400", "-1e400", "01", "1.", "+1", ".5", "1e", "-", "0x1"}) {
    EXPECT_FALSE(Object::Parse(std::string("{\"a\":") + bad + "}").ok()) << bad;
  }
}

// Found by the fuzzer of watches: such an object was not equal to itself, and its first value
// counted where Go's readers take the last.
TEST(ObjectTest, RegressionAKeyGivenTwiceIsRefused) {
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += absl::StrCat("\"key", i, "\":", i, ",");
  for (const std::string& text :
       {std::string(R"({"a":1,"a":2})"), std::string(R"({"a":1,"b":2,"a":1})"),
        std::string(R"({"a":null,"a":1})"), std::string(R"({"a":1,"\u0061":2})"),
        std::string(R"({"spec":{"list":[[{"x":1},{"x":1,"x":1}]]}})"),
        std::string(R"({"a":{"b":{"":0,"":1}}})"), many + R"("key0":0})", many + R"("key99":0})"}) {
    const absl::StatusOr<Object> object = Object::Parse(text);
    EXPECT_EQ(object.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(std::string(object.status().message()), "JSON: an object has the same key twice");
  }
  for (const std::string& text :
       {std::string(R"({"a":{"a":{"a":1}},"b":[{"a":1},{"a":1}],"A":1,"":0})"),
        many + R"("key":0})"}) {
    const Object object = ValueOf(Object::Parse(text));
    EXPECT_EQ(ValueOf(Object::Parse(object.ToJson())), object);
  }
}

TEST(ObjectTest, EveryPrefixIsRefused) {
  const std::string json = Sample().ToJson();
  for (size_t size = 0; size < json.size(); ++size) {
    ASSERT_FALSE(Object::Parse(json.substr(0, size)).ok()) << size;
  }
}

TEST(ObjectTest, DepthIsBounded) {
  const auto nested = [](int depth) {
    std::string text = "{\"a\":";
    for (int i = 1; i < depth; ++i) text += "[";
    text += "1";
    for (int i = 1; i < depth; ++i) text += "]";
    return text + "}";
  };
  EXPECT_OK(Object::Parse(nested(Object::kMaxDepth)));
  EXPECT_THAT(std::string(Object::Parse(nested(Object::kMaxDepth + 1)).status().message()),
              HasSubstr("nested deeper than 64"));
  EXPECT_FALSE(Object::Parse(std::string(1'000'000, '[')).ok());
  EXPECT_FALSE(Object::Parse("{\"a\":" + std::string(1'000'000, '[')).ok());
}

}  // namespace object_test
}  // namespace cbt::kube
