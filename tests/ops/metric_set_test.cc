#include "ops/metric_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cbt::ops {
namespace metric_set_test {

using testing::HasSubstr;

TEST(MetricSet, CountersOfOneNameAreOneFamily) {
  MetricSet set;
  MetricSet::Counter good = set.AddCounter("answers_total", "Answers", "kind", "good");
  MetricSet::Counter bad = set.AddCounter("answers_total", "Answers", "kind", "b\"ad");
  MetricSet::Counter plain = set.AddCounter("steps_total", "Steps");
  ++good;
  ++good;
  ++plain;
  EXPECT_EQ(good, 2u);
  EXPECT_EQ(bad, 0u);
  EXPECT_EQ(set.Text(),
            "# HELP answers_total Answers\n"
            "# TYPE answers_total counter\n"
            "answers_total{kind=\"b\\\"ad\"} 0\n"
            "answers_total{kind=\"good\"} 2\n"
            "# HELP steps_total Steps\n"
            "# TYPE steps_total counter\n"
            "steps_total 1\n");
}

TEST(MetricSet, ACountThatIsKeptElsewhereIsReadByEachScrape) {
  MetricSet set;
  uint64_t kept = 3;
  set.AddCounter("restarts_total", "Restarts", [&kept] { return static_cast<double>(kept); });
  EXPECT_THAT(set.Text(), HasSubstr("# TYPE restarts_total counter\nrestarts_total 3\n"));
  EXPECT_THAT(set.Text(), HasSubstr("\nrestarts_total 3\n"));
  kept = 1000000007;
  EXPECT_THAT(set.Text(), HasSubstr("\nrestarts_total 1000000007\n"));
}

TEST(MetricSet, AGaugeIsReadByEachScrape) {
  MetricSet set;
  double now = 1;
  set.AddGauge("active", "1 while it acts", [&now] { return now; });
  EXPECT_THAT(set.Text(), HasSubstr("# TYPE active gauge\nactive 1\n"));
  now = 0;
  EXPECT_THAT(set.Text(), HasSubstr("\nactive 0\n"));
}

}  // namespace metric_set_test
}  // namespace cbt::ops
