// Limits how long a source may take.
#ifndef CBT_SOURCE_INPUT_TIME_LIMIT_H_
#define CBT_SOURCE_INPUT_TIME_LIMIT_H_

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "cbt/cursor.h"

namespace cbt {

// Longer limits are cut to this one, so that the clock can't overflow.
inline constexpr std::chrono::hours kLongestTime{24 * 365};

// A cursor over `input` that fails with DEADLINE_EXCEEDED once all of its calls together have taken
// `limit`. Time between calls does not count.
std::unique_ptr<ExtentCursor> LimitTime(std::unique_ptr<ExtentCursor> input,
                                        std::chrono::milliseconds limit, std::string label);

// How long to wait for anything before looking again whether `stop` has been requested.
std::chrono::milliseconds WaitingStep(const std::stop_token& stop) noexcept;

// CANCELLED for the source `label`.
absl::Status Stopped(const std::string& label);

// Waits until a read of `descriptor`, a pipe for example, would not wait, or has ended.
// Errors: CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE.
absl::Status WaitReadable(int descriptor, std::chrono::steady_clock::time_point deadline,
                          const std::stop_token& stop, const std::string& label);

// DEADLINE_EXCEEDED for the source `label`.
absl::Status TookTooLong(const std::string& label);

}  // namespace cbt

#endif  // CBT_SOURCE_INPUT_TIME_LIMIT_H_
