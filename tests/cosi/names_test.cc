// Names, labels and finalizers of COSI's objects.
#include "programs/cosi/api/names.h"

#include <gtest/gtest.h>

#include <string>

namespace cbt::kube::cosi {
namespace names_test {
namespace {

TEST(CosiNames, CosiC2AndS15NamesAreMadeOfTheUid) {
  BucketRequest request;
  request.meta.uid = "1b2c";
  EXPECT_EQ(BucketNameOf(request), "br-1b2c");
  request.prefix = "logs";
  EXPECT_EQ(BucketNameOf(request), "logs-1b2c");
  BucketAccessRequest access;
  access.meta.uid = "3d4e";
  EXPECT_EQ(AccessNameOf(access), "ba-3d4e");
}

TEST(CosiNames, CosiC3WhatLabelsForbidBecomesADash) {
  EXPECT_EQ(LabelValue("rgw.example.com"), "rgw.example.com");
  EXPECT_EQ(LabelValue("a/b c:d"), "a-b-c-d");
  EXPECT_EQ(LabelValue("/a/"), "a");
  EXPECT_EQ(LabelValue(""), "");
  EXPECT_EQ(LabelValue("///"), "");
  EXPECT_EQ(LabelValue(std::string(70, 'a')), std::string(63, 'a'));
  EXPECT_EQ(LabelValue(std::string(62, 'a') + "-b"), std::string(62, 'a'));
}

TEST(CosiNames, CosiS19LongNamesGiveWayToTheUid) {
  ObjectMeta access;
  access.uid = "0000-1111";
  access.name = "ba-5";
  EXPECT_EQ(AccessorFinalizer(access), "objectstorage.k8s.io/ba-ba-5");
  access.name = std::string(60, 'n');  // with "ba-" 63 characters
  EXPECT_EQ(AccessorFinalizer(access), "objectstorage.k8s.io/ba-" + access.name);
  access.name.push_back('n');
  EXPECT_EQ(AccessorFinalizer(access), "objectstorage.k8s.io/ba-0000-1111");
}

TEST(CosiNames, CosiS2FinalizersComeOnceAndGo) {
  Object object("a/v1", "A", "", "one");
  EXPECT_TRUE(AddFinalizer(object, kRequestFinalizer));
  EXPECT_FALSE(AddFinalizer(object, kRequestFinalizer));
  EXPECT_EQ(kRequestFinalizer, "objectstorage.k8s.io/bucketrequest-protection");
  EXPECT_EQ(kRequestFinalizerShort, "objectstorage.k8s.io/bucketrequest-protect");
  EXPECT_TRUE(AddFinalizer(object, kRequestFinalizerShort));
  EXPECT_FALSE(RemoveFinalizer(object, "another"));
  EXPECT_TRUE(RemoveFinalizer(object, kRequestFinalizer));
  EXPECT_TRUE(RemoveFinalizer(object, kRequestFinalizerShort));
  EXPECT_FALSE(object.Has({"metadata", "finalizers"}));
  EXPECT_FALSE(RemoveAllFinalizers(object));
  AddFinalizer(object, "a");
  AddFinalizer(object, "b");
  EXPECT_TRUE(RemoveAllFinalizers(object));
}

TEST(CosiNames, OnlyFinalizersOfAccessesAreAccessors) {
  ObjectMeta bucket;
  bucket.finalizers = {std::string(kBucketFinalizer), "example.com/ba-1"};
  EXPECT_FALSE(HasAccessors(bucket));
  bucket.finalizers.emplace_back("objectstorage.k8s.io/ba-ba-1");
  EXPECT_TRUE(HasAccessors(bucket));
}

TEST(CosiNames, CosiC6TheAnnotationOfADefaultClass) {
  BucketClass one;
  EXPECT_FALSE(one.is_default());
  one.meta.annotations[std::string(kDefaultClassAnnotation)] = "";
  EXPECT_TRUE(one.is_default());
  one.meta.annotations[std::string(kDefaultClassAnnotation)] = "true";
  EXPECT_TRUE(one.is_default());
  one.meta.annotations[std::string(kDefaultClassAnnotation)] = "false";
  EXPECT_FALSE(one.is_default());
}

}  // namespace
}  // namespace names_test
}  // namespace cbt::kube::cosi
