#include "programs/revisions/aggregated/volume_snapshot_delta.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/memory.h"
#include "programs/cbt/output/volume_snapshot_delta.h"
#include "tests/support/status.h"

namespace cbt::test::volume_snapshot_delta_test {

using kube::Object;
using kube::aggregated::DataToken;
using kube::aggregated::DeltaAnswer;
using kube::aggregated::PageBlock;
using kube::aggregated::VolumeSnapshotDelta;
using testing::HasSubstr;

std::string Json(const std::string& spec, const std::string& metadata = R"({"name":"d"})") {
  return absl::StrCat(R"({"apiVersion":"cbt.storage.k8s.io/v1alpha1",)",
                      R"("kind":"VolumeSnapshotDelta","metadata":)", metadata, R"(,"spec":)", spec,
                      "}");
}

void ExpectWrong(const std::string& json, const std::string& why) {
  const absl::Status status = VolumeSnapshotDelta::Parse(json, "prod").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
  EXPECT_THAT(std::string(status.message()), HasSubstr(why)) << json;
}

TEST(VolumeSnapshotDelta, A3AllFields) {
  const auto delta = VolumeSnapshotDelta::Parse(
      Json(R"({"baseVolumeSnapshotName":"b","targetVolumeSnapshotName":"t","mode":"block",)"
           R"("volumeSnapshotDeltaSecretRef":{"name":"s","namespace":"prod"},)"
           R"("limit":9223372036854775807,"offset":5})"),
      "prod");
  ASSERT_TRUE(delta.ok()) << delta.status();
  EXPECT_EQ(delta->base, "b");
  EXPECT_EQ(delta->target, "t");
  EXPECT_EQ(delta->secret, "s");
  EXPECT_EQ(delta->limit, 9'223'372'036'854'775'807U);
  EXPECT_EQ(delta->offset, 5U);
}

TEST(VolumeSnapshotDelta, A3OnlyTheTargetIsRequired) {
  const auto delta =
      VolumeSnapshotDelta::Parse(Json(R"({"targetVolumeSnapshotName":"t"})"), "prod");
  ASSERT_TRUE(delta.ok()) << delta.status();
  EXPECT_FALSE(delta->base.has_value());
  EXPECT_TRUE(delta->secret.empty());
  ExpectWrong(Json(R"({"baseVolumeSnapshotName":"b"})"), "spec.targetVolumeSnapshotName");
  ExpectWrong(Json(R"({"targetVolumeSnapshotName":"../t"})"), "spec.targetVolumeSnapshotName");
  ExpectWrong(Json(R"({"targetVolumeSnapshotName":"t","baseVolumeSnapshotName":"a/b"})"),
              "spec.baseVolumeSnapshotName");
  ExpectWrong(Json(R"({"targetVolumeSnapshotName":"t","limit":-1})"), "spec.limit");
  ExpectWrong(Json(R"({"targetVolumeSnapshotName":"t","offset":"1"})"), "spec.offset");
  ExpectWrong(Json(R"({"targetVolumeSnapshotName":"t","offset":9223372036854775808})"),
              "spec.offset");
  ExpectWrong(Json(R"({"targetVolumeSnapshotName":"t","mode":"file"})"), "spec.mode");
  ExpectWrong(Json(R"({"targetVolumeSnapshotName":"t","bass":"b"})"), "unknown field \"bass\"");
  ExpectWrong(Json(R"({"targetVolumeSnapshotName":"t"})", R"({"namespace":"other"})"),
              "metadata.namespace");
}

// The secrets of other namespaces are not the caller's.
TEST(VolumeSnapshotDelta, A3ASecretIsOfTheSameNamespace) {
  ExpectWrong(Json(R"({"targetVolumeSnapshotName":"t","volumeSnapshotDeltaSecretRef":)"
                   R"({"name":"s","namespace":"kube-system"}})"),
              "volumeSnapshotDeltaSecretRef.namespace");
  ExpectWrong(Json(R"({"targetVolumeSnapshotName":"t","volumeSnapshotDeltaSecretRef":{}})"),
              "volumeSnapshotDeltaSecretRef.name");
}

TEST(VolumeSnapshotDelta, RefusesOtherObjects) {
  ExpectWrong("[]", "object");
  ExpectWrong(R"({"kind":"VolumeSnapshotDelta"})", "apiVersion");
  ExpectWrong(R"({"apiVersion":"cbt.storage.k8s.io/v1alpha1","kind":"Secret"})", "kind");
  ExpectWrong(
      R"({"apiVersion":"cbt.storage.k8s.io/v1alpha1","kind":"VolumeSnapshotDelta","data":{}})",
      "unknown field \"data\"");
}

VolumeSnapshotDelta Parsed(const std::string& spec = R"({"targetVolumeSnapshotName":"t"})") {
  return *VolumeSnapshotDelta::Parse(Json(spec), "prod");
}

Object Status(const std::string& json) { return *Object::Parse(json)->Child({"status"}); }

TEST(VolumeSnapshotDelta, A4TheAnswerIsTheObjectWithItsStatus) {
  const VolumeSnapshotDelta delta = Parsed(R"({"targetVolumeSnapshotName":"t","offset":2})");
  DeltaAnswer answer(delta, 256, 4096);
  answer.Add({.index = 2});
  answer.Add({.index = 9,
              .token = DataToken{
                  .token = "x", .issuance_time = "2023-11-14T22:13:20Z", .ttl_seconds = 10'800}});
  const std::string json = answer.Finish({.block_size = 4096, .volume_size = 65'536},
                                         {.blocks = 2, .next_block = 10}, "version");
  const auto object = Object::Parse(json);
  ASSERT_TRUE(object.ok()) << json;
  EXPECT_EQ(object->name(), "d");
  EXPECT_EQ(object->name_space(), "prod");
  EXPECT_EQ(*object->Int({"spec", "offset"}), 2);
  EXPECT_EQ(object->annotation("cbt.storage.k8s.io/volume-size-bytes"), "65536");
  EXPECT_EQ(object->annotation("cbt.storage.k8s.io/source-version"), "version");
  EXPECT_EQ(
      *Object::Parse(R"({"state":0,"limit":256,"offset":2,"continue":10,"changedBlockDeltas":[)"
                     R"({"offset":2,"blockSizeBytes":4096},)"
                     R"({"offset":9,"blockSizeBytes":4096,"dataToken":{"token":"x",)"
                     R"("issuanceTime":"2023-11-14T22:13:20Z","ttl":"3h0m0s"}}]})"),
      Status(json));
  // What was answered can be asked again: without its status, and at the annotated version.
  const auto again = VolumeSnapshotDelta::Parse(json, "prod");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->source_version, "version");
  EXPECT_FALSE(again->object.Has({"status"}));
}

// An answer that is sent back has the size of an earlier page.
TEST(VolumeSnapshotDelta, FASaysNoSizeThatTheDriverDoesNotSay) {
  const VolumeSnapshotDelta delta = Parsed();
  const std::string json = DeltaAnswer(delta, 256, 4096).Finish({.volume_size = 65'536}, {}, "v");
  const VolumeSnapshotDelta again = *VolumeSnapshotDelta::Parse(json, "prod");
  DeltaAnswer answer(again, 256, 4096);
  const auto object = Object::Parse(answer.Finish({.volume_size = {}}, {}, "v"));
  ASSERT_TRUE(object.ok());
  EXPECT_EQ(object->annotation("cbt.storage.k8s.io/volume-size-bytes"), std::nullopt);
  EXPECT_EQ(object->annotation("cbt.storage.k8s.io/source-version"), "v");
}

TEST(VolumeSnapshotDelta, A5States) {
  const VolumeSnapshotDelta delta = Parsed();
  DeltaAnswer answer(delta, 1, 512);
  answer.Add({.index = 0});
  const auto state = [](const std::string& json) { return *Status(json).Int({"state"}); };
  EXPECT_EQ(state(answer.Finish({}, {.blocks = 1, .next_block = 1, .more = true}, "v")), 1);
  EXPECT_EQ(state(answer.Finish({}, {.blocks = 1, .next_block = 1, .more = false}, "v")), 0);
  const Object failed = Status(answer.Fail(absl::UnavailableError("gone")));
  EXPECT_EQ(*failed.Int({"state"}), 2);
  EXPECT_EQ(*failed.String({"error"}), "UNAVAILABLE: gone");
  // Half a page is not taken for a page.
  EXPECT_TRUE(failed.Children({"changedBlockDeltas"})->empty());
  EXPECT_EQ(*failed.Int({"continue"}), 0);
}

// One form of the object, here and in `cbtctl list --object`; the slips of the text are settled in
// docs/guides/aggregated-api.md.
TEST(VolumeSnapshotDelta, A6TheSameNamesAsTheLibrary) {
  auto cursor =
      MakeExtentCursor({{0, 4096}, {8192, 4096}}, {.capacity = 65'536, .granularity = 4096});
  ASSERT_TRUE(cursor.ok());
  const auto rendered = cli::RenderVolumeSnapshotDelta(
      {.name = "d", .name_space = "prod", .target_snapshot = "t"}, *std::move(cursor), 4096);
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  const VolumeSnapshotDelta delta = Parsed();
  DeltaAnswer answer(delta, 256, 4096);
  answer.Add({.index = 0});
  answer.Add({.index = 2});
  const std::string json =
      answer.Finish({.volume_size = 65'536}, {.blocks = 2, .next_block = 3}, "v");
  EXPECT_EQ(Status(*rendered), Status(json));
}

}  // namespace cbt::test::volume_snapshot_delta_test
