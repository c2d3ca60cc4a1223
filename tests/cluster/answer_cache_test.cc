// Kept answers: to whom, for how long, how many; and no caller waits forever.
#include "programs/cluster/answer_cache.h"

#include <gtest/gtest.h>

#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/status.h"

namespace cbt::kube::cluster {
namespace answer_cache_test {

using std::chrono::hours;
using std::chrono::milliseconds;
using Cache = AnswerCache<std::string>;

QuestionKey Key(std::string_view text) {
  const std::string_view parts[] = {text};
  return KeyOf(parts);
}

// Asks and answers at once; what came, and how often was asked.
struct Asker {
  explicit Asker(const Cache::Limits& limits) : cache(limits) {}

  absl::StatusOr<std::string> Ask(std::string_view key, absl::StatusOr<std::string> answer) {
    absl::StatusOr<std::string> got = absl::UnknownError("no answer");
    cache.Ask(
        Key(key), [&](const absl::StatusOr<std::string>& given) { got = given; },
        [&](const Cache::Done& done) {
          ++asked;
          done(answer);
        });
    return got;
  }

  Cache cache;
  int asked = 0;
};

TEST(AnswerCache, KeepsYesAndNoButNothingElse) {
  Asker asker({.yes_time = hours(1), .no_time = hours(1), .max_entries = 10});
  EXPECT_EQ(*asker.Ask("a", "yes"), "yes");
  EXPECT_EQ(*asker.Ask("a", "another"), "yes");
  EXPECT_EQ(asker.asked, 1);
  EXPECT_EQ(asker.Ask("b", absl::UnauthenticatedError("no")).status().message(), "no");
  EXPECT_EQ(asker.Ask("b", "yes").status().message(), "no");
  EXPECT_EQ(asker.asked, 2);
  EXPECT_FALSE(asker.Ask("c", absl::UnavailableError("later")).ok());
  EXPECT_EQ(*asker.Ask("c", "yes"), "yes");
  EXPECT_EQ(asker.asked, 4);
}

TEST(AnswerCache, YWhatCantBeAnsweredMayBeKeptForAMoment) {
  Asker asker({.yes_time = hours(1),
               .no_time = hours(1),
               .max_entries = 10,
               .unknown_time = milliseconds(30)});
  EXPECT_FALSE(asker.Ask("c", absl::UnavailableError("later")).ok());
  EXPECT_FALSE(asker.Ask("c", "yes").ok());
  EXPECT_EQ(asker.asked, 1);
  std::this_thread::sleep_for(milliseconds(40));
  EXPECT_EQ(*asker.Ask("c", "yes"), "yes");
}

TEST(AnswerCache, ForgetsInTime) {
  Asker asker({.yes_time = milliseconds(30), .no_time = milliseconds(0), .max_entries = 10});
  EXPECT_EQ(*asker.Ask("a", "first"), "first");
  EXPECT_FALSE(asker.Ask("b", absl::UnauthenticatedError("no")).ok());
  EXPECT_EQ(*asker.Ask("b", "second"), "second");
  std::this_thread::sleep_for(milliseconds(40));
  EXPECT_EQ(*asker.Ask("a", "third"), "third");
}

TEST(AnswerCache, KeepsTheNewestOfTooMany) {
  Asker asker({.yes_time = hours(1), .no_time = hours(1), .max_entries = 3});
  for (const char* key : {"a", "b", "c", "d"}) EXPECT_OK(asker.Ask(key, key));
  EXPECT_EQ(*asker.Ask("d", "new"), "d");
  EXPECT_EQ(*asker.Ask("b", "new"), "b");
  EXPECT_EQ(*asker.Ask("a", "new"), "new");
}

TEST(AnswerCache, WhoeverAsksMeanwhileGetsTheSameAnswer) {
  Cache cache({.yes_time = hours(1), .no_time = hours(1), .max_entries = 3});
  Cache::Done pending;
  std::vector<std::string> got;
  const auto note = [&](const absl::StatusOr<std::string>& given) { got.push_back(*given); };
  for (int i = 0; i < 3; ++i) {
    cache.Ask(Key("a"), note, [&](Cache::Done done) {
      EXPECT_EQ(pending, nullptr);
      pending = std::move(done);
    });
  }
  EXPECT_TRUE(got.empty());
  pending("yes");
  EXPECT_EQ(got, (std::vector<std::string>{"yes", "yes", "yes"}));
  // A second answer to the same question has no effect.
  pending("no");
  EXPECT_EQ(got.size(), 3U);
}

TEST(AnswerCache, AQuestionThatCantBeAskedIsAnswered) {
  Cache cache({.yes_time = hours(1), .no_time = hours(1), .max_entries = 3});
  absl::StatusOr<std::string> got = "nothing";
  cache.Ask(
      Key("a"), [&](const absl::StatusOr<std::string>& given) { got = given; },
      [](const Cache::Done&) { throw std::bad_alloc(); });
  EXPECT_TRUE(absl::IsUnavailable(got.status()));
}

TEST(AnswerCache, KeysDependOnEveryPartAndItsEnd) {
  const auto key = [](std::vector<std::string_view> parts) { return KeyOf(parts); };
  EXPECT_EQ(key({"a", "b"}), key({"a", "b"}));
  EXPECT_NE(key({"a", "b"}), key({"ab", ""}));
  EXPECT_NE(key({"a", "b"}), key({"b", "a"}));
  EXPECT_NE(key({"a"}), key({"a", ""}));
  EXPECT_NE(key({"ab"}), key({"a", "b"}));
}

}  // namespace answer_cache_test
}  // namespace cbt::kube::cluster
