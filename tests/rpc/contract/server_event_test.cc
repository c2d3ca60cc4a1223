// The log of what strangers can cause: it stays short.
#include "rpc/contract/server_event.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "rpc/server/stream_telemetry.h"

namespace cbt::rpc {
namespace server_event_test {

using std::chrono::seconds;

LimitedLog::Clock::time_point now;

class Lines final : public LogSink {
 public:
  bool Wants(LogLevel level) const noexcept override { return level != LogLevel::kDebug; }
  void Write(LogLevel, std::string_view event, std::span<const LogField> fields) noexcept override {
    std::string line(event);
    for (const LogField& field : fields) line += " " + std::string(field.key) + "=" + field.value;
    lines.push_back(line);
  }
  std::vector<std::string> lines;
};

class ServerEventLog : public testing::Test {
 protected:
  Lines lines_;
  LimitedLog log_{lines_, +[] { return now; }};
  Telemetry telemetry_{.observer = nullptr, .log = &log_};
};

TEST_F(ServerEventLog, ZAFailedHandshakesDoNotFillIt) {
  for (int i = 0; i < 100'000; ++i) Report(telemetry_, ServerEvent::kHandshakeFailed);
  EXPECT_EQ(lines_.lines.size(), size_t{LimitedLog::kBurst});
  now += LimitedLog::kInterval - seconds(1);
  Report(telemetry_, ServerEvent::kHandshakeFailed);
  EXPECT_EQ(lines_.lines.size(), size_t{LimitedLog::kBurst});
  now += seconds(1);
  for (int i = 0; i < 10; ++i) Report(telemetry_, ServerEvent::kHandshakeFailed);
  ASSERT_EQ(lines_.lines.size(), size_t{LimitedLog::kBurst} + 1);
  EXPECT_EQ(lines_.lines.front(), "server what=handshake_failed");
  EXPECT_EQ(lines_.lines.back(), "server what=handshake_failed unlogged=99991");
  now += LimitedLog::kInterval * 1000;
  for (int i = 0; i < 100; ++i) Report(telemetry_, ServerEvent::kHandshakeFailed);
  EXPECT_EQ(lines_.lines.size(), size_t{LimitedLog::kBurst} * 2 + 1);
}

TEST_F(ServerEventLog, ZAStreamsThatWereNotAdmittedDoNotFillIt) {
  for (int i = 0; i < 1000; ++i) {
    StreamTelemetry(telemetry_, {}).End(absl::UnauthenticatedError(""), EndReason::kRefused);
  }
  EXPECT_EQ(lines_.lines.size(), size_t{LimitedLog::kBurst});
  now += LimitedLog::kInterval;
  StreamTelemetry(telemetry_, {}).End(absl::CancelledError(""), EndReason::kClient);
  ASSERT_EQ(lines_.lines.size(), size_t{LimitedLog::kBurst} + 1);
  EXPECT_THAT(lines_.lines.back(), testing::HasSubstr("code=CANCELLED"));
  EXPECT_THAT(lines_.lines.back(), testing::EndsWith(" admitted=false unlogged=990"));
  // Those of callers who were admitted are all kept.
  lines_.lines.clear();
  for (int i = 0; i < 100; ++i) {
    StreamTelemetry stream(telemetry_, {});
    stream.Admitted();
    stream.End(absl::NotFoundError(""), EndReason::kSource);
  }
  EXPECT_EQ(lines_.lines.size(), 100U);
  EXPECT_THAT(lines_.lines.back(), testing::Not(testing::HasSubstr("admitted")));
}

// One event does not silence another, and records of streams are all kept.
TEST_F(ServerEventLog, OthersAreLogged) {
  for (int i = 0; i < 100; ++i) Report(telemetry_, ServerEvent::kHandshakeFailed);
  lines_.lines.clear();
  Report(telemetry_, ServerEvent::kClientCaUnusable);
  EXPECT_EQ(lines_.lines, std::vector<std::string>{"server what=client_ca_unusable"});
  const LogField fields[] = {{"stream", "1"}};
  for (int i = 0; i < 100; ++i) log_.Write(LogLevel::kInfo, "stream ended", fields);
  EXPECT_EQ(lines_.lines.size(), 101U);
}

TEST(LimitedTelemetry, WithoutALogThereIsNone) {
  const LimitedTelemetry none{Telemetry()};
  EXPECT_EQ(none.get().log, nullptr);
  Lines lines;
  const LimitedTelemetry some({.observer = nullptr, .log = &lines});
  for (int i = 0; i < 100; ++i) Report(some.get(), ServerEvent::kStreamRefused);
  EXPECT_EQ(lines.lines.size(), size_t{LimitedLog::kBurst});
}

}  // namespace server_event_test
}  // namespace cbt::rpc
