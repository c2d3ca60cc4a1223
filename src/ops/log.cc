#include "cbt/ops/log.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace cbt::ops {
namespace {

using rpc::LogLevel;

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

class SpdlogSink final : public rpc::LogSink {
 public:
  SpdlogSink(spdlog::sink_ptr sink, LogLevel level)
      : logger_("cbt", std::move(sink)), level_(level) {
    logger_.set_formatter(std::make_unique<spdlog::pattern_formatter>(
        "time=%Y-%m-%dT%H:%M:%S.%eZ %v", spdlog::pattern_time_type::utc));
    logger_.set_level(LevelOf(level));
    logger_.flush_on(LevelOf(level));
    // A log that can't be written must not fail a stream; there is no one to report it to.
    logger_.set_error_handler([](const std::string&) {});
  }

  bool Wants(LogLevel level) const noexcept override { return level >= level_; }

  void Write(LogLevel level, std::string_view event,
             std::span<const rpc::LogField> fields) noexcept override try {
    std::string line = "level=";
    line.append(rpc::LogLevelName(level)).append(" event=").append(LogValue(event));
    for (const rpc::LogField& field : fields) {
      line.append(" ").append(field.key).append("=").append(LogValue(field.value));
    }
    logger_.log(LevelOf(level), "{}", line);
  } catch (...) {
    return;  // no memory for a line
  }

 private:
  spdlog::logger logger_;
  const LogLevel level_;
};

}  // namespace

std::string LogValue(std::string_view value) {
  bool plain = !value.empty();
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= ' ' || byte == '"' || byte == '=' || byte == '\\' || byte >= 0x7f) plain = false;
  }
  if (plain) return std::string(value);
  std::string quoted = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == '"' || byte == '\\') {
      quoted += {'\\', c};
    } else if (byte < ' ' || byte == 0x7f || (byte >= 0x80 && byte < 0xa0)) {
      // Also bytes inside UTF-8 sequences; such a name is only partly readable.
      absl::StrAppend(&quoted, "\\x", absl::Hex(byte, absl::kZeroPad2));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

absl::StatusOr<std::unique_ptr<rpc::LogSink>> MakeLog(const LogOptions& options) {
  try {
    spdlog::sink_ptr sink;
    if (options.file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
    }
    return std::make_unique<SpdlogSink>(std::move(sink), options.level);
  } catch (const std::exception&) {
    return absl::UnavailableError(absl::StrCat("log: ", options.file, ": can't be opened"));
  }
}

}  // namespace cbt::ops
