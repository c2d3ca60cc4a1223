// From a snapshot's name to its handle: what watches have not seen is asked of the API server
// before a no is said, and a caller learns nothing of other snapshots' contents.
#include "programs/cluster/snapshot_lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/status.h"

namespace cbt::kube::cluster {
namespace snapshot_lookup_test {

using absl::StatusCode;
using test::ValueOf;
using testing::HasSubstr;

// Objects of one moment, which count what is asked.
class FixedObjects final : public Objects {
 public:
  explicit FixedObjects(absl::Status absent) : absent_(std::move(absent)) {}

  void GetSnapshot(const std::string&, const std::string& name,
                   Found<VolumeSnapshot> found) override {
    Answer(snapshots, name, found);
  }
  void GetContent(const std::string& name, Found<VolumeSnapshotContent> found) override {
    Answer(contents, name, found);
  }
  void FindContents(const std::string&, const std::string&, const std::string&,
                    Found<std::vector<VolumeSnapshotContent>> found) override {
    found(absent_);
  }
  void GetClass(const std::string& name, Found<VolumeSnapshotClass> found) override {
    Answer(classes, name, found);
  }
  void FindDefaultClasses(const std::string&,
                          Found<std::vector<VolumeSnapshotClass>> found) override {
    ++asked;
    found(defaults);
  }
  void GetService(const std::string&, Found<SnapshotMetadataService> found) override {
    found(absent_);
  }

  void Add(const std::string& name) {
    VolumeSnapshot& snapshot = snapshots[name];
    snapshot.meta = {.name = name, .name_space = "ns", .uid = "uid-" + name};
    snapshot.status = {.bound_content = "content-" + name, .ready_to_use = true};
    VolumeSnapshotContent& content = contents["content-" + name];
    content.meta.name = "content-" + name;
    content.snapshot_namespace = "ns";
    content.snapshot_name = name;
    content.snapshot_uid = snapshot.meta.uid;
    content.driver = "driver";
    content.status = {.snapshot_handle = "handle-" + name, .ready_to_use = true};
  }

  std::map<std::string, VolumeSnapshot> snapshots;
  std::map<std::string, VolumeSnapshotContent> contents;
  std::map<std::string, VolumeSnapshotClass> classes;
  std::vector<VolumeSnapshotClass> defaults;
  int asked = 0;

 private:
  template <typename T>
  void Answer(const std::map<std::string, T>& objects, const std::string& name, Found<T>& found) {
    ++asked;
    const auto at = objects.find(name);
    at == objects.end() ? found(absent_) : found(at->second);
  }

  const absl::Status absent_;
};

class SnapshotLookupTest : public testing::Test {
 protected:
  absl::StatusOr<BoundSnapshot> Find(const std::optional<std::string>& driver = "driver",
                                     Gate<BoundSnapshot> gate = {}) {
    return Await<absl::StatusOr<BoundSnapshot>>([&](Found<BoundSnapshot> found) {
      FindWatchedOrLive<BoundSnapshot>(
          watched_, live_,
          [driver](Objects& objects, const Found<BoundSnapshot>& answer) {
            FindBound(objects, "ns", "snap", driver, answer);
          },
          std::move(found), std::move(gate));
    });
  }
  absl::StatusOr<std::optional<VolumeSnapshotClass>> ClassOf(const BoundSnapshot& snapshot) {
    return Await<absl::StatusOr<std::optional<VolumeSnapshotClass>>>(
        [&](const auto& found) { FindClass(live_, snapshot, found); });
  }

