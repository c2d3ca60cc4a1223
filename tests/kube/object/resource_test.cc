#include <gtest/gtest.h>

#include <string>

#include "cbt/kube/object.h"
#include "tests/support/status.h"

namespace cbt::kube {
namespace resource_test {

using test::ValueOf;

TEST(ResourceTest, Paths) {
  EXPECT_EQ(ValueOf(ResourcePath(kSecrets, "ns", "a")), "/api/v1/namespaces/ns/secrets/a");
  EXPECT_EQ(ValueOf(ResourcePath(kSecrets, "")), "/api/v1/secrets");
  EXPECT_EQ(ValueOf(ResourcePath(kVolumeSnapshots, "ns", "a", "status")),
            "/apis/snapshot.storage.k8s.io/v1/namespaces/ns/volumesnapshots/a/status");
  EXPECT_EQ(ValueOf(ResourcePath(kVolumeSnapshotContents, "", "a")),
            "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents/a");
  // Roles have such names.
  EXPECT_EQ(ValueOf(ResourcePath(kClusterRoles, "", "system:node role")),
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode%20role");
  EXPECT_EQ(kSecrets.ApiVersion(), "v1");
  EXPECT_EQ(kLeases.ApiVersion(), "coordination.k8s.io/v1");
}

TEST(ResourceTest, ReachesNoOtherObject) {
  for (const std::string& part :
       {std::string("."), std::string(".."), std::string("a/b"), std::string("../x"),
        std::string("a%2fb"), std::string("a?b"), std::string("a#b"), std::string("a\\b"),
        std::string("a\nb"), std::string("a\0b", 3)}) {
    EXPECT_FALSE(ResourcePath(kSecrets, "ns", part).ok()) << part;
    EXPECT_FALSE(ResourcePath(kSecrets, part, "a").ok()) << part;
    EXPECT_FALSE(ResourcePath(kSecrets, "ns", "a", part).ok()) << part;
  }
  EXPECT_FALSE(ResourcePath(kSecrets, "", "a").ok()) << "a namespaced object without a namespace";
  EXPECT_FALSE(ResourcePath(kNamespaces, "ns", "a").ok());
  EXPECT_FALSE(ResourcePath(kSecrets, "ns", "", "status").ok());
}

}  // namespace resource_test
}  // namespace cbt::kube
