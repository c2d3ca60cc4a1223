#include "bucket/s3_xml.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/status.h"

namespace cbt::bucket {
namespace s3_xml_test {

std::string Page(const std::string& inside) {
  return absl::StrCat(
      "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/\">", inside,
      "</ListBucketResult>");
}

const char kOne[] =
    "<Contents><Key>a</Key><LastModified>x</LastModified><Owner><ID>Key</ID></Owner>"
    "<Size>5</Size></Contents>";

TEST(S3Xml, ReadsPages) {
  ASSERT_OK_AND_ASSIGN(
      const ListPage last,
      ParseListPage(Page(absl::StrCat("<Name>b</Name><IsTruncated>false</IsTruncated>\n", kOne))));
  ASSERT_EQ(last.objects.size(), 1u);
  EXPECT_EQ(last.objects[0].key, "a");
  EXPECT_EQ(last.objects[0].size, 5u);
  EXPECT_FALSE(last.truncated);
  ASSERT_OK_AND_ASSIGN(
      const ListPage more,
      ParseListPage(Page("<Contents><Key>a%20%2B+%E1%88%B4&amp;</Key><Size>0</Size></Contents>"
                         "<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
                         "<NextContinuationToken>t/=</NextContinuationToken>")));
  EXPECT_EQ(more.objects[0].key, "a + \xE1\x88\xB4&");
  EXPECT_EQ(more.next_token, "t/=");
}

// A page from which it is not certain that it is whole is no page.
TEST(S3Xml, RefusesWhatIsNoPage) {
  const std::string good = Page(absl::StrCat("<IsTruncated>false</IsTruncated>", kOne));
  EXPECT_OK(ParseListPage(good));
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(ParseListPage(good.substr(0, size)).ok()) << size;
  }
  for (const std::string& inside :
       {std::string(kOne), std::string("<IsTruncated>maybe</IsTruncated>"),
        std::string("<IsTruncated>true</IsTruncated>"),
        std::string("<IsTruncated>false</IsTruncated><Contents><Key>a</Key></Contents>"),
        std::string("<IsTruncated>false</IsTruncated><Contents><Size>1</Size></Contents>"),
        std::string(
            "<IsTruncated>false</IsTruncated><Contents><Key>a</Key><Size>-1</Size></Contents>"),
        std::string("<IsTruncated>false</IsTruncated><EncodingType>url</EncodingType>"
                    "<Contents><Key>%4</Key><Size>1</Size></Contents>"),
        std::string(
            "<IsTruncated>false</IsTruncated><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>"
            "<a><a></a></a></a></a></a></a></a></a></a></a></a></a></a></a></a></a></a>")}) {
    EXPECT_FALSE(ParseListPage(Page(inside)).ok()) << inside;
  }
  EXPECT_FALSE(ParseListPage("<Error><Code>InternalError</Code></Error>").ok());
  EXPECT_FALSE(ParseListPage("<!DOCTYPE a [<!ENTITY b \"c\">]>" + good.substr(22)).ok());
}

TEST(S3Xml, ReadsErrors) {
  const S3Error error = ParseS3Error(
      "<Error><Code>SlowDown</Code><Message>Reduce &amp; wait</Message><Region>r</Region></Error>");
  EXPECT_EQ(error.code, "SlowDown");
  EXPECT_EQ(error.message, "Reduce & wait");
  EXPECT_EQ(error.region, "r");
  for (const std::string text : {"", "x", "<html/>", "<Error><Code>a</Code>"}) {
    EXPECT_EQ(ParseS3Error(text).code, "") << text;
  }
}

}  // namespace s3_xml_test
}  // namespace cbt::bucket
