#include "kube/watch/lease_record.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "cbt/kube/object.h"
#include "cbt/kube/typed_objects.h"
#include "tests/support/status.h"

namespace cbt::kube {
namespace lease_record_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = LeaseRecord::Clock;
using test::ValueOf;

constexpr Clock::time_point kStart{std::chrono::hours(7)};
constexpr auto kDefault = seconds(15);

Object LeaseOf(const std::string& spec, const std::string& version = "1") {
  return ValueOf(Object::Parse(
      R"({"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"l","namespace":"n","resourceVersion":")" +
      version + R"("},"spec":)" + spec + "}"));
}

Time TimeOf(const std::string& text) { return ValueOf(ParseTime(text)); }

TEST(LeaseRecordTest, NobodyHoldsWhatIsNotThere) {
  LeaseRecord record(kDefault);
  EXPECT_FALSE(record.exists());
  EXPECT_FALSE(record.HeldByAnother("me", kStart));
}

TEST(LeaseRecordTest, OnlyTheLocalClockCounts) {
  LeaseRecord record(kDefault);
  // By its own times it expired years ago.
  const std::string spec =
      R"({"holderIdentity":"other","leaseDurationSeconds":20,"renewTime":"2001-01-01T00:00:00.000000Z"})";
  ASSERT_OK(record.See(LeaseOf(spec), kStart));
  EXPECT_TRUE(record.HeldByAnother("me", kStart));
  EXPECT_TRUE(record.HeldByAnother("me", kStart + seconds(20) - milliseconds(1)));
  EXPECT_FALSE(record.HeldByAnother("me", kStart + seconds(20)));
  EXPECT_FALSE(record.HeldByAnother("other", kStart));
  // Seen again unchanged, even under another resource version: no sign of life.
  ASSERT_OK(record.See(LeaseOf(spec, "2"), kStart + seconds(19)));
  EXPECT_FALSE(record.HeldByAnother("me", kStart + seconds(20)));
  // The smallest change is one, even back in time.
  ASSERT_OK(record.See(
      LeaseOf(
          R"({"holderIdentity":"other","leaseDurationSeconds":20,"renewTime":"2000-01-01T00:00:00.000000Z"})"),
      kStart + seconds(19)));
  EXPECT_TRUE(record.HeldByAnother("me", kStart + seconds(38)));
  EXPECT_FALSE(record.HeldByAnother("me", kStart + seconds(39)));
}

TEST(LeaseRecordTest, OddDurations) {
  for (const auto& [text, holds] :
       {std::pair<const char*, milliseconds>{"", kDefault},
        {R"(,"leaseDurationSeconds":null)", kDefault},
        {R"(,"leaseDurationSeconds":-1)", kDefault},
        {R"(,"leaseDurationSeconds":0)", milliseconds(0)},
        {R"(,"leaseDurationSeconds":1)", seconds(1)},
        {R"(,"leaseDurationSeconds":9223372036854775807)", std::chrono::hours(24)}}) {
    SCOPED_TRACE(text);
    LeaseRecord record(kDefault);
    ASSERT_OK(
        record.See(LeaseOf(std::string(R"({"holderIdentity":"other")") + text + "}"), kStart));
    EXPECT_FALSE(record.HeldByAnother("me", kStart + holds));
    if (holds > milliseconds(0)) {
      EXPECT_TRUE(record.HeldByAnother("me", kStart + holds - milliseconds(1)));
    }
  }
}

TEST(LeaseRecordTest, AReleasedLeaseIsFree) {
  LeaseRecord record(kDefault);
  ASSERT_OK(record.See(LeaseOf(R"({"holderIdentity":"","leaseDurationSeconds":1})"), kStart));
  EXPECT_FALSE(record.HeldByAnother("me", kStart));
  ASSERT_OK(record.See(LeaseOf("{}"), kStart));
  EXPECT_FALSE(record.HeldByAnother("me", kStart));
}

