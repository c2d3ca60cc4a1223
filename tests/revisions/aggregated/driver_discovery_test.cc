#include "programs/revisions/aggregated/api/driver_discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "absl/strings/str_cat.h"
#include "cbt/kube/object.h"
#include "tests/support/status.h"

namespace cbt::test::driver_discovery_test {

using kube::Object;
using kube::aggregated::DriverDiscovery;
using kube::aggregated::Endpoint;
using kube::aggregated::ParseHttpsUrl;
using kube::aggregated::Reachability;
using kube::aggregated::SetReachability;
using testing::HasSubstr;

absl::StatusOr<DriverDiscovery> Decode(const std::string& spec) {
  const auto object = Object::Parse(
      absl::StrCat(R"({"apiVersion":"cbt.storage.k8s.io/v1alpha2","kind":"DriverDiscovery",)",
                   R"("metadata":{"name":"d"},"spec":)", spec, "}"));
  return object.ok() ? DriverDiscovery::Decode(*object) : object.status();
}

void ExpectWrong(const std::string& spec, const std::string& why) {
  const absl::Status status = Decode(spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << spec;
  EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << spec;
}

TEST(DriverDiscovery, A11HasAnUrlOrAService) {
  const auto url =
      Decode(R"({"driverName":"d","clientConfig":{"url":"https://h:8443/a","caBundle":"UEVN"}})");
  ASSERT_TRUE(url.ok()) << url.status();
  EXPECT_EQ(url->endpoint(), (Endpoint{.server = "https://h:8443", .path = "/a"}));
  EXPECT_EQ(url->ca, "PEM");
  EXPECT_EQ(url->block_size, 4096U);

  const auto service = Decode(
      R"({"driverName":"d","clientConfig":{"service":{"namespace":"n","name":"s","path":"/x"}}})");
  ASSERT_TRUE(service.ok()) << service.status();
  // 443 unless it says otherwise.
  EXPECT_EQ(service->endpoint(), (Endpoint{.server = "https://s.n.svc:443", .path = "/x"}));

  for (const auto& discovery : {*url, *service}) {
    const auto again = DriverDiscovery::Decode(discovery.Encode());
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->endpoint(), discovery.endpoint());
    EXPECT_EQ(again->Encode(), discovery.Encode());
  }
}

TEST(DriverDiscovery, A11RefusesWhatCantBeOne) {
  ExpectWrong(R"({"clientConfig":{"url":"https://h"}})", "driverName");
  ExpectWrong(R"({"driverName":"","clientConfig":{"url":"https://h"}})", "spec.driverName");
  ExpectWrong(R"({"driverName":"d"})", "either url or service");
  ExpectWrong(
      R"({"driverName":"d","clientConfig":{"url":"https://h","service":{"namespace":"n","name":"s"}}})",
      "either url or service");
  ExpectWrong(R"({"driverName":"d","clientConfig":{"url":"http://h"}})", "expected https");
  ExpectWrong(R"({"driverName":"d","clientConfig":{"url":"https://user@h"}})", "host");
  ExpectWrong(R"({"driverName":"d","clientConfig":{"url":"https://h/a?b=c"}})", "path");
  ExpectWrong(R"({"driverName":"d","clientConfig":{"url":"https://h:0"}})", "port");
  ExpectWrong(
      R"({"driverName":"d","clientConfig":{"service":{"namespace":"n","name":"s","port":65536}}})",
      "port");
  ExpectWrong(
      R"({"driverName":"d","clientConfig":{"service":{"namespace":"n","name":"evil.com/"}}})",
      "service");
  ExpectWrong(R"({"driverName":"d","blockSizeBytes":1000,"clientConfig":{"url":"https://h"}})",
              "blockSizeBytes");
  ExpectWrong(R"({"driverName":"d","clientConfig":{"url":7}})", "clientConfig.url");
}

TEST(DriverDiscovery, ParsesUrls) {
  EXPECT_EQ(*ParseHttpsUrl("https://[::1]:8443"), (Endpoint{.server = "https://[::1]:8443"}));
  EXPECT_EQ(*ParseHttpsUrl("https://h/"), (Endpoint{.server = "https://h"}));
  for (const char* const bad : {"", "https://", "https:///a", "https://:1", "https://h:x",
                                "https://h:99999", "https://h h", "https://h#a", "ftp://h"}) {
    EXPECT_FALSE(ParseHttpsUrl(bad).ok()) << bad;
  }
}

TEST(DriverDiscovery, A12KeepsOneConditionAndItsTime) {
  const auto read = Object::Parse(
      R"({"metadata":{"name":"d","generation":3},"status":{"conditions":[{"type":"Other"}],"x":1}})");
  ASSERT_TRUE(read.ok());
  Object object = *read;
  const kube::Time first{std::chrono::seconds(1'700'000'000)};
  const kube::Time later = first + std::chrono::hours(1);
  const Reachability good = {.reachable = true, .reason = "Answers", .message = "m"};
  EXPECT_TRUE(SetReachability(object, good, first));
  EXPECT_FALSE(SetReachability(object, good, later));
  const auto condition = [&] { return (*object.Children({"status", "conditions"}))[1]; };
  EXPECT_EQ(*condition().String({"status"}), "True");
  EXPECT_EQ(*condition().Int({"observedGeneration"}), 3);
  const std::string time = *condition().String({"lastTransitionTime"});

  // Another reason is no transition.
  EXPECT_TRUE(SetReachability(object, {.reachable = true, .reason = "B", .message = "m"}, later));
  EXPECT_EQ(*condition().String({"lastTransitionTime"}), time);
  EXPECT_TRUE(SetReachability(object, {.reachable = false, .reason = "C", .message = ""}, later));
  EXPECT_EQ(*condition().String({"status"}), "False");
  EXPECT_NE(*condition().String({"lastTransitionTime"}), time);
  EXPECT_EQ(object.Children({"status", "conditions"})->size(), 2U);
  EXPECT_EQ(*object.Int({"status", "x"}), 1);
}

}  // namespace cbt::test::driver_discovery_test
