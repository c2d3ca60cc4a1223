// The times of a connection, without a connection: which limits pass, and when to look again.
#include "rpc/http2/connection_limits.h"

#include <gtest/gtest.h>

#include <chrono>

namespace cbt::rpc::http2 {
namespace connection_limits_test {

using std::chrono::milliseconds;
using Silence = TimeLimits::Silence;
using State = TimeLimits::State;

constexpr TimeLimits::Clock::time_point kStart{std::chrono::hours(1)};

TimeLimits::Clock::time_point After(int ms) { return kStart + milliseconds(ms); }

ConnectionSettings NoLimits() {
  ConnectionSettings settings;
  settings.handshake_time = settings.write_stall_time = milliseconds(0);
  return settings;
}

TEST(TimeLimitsTest, LimitsThatAreOffNeverPass) {
  const ConnectionSettings settings = NoLimits();
  TimeLimits times(settings, kStart);
  const auto late = kStart + std::chrono::hours(10'000);
  for (const State& state : {State{}, State{.ready = true, .write_blocked = true, .streams = 1}}) {
    EXPECT_FALSE(times.HandshakeLate(state, late));
    EXPECT_FALSE(times.Stalled(state, late));
    EXPECT_FALSE(times.Aged(late) || times.TooOld(late));
    EXPECT_FALSE(times.Idle(state, late));
    EXPECT_EQ(times.Keepalive(state, late), Silence::kNone);
    EXPECT_EQ(times.Next(state, kStart), kStart + std::chrono::hours(1));
  }
}

TEST(TimeLimitsTest, Handshake) {
  ConnectionSettings settings = NoLimits();
  settings.handshake_time = milliseconds(100);
  const TimeLimits times(settings, kStart);
  EXPECT_EQ(times.Next({}, kStart), After(100));
  EXPECT_FALSE(times.HandshakeLate({}, After(99)));
  EXPECT_TRUE(times.HandshakeLate({}, After(100)));
  EXPECT_FALSE(times.HandshakeLate({.ready = true}, After(100)));
  EXPECT_FALSE(times.HandshakeLate({.terminating = true}, After(100)));
  EXPECT_EQ(times.Next({}, After(500)), After(505)) << "the loop must not spin";
}

TEST(TimeLimitsTest, AKeptBarCountsFromItsBeginning) {
  ConnectionSettings settings = NoLimits();
  settings.handshake_time = milliseconds(100);
  TimeLimits times(settings, kStart);
  times.NoteBarred(true, After(50));
  times.NoteBarred(true, After(120));
  EXPECT_FALSE(times.BarredTooLong(After(149)));
  EXPECT_TRUE(times.BarredTooLong(After(150)));
  EXPECT_EQ(times.Next({.ready = true}, After(60)), After(150));
  times.NoteBarred(false, After(150));
  EXPECT_FALSE(times.BarredTooLong(After(1000)));
}

TEST(TimeLimitsTest, AStallIsShorterWithoutStreams) {
  ConnectionSettings settings = NoLimits();
  settings.write_stall_time = milliseconds(80'000);
  TimeLimits times(settings, kStart);
  times.NoteWrite(After(1000));
  const State open{.ready = true, .write_blocked = true, .streams = 1};
  const State none{.ready = true, .write_blocked = true};
  EXPECT_FALSE(times.Stalled(open, After(80'999)));
  EXPECT_TRUE(times.Stalled(open, After(81'000)));
  EXPECT_FALSE(times.Stalled(none, After(5'999)));
  EXPECT_TRUE(times.Stalled(none, After(6'000)));
  EXPECT_FALSE(times.Stalled({.ready = true}, After(90'000)));
  EXPECT_EQ(times.Next(open, After(1000)), After(81'000));
  EXPECT_EQ(times.Next(none, After(1000)), After(6'000));
}

TEST(TimeLimitsTest, AgeAndIdleness) {
  ConnectionSettings settings = NoLimits();
  settings.max_age = milliseconds(1000);
  settings.idle_time = milliseconds(300);
  TimeLimits times(settings, kStart);
  const State busy{.ready = true, .streams = 1};
  EXPECT_EQ(times.Next(busy, kStart), After(1000));
  EXPECT_EQ(times.Next({.ready = true}, kStart), After(300));
  EXPECT_EQ(times.Next({.ready = true, .draining = true}, kStart), After(2000));
  times.NoteStreamEnd(After(200));
  EXPECT_FALSE(times.Idle({.ready = true}, After(499)));
  EXPECT_TRUE(times.Idle({.ready = true}, After(500)));
  EXPECT_FALSE(times.Idle(busy, After(500)));
  EXPECT_FALSE(times.Aged(After(999)));
  EXPECT_TRUE(times.Aged(After(1000)));
  EXPECT_FALSE(times.TooOld(After(1999)));
  EXPECT_TRUE(times.TooOld(After(2000)));
}

TEST(TimeLimitsTest, LastFrames) {
  const ConnectionSettings settings = NoLimits();
  TimeLimits times(settings, kStart);
  const State draining{.ready = true, .draining = true, .awaits_last_goaway = true};
  times.NoteDrain(After(10));
  EXPECT_FALSE(times.LastGoawayDue(draining, After(1009)));
  EXPECT_TRUE(times.LastGoawayDue(draining, After(1010)));
  EXPECT_FALSE(times.LastGoawayDue({.ready = true, .draining = true}, After(1010)));
  const State ending{.ready = true, .terminating = true};
  times.NoteTerminate(After(20));
  EXPECT_FALSE(times.LastFramesLate(ending, After(1019)));
  EXPECT_TRUE(times.LastFramesLate(ending, After(1020)));
  EXPECT_EQ(times.Next(ending, After(20)), After(1020));
}

TEST(TimeLimitsTest, Keepalive) {
  ConnectionSettings settings = NoLimits();
  settings.keepalive_time = milliseconds(100);
  settings.keepalive_timeout = milliseconds(30);
  settings.keepalive_without_streams = false;
  TimeLimits times(settings, kStart);
  const State busy{.ready = true, .streams = 1};
  EXPECT_EQ(times.Keepalive({.streams = 1}, After(200)), Silence::kNone) << "not ready";
  EXPECT_EQ(times.Keepalive({.ready = true}, After(200)), Silence::kNone) << "no streams";
  times.NoteRead(After(50));
  EXPECT_EQ(times.Next(busy, After(60)), After(150));
  EXPECT_EQ(times.Keepalive(busy, After(149)), Silence::kNone);
  EXPECT_EQ(times.Keepalive(busy, After(150)), Silence::kPing);
  EXPECT_EQ(times.Next(busy, After(150)), After(180));
  EXPECT_EQ(times.Keepalive(busy, After(179)), Silence::kNone);
  // Only the answer to the ping counts.
  times.NoteRead(After(179));
  EXPECT_EQ(times.Keepalive(busy, After(180)), Silence::kSilent);
  times.NotePong();
  EXPECT_EQ(times.Keepalive(busy, After(200)), Silence::kNone);
  EXPECT_EQ(times.Keepalive(busy, After(279)), Silence::kPing);
}

}  // namespace connection_limits_test
}  // namespace cbt::rpc::http2