TEST(LeaseRecordTest, WrongLeasesAreErrors) {
  LeaseRecord record(kDefault);
  EXPECT_FALSE(record.See(LeaseOf(R"({"holderIdentity":7})"), kStart).ok());
  EXPECT_FALSE(record.See(LeaseOf("7"), kStart).ok());
  EXPECT_FALSE(record.See(LeaseOf(R"({"renewTime":"yesterday"})"), kStart).ok());
  EXPECT_FALSE(record.exists());
}

TEST(LeaseRecordTest, AFirstHolder) {
  const LeaseRecord record(kDefault);
  const Object object = record.Renewed("n", "l", "me", seconds(15), TimeOf("2026-01-02T03:04:05Z"));
  EXPECT_EQ(object.name_space(), "n");
  EXPECT_EQ(object.name(), "l");
  EXPECT_EQ(object.kind(), "Lease");
  EXPECT_EQ(object.api_version(), "coordination.k8s.io/v1");
  // MicroTime has six digits, also when they are zeros.
  EXPECT_EQ(ValueOf(object.String({"spec", "renewTime"})), "2026-01-02T03:04:05.000000Z");
  EXPECT_EQ(ValueOf(object.String({"spec", "acquireTime"})), "2026-01-02T03:04:05.000000Z");
  EXPECT_EQ(ValueOf(object.String({"spec", "holderIdentity"})), "me");
  EXPECT_EQ(ValueOf(object.Int({"spec", "leaseDurationSeconds"})), 15);
  EXPECT_EQ(ValueOf(object.Int({"spec", "leaseTransitions"})), 0);
}

TEST(LeaseRecordTest, RenewalKeepsAndTakeoverCounts) {
  LeaseRecord record(kDefault);
  const Object seen = LeaseOf(
      R"({"holderIdentity":"me","leaseDurationSeconds":15,"leaseTransitions":3,"strategy":"OldestEmulationVersion","preferredHolder":"x",)"
      R"("acquireTime":"2025-01-01T00:00:00.000000Z","renewTime":"2025-01-01T00:00:00.000000Z"})",
      "77");
  ASSERT_OK(record.See(seen, kStart));
  const Time now = TimeOf("2026-01-02T03:04:05.000007Z");
  const Object renewed = record.Renewed("n", "l", "me", seconds(20), now);
  EXPECT_EQ(renewed.resource_version(), "77");
  EXPECT_EQ(ValueOf(renewed.String({"spec", "acquireTime"})), "2025-01-01T00:00:00.000000Z");
  EXPECT_EQ(ValueOf(renewed.String({"spec", "renewTime"})), "2026-01-02T03:04:05.000007Z");
  EXPECT_EQ(ValueOf(renewed.Int({"spec", "leaseTransitions"})), 3);
  EXPECT_EQ(ValueOf(renewed.Int({"spec", "leaseDurationSeconds"})), 20);
  EXPECT_EQ(ValueOf(renewed.String({"spec", "preferredHolder"})), "x");
  EXPECT_EQ(ValueOf(renewed.String({"spec", "strategy"})), "OldestEmulationVersion");

  const Object taken = record.Renewed("n", "l", "other", seconds(15), now);
  EXPECT_EQ(ValueOf(taken.String({"spec", "acquireTime"})), "2026-01-02T03:04:05.000007Z");
  EXPECT_EQ(ValueOf(taken.Int({"spec", "leaseTransitions"})), 4);

  const Object released = record.Released(now);
  EXPECT_EQ(released.resource_version(), "77");
  EXPECT_EQ(ValueOf(released.OptionalString({"spec", "holderIdentity"})).value_or(""), "");
  EXPECT_EQ(ValueOf(released.Int({"spec", "leaseDurationSeconds"})), 1);
  EXPECT_EQ(ValueOf(released.Int({"spec", "leaseTransitions"})), 3);
}

}  // namespace lease_record_test
}  // namespace cbt::kube
