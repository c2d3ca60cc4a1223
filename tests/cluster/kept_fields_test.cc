// What a cache keeps of objects that others write, in any size and number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>

#include "cbt/kube/watch.h"
#include "tests/kube/watch/cache_probe.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace kept_fields_test {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

class KeptFieldsTest : public ObjectCacheFixture, public testing::WithParamInterface<bool> {
 protected:
  static kube::CacheOptions Options() {
    kube::CacheOptions options = FastOptions();
    options.streaming_list = GetParam();
    return options;
  }
};

INSTANTIATE_TEST_SUITE_P(Lists, KeptFieldsTest, testing::Bool(),
                         [](const auto& one) { return one.param ? "AsStream" : "InPages"; });

TEST_P(KeptFieldsTest, FCOnlyFieldsThatAreReadAreKept) {
  for (int i = 0; i < 20; ++i) api_.Put("a", std::to_string(i), std::string(100'000, 'x'));
  kube::CacheOptions options = Options();
  options.fields = {{"metadata", "creationTimestamp"}, {"data", "other"}, {"kind", "below"}};
  StartAndSync(std::move(options));
  api_.Put("a", "later", std::string(100'000, 'x'));
  ASSERT_TRUE(Eventually([&] { return cache_->size() == 21; }));
  for (const kube::ObjectPtr& object : cache_->All()) {
    EXPECT_LT(object->ToJson().size(), 300u) << object->ToJson();
    EXPECT_EQ(object->kind(), "ConfigMap");
    EXPECT_EQ(object->name_space(), "a");
    EXPECT_FALSE(object->uid().empty());
    EXPECT_FALSE(object->resource_version().empty());
  }
}

TEST_P(KeptFieldsTest, FCAFieldOfAWrongTypeIsStillOne) {
  api_.Put("a", "one", "text");
  kube::CacheOptions options = Options();
  options.fields = {{"data", "value", "deeper"}};
  StartAndSync(std::move(options));
  const kube::ObjectPtr object = cache_->Find("a", "one");
  ASSERT_NE(object, nullptr);
  EXPECT_EQ(object->OptionalString({"data", "value", "deeper"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(KeptFieldsTest, FCAnObjectThatIsTooLargeIsLeftOut) {
  api_.Put("a", "large", std::string(5000, 'x'));
  api_.Put("a", "small", "1");
  kube::CacheOptions options = Options();
  options.max_kept_bytes = 2000;
  StartAndSync(std::move(options));
  EXPECT_EQ(cache_->size(), 1u);
  EXPECT_EQ(ValueAt("a", "small"), "1");
  api_.Put("a", "small", std::string(5000, 'y'));
  ASSERT_TRUE(Eventually([&] { return cache_->size() == 0; }));
  EXPECT_OK(cache_->CheckFresh(milliseconds(0)));
  api_.Put("a", "small", "2");
  api_.Put("a", "large", "3");
  // A handler runs after the object is in the store.
  ASSERT_TRUE(Eventually([&] { return judge_.calls().size() == 5; }));
  EXPECT_EQ(cache_->size(), 2U);
  EXPECT_THAT(judge_.calls(), ElementsAre("added a/small=1", "synced", HasSubstr("deleted a/small"),
                                          "added a/small=2", "added a/large=3"));
}

TEST_P(KeptFieldsTest, FCTooManyBytesMakeTheCacheStale) {
  api_.Put("a", "one", std::string(1000, 'x'));
  kube::CacheOptions options = Options();
  options.max_bytes = 5500;  // the fake API has each value twice
  StartAndSync(std::move(options));
  api_.Put("a", "two", std::string(1000, 'x'));
  // The same object again and again is one.
  for (int i = 0; i < 10; ++i) api_.Put("a", "one", std::string(1000, 'x'));
  const std::string last = "last";
  api_.Put("a", "one", last);
  ASSERT_TRUE(Eventually([&] { return ValueAt("a", "one") == last && cache_->size() == 2; }));
  EXPECT_OK(cache_->CheckFresh(milliseconds(0)));
  api_.Put("a", "three", std::string(3000, 'x'));
  ASSERT_TRUE(Eventually([&] { return !cache_->CheckFresh(milliseconds(0)).ok(); }));
  EXPECT_EQ(cache_->Find("a", "three"), nullptr);
  ASSERT_TRUE(Eventually([&] {
    return cache_->state().error.message().find("more than 5500 bytes") != absl::string_view::npos;
  }));
  // It comes back by itself.
  api_.Delete("a", "three");
  EXPECT_TRUE(Eventually([&] { return cache_->CheckFresh(milliseconds(0)).ok(); }));
}

}  // namespace kept_fields_test
}  // namespace cbt::test
