// When a served call has stalled for too long.
#include "rpc/server/call_clock.h"

#include <gtest/gtest.h>

#include <chrono>

namespace cbt::rpc {
namespace call_clock_test {

using std::chrono::milliseconds;
using Verdict = CallClock::Verdict;

constexpr milliseconds kNoLimit{0};
constexpr milliseconds kOneMinute{60'000};
constexpr milliseconds kTick{1};
const CallClock::Clock::time_point kStart{std::chrono::hours{1}};

TEST(CallClock, LimitsTheWholeCall) {
  CallClock clock(kStart);
  const milliseconds total{500};
  EXPECT_EQ(clock.Judge(kOneMinute, total, false, kStart + total), Verdict::kInTime);
  EXPECT_EQ(clock.Judge(kOneMinute, total, false, kStart + total + kTick), Verdict::kTimeLimit);
  EXPECT_EQ(clock.Judge(kOneMinute, total, true, kStart + total + kTick), Verdict::kInTime);
}

// Also once the status is decided: the call stays open until the transport has sent it.
TEST(CallClock, SeesStallsUntilTheMessageIsSent) {
  const milliseconds stall{100};
  CallClock clock(kStart);
  const auto at = kStart + kOneMinute;
  clock.StartSending(at);
  for (const bool ending : {false, true}) {
    EXPECT_EQ(clock.Judge(stall, kNoLimit, ending, at + stall), Verdict::kInTime);
    EXPECT_EQ(clock.Judge(stall, kNoLimit, ending, at + stall + kTick), Verdict::kStalled);
  }
  // The stall limit comes before the limit of the whole call.
  EXPECT_EQ(clock.Judge(stall, stall, false, at + stall + kTick), Verdict::kStalled);
  EXPECT_EQ(clock.Sent(at + stall), stall);
  EXPECT_EQ(clock.Judge(stall, kNoLimit, false, at + kOneMinute), Verdict::kInTime);
}

}  // namespace call_clock_test
}  // namespace cbt::rpc