  FixedObjects watched_{absl::UnavailableError("the watch is not current")};
  FixedObjects live_{absl::NotFoundError("")};
};

TEST_F(SnapshotLookupTest, WhatAWatchConfirmsIsNotAskedAgain) {
  watched_.Add("snap");
  ASSERT_OK_AND_ASSIGN(const BoundSnapshot bound, Find());
  EXPECT_EQ(bound.handle, "handle-snap");
  EXPECT_EQ(live_.asked, 0);
}

// A watch may be late in everything that it says.
TEST_F(SnapshotLookupTest, ANoOfAWatchIsAskedOfTheApiServer) {
  live_.Add("snap");
  EXPECT_OK(Find());
  for (const int late : {0, 1, 2, 3}) {
    watched_.Add("snap");
    if (late == 0) watched_.snapshots["snap"].status->ready_to_use = false;
    if (late == 1) watched_.snapshots["snap"].meta.uid = "an older one";
    if (late == 2) watched_.contents["content-snap"].status.reset();
    if (late == 3) watched_.contents.clear();
    const int before = live_.asked;
    EXPECT_OK(Find()) << late;
    EXPECT_GT(live_.asked, before) << late;
  }
}

TEST_F(SnapshotLookupTest, TheGateDecidesWhetherTheApiServerIsAsked) {
  live_.Add("snap");
  const auto shut = [](const Found<BoundSnapshot>& found, const AskLive<BoundSnapshot>&) {
    found(absl::UnavailableError("too many"));
  };
  EXPECT_THAT(Find("driver", shut).status().ToString(), HasSubstr("too many"));
  EXPECT_EQ(live_.asked, 0);
  EXPECT_OK(Find("driver", [](const Found<BoundSnapshot>& found,
                              const AskLive<BoundSnapshot>& ask) { ask(found); }));
  watched_.Add("snap");
  EXPECT_OK(Find("driver", shut));
}

TEST_F(SnapshotLookupTest, ASnapshotThatDoesNotExistIsNamed) {
  const absl::Status status = Find().status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "VolumeSnapshot ns/snap does not exist");
}

TEST_F(SnapshotLookupTest, AContentThatIsNotThereAndOneOfOthersLookAlike) {
  live_.Add("snap");
  live_.contents["content-snap"].snapshot_namespace = "elsewhere";
  const absl::Status of_others = Find().status();
  EXPECT_EQ(of_others.code(), StatusCode::kUnavailable);
  EXPECT_THAT(of_others.message(), HasSubstr("is not bound"));
  live_.contents.clear();
  EXPECT_EQ(Find().status(), of_others);
  live_.snapshots["snap"].status->bound_content.reset();
  EXPECT_EQ(Find().status(), of_others);
}

TEST_F(SnapshotLookupTest, TheDriverIsThatOfTheQuestion) {
  live_.Add("snap");
  EXPECT_EQ(Find("another").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Find("").status().code(), StatusCode::kInvalidArgument);
  ASSERT_OK_AND_ASSIGN(const BoundSnapshot bound, Find(std::nullopt));
  EXPECT_EQ(bound.driver, "driver");
}

TEST_F(SnapshotLookupTest, TheClassIsOneOfTheDriver) {
  BoundSnapshot snapshot = {.driver = "driver", .class_name = "gold"};
  EXPECT_EQ(ClassOf(snapshot).status().code(), StatusCode::kNotFound);
  live_.classes["gold"].driver = "another";
  EXPECT_EQ(ClassOf(snapshot).status().code(), StatusCode::kFailedPrecondition);
  live_.classes["gold"].driver = "driver";
  EXPECT_TRUE(ValueOf(ClassOf(snapshot)).has_value());
}

TEST_F(SnapshotLookupTest, WithoutAClassThereIsOneDefaultOrNone) {
  for (BoundSnapshot snapshot :
       {BoundSnapshot{.driver = "driver"}, BoundSnapshot{.driver = "driver", .class_name = ""}}) {
    live_.defaults.clear();
    EXPECT_FALSE(ValueOf(ClassOf(snapshot)).has_value());
    live_.defaults.resize(1);
    EXPECT_TRUE(ValueOf(ClassOf(snapshot)).has_value());
    live_.defaults.resize(2);
    EXPECT_EQ(ClassOf(snapshot).status().code(), StatusCode::kFailedPrecondition);
  }
}

}  // namespace snapshot_lookup_test
}  // namespace cbt::kube::cluster
