// Which secret a class names, and what no template may do.
#include "programs/cluster/secret_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "programs/cluster/object_name.h"
#include "tests/support/status.h"

namespace cbt::kube::cluster {
namespace secret_template_test {

constexpr char kName[] = "csi.storage.k8s.io/snapshotter-secret-name";
constexpr char kNamespace[] = "csi.storage.k8s.io/snapshotter-secret-namespace";
const TemplateValues kValues = {
    .snapshot_namespace = "ns", .snapshot_name = "snap", .content_name = "content-1"};

absl::StatusOr<std::optional<SecretName>> Of(std::map<std::string, std::string> parameters) {
  VolumeSnapshotClass one;
  one.parameters = std::move(parameters);
  return SecretOf(one, kValues);
}

TEST(SecretTemplate, AClassMayNameNone) {
  EXPECT_EQ(*Of({}), std::nullopt);
  EXPECT_EQ(*Of({{"csi.storage.k8s.io/fstype", "ext4"}}), std::nullopt);
}

TEST(SecretTemplate, TokensAreFilledIn) {
  EXPECT_EQ(*Of({{kName, "s"}, {kNamespace, "n"}}), (SecretName{"n", "s"}));
  EXPECT_EQ(*Of({{kName, "${volumesnapshot.name}.${volumesnapshot.namespace}"},
                 {kNamespace, "${volumesnapshot.namespace}"}}),
            (SecretName{"ns", "snap.ns"}));
  EXPECT_EQ(*Of({{kName, "a-${volumesnapshotcontent.name}-b"},
                 {kNamespace, "x-${volumesnapshotcontent.name}"}}),
            (SecretName{"x-content-1", "a-content-1-b"}));
}

TEST(SecretTemplate, WhatMakesNoNameIsRefused) {
  for (const std::map<std::string, std::string>& parameters :
       std::vector<std::map<std::string, std::string>>{
           {{kName, "s"}},
           {{kNamespace, "n"}},
           {{kName, ""}, {kNamespace, "n"}},
           {{kName, "s"}, {kNamespace, ""}},
           // The author of a snapshot would choose the namespace.
           {{kName, "s"}, {kNamespace, "${volumesnapshot.name}"}},
           {{kName, "${pvc.name}"}, {kNamespace, "n"}},
           {{kName, "${volumesnapshot.name"}, {kNamespace, "n"}},
           {{kName, "$volumesnapshot.name"}, {kNamespace, "n"}},
           {{kName, "${}"}, {kNamespace, "n"}},
           {{kName, "$"}, {kNamespace, "n"}},
           {{kName, "a/b"}, {kNamespace, "n"}},
           {{kName, "Upper"}, {kNamespace, "n"}},
           {{kName, "s"}, {kNamespace, "a.b"}},
           {{kName, "s"}, {kNamespace, std::string(64, 'a')}},
           {{kName, std::string(254, 'a')}, {kNamespace, "n"}},
       }) {
    const auto secret = Of(parameters);
    EXPECT_EQ(secret.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(secret.status().message()),
                testing::HasSubstr("csi.storage.k8s.io/snapshotter-secret-name"));
  }
}

TEST(ObjectName, AsTheApiServerHasThem) {
  for (const char* good : {"a", "0", "a-b", "a.b", "a-1.b-2.c", "a--b"}) {
    EXPECT_TRUE(IsObjectName(good)) << good;
  }
  for (const char* bad : {"", "-", ".", "a-", "-a", "a.", ".a", "a..b", "a.-b", "a-.b", "A", "a_b",
                          "a/b", "a b", "a\n", "\xc3\xa4"}) {
    EXPECT_FALSE(IsObjectName(bad)) << bad;
    EXPECT_FALSE(IsNamespaceName(bad)) << bad;
  }
  EXPECT_FALSE(IsNamespaceName("a.b"));
  EXPECT_TRUE(IsNamespaceName(std::string(63, 'a')));
  EXPECT_TRUE(IsObjectName(std::string(253, 'a')));
}

}  // namespace secret_template_test
}  // namespace cbt::kube::cluster
