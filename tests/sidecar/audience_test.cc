#include "programs/sidecar/audience.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "ops/event_log.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace audience_test {

using kube::sidecar::AudiencesOf;
using testing::ElementsAre;
using testing::IsEmpty;

std::string Token(const std::string& claims) {
  return absl::StrCat("eyJhbGciOiJub25lIn0.", absl::WebSafeBase64Escape(claims), ".c2ln");
}

TEST(Audiences, AreThoseOfAJsonWebToken) {
  EXPECT_THAT(AudiencesOf(Token(R"({"aud":["https://kubernetes.default.svc","k3s"]})")),
              ElementsAre("https://kubernetes.default.svc", "k3s"));
  EXPECT_THAT(AudiencesOf(Token(R"({"aud":"one","sub":"x"})")), ElementsAre("one"));
  for (const std::string& token :
       {std::string(), std::string("opaque"), std::string("a.b"), std::string("a.!.c"), Token("{}"),
        Token("[]"), Token(R"({"aud":7})"), Token("{")}) {
    EXPECT_THAT(AudiencesOf(token), IsEmpty()) << token;
  }
}

class Lines final : public rpc::LogSink {
 public:
  bool Wants(rpc::LogLevel) const noexcept override { return true; }
  void Write(rpc::LogLevel, std::string_view event,
             std::span<const rpc::LogField>) noexcept override {
    events.emplace_back(event);
  }
  std::vector<std::string> events;
};

// Nothing is found: the audience is fixed.
class NoObjects final : public kube::cluster::Objects {
 public:
  void GetSnapshot(const std::string&, const std::string&,
                   kube::cluster::Found<kube::VolumeSnapshot>) override {}
  void GetContent(const std::string&, kube::cluster::Found<kube::VolumeSnapshotContent>) override {}
  void FindContents(const std::string&, const std::string&, const std::string&,
                    kube::cluster::Found<std::vector<kube::VolumeSnapshotContent>>) override {}
  void GetClass(const std::string&, kube::cluster::Found<kube::VolumeSnapshotClass>) override {}
  void FindDefaultClasses(const std::string&,
                          kube::cluster::Found<std::vector<kube::VolumeSnapshotClass>>) override {}
  void GetService(const std::string&,
                  kube::cluster::Found<kube::SnapshotMetadataService>) override {}
};

TEST(Audiences, FDTheApiServersOwnIsNotUsedWithoutAWord) {
  for (const std::string fixed : {"https://kubernetes.default.svc", "metadata.example.com"}) {
    Lines lines;
    ops::EventLog log(&lines);
    NoObjects objects;
    const kube::cluster::Driver driver;
    kube::sidecar::Audience audience(fixed, false, driver, objects, objects,
                                     {"k3s", "https://kubernetes.default.svc"}, log);
    for (int i = 0; i < 3; ++i) {
      std::string got;
      audience.Get([&got](absl::StatusOr<std::string> one) { got = ValueOf(std::move(one)); });
      EXPECT_EQ(got, fixed);
    }
    // Once.
    if (fixed == "metadata.example.com") {
      EXPECT_THAT(lines.events, IsEmpty());
    } else {
      EXPECT_THAT(lines.events, ElementsAre("the audience is that of the API server itself"));
    }
  }
}

}  // namespace audience_test
}  // namespace cbt::test
