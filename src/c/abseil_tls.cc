// Replacements for the two objects of abseil that use thread-local variables of their own. Where
// abseil was compiled for programs only, as in Debian, these are the ones that do not link into a
// shared library. An archive's object is not linked if everything that it defines is here.
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <thread>

#include "absl/base/config.h"
#include "absl/base/internal/sysinfo.h"
#include "absl/strings/internal/cordz_functions.h"

namespace absl {
ABSL_NAMESPACE_BEGIN

// Without the copy that abseil keeps for each thread.
namespace base_internal {

int NumCPUs() {
  static const auto cpus = static_cast<int>(std::thread::hardware_concurrency());
  return cpus;
}

// Unknown. Only cycle counters ask, and nothing here reads one.
double NominalCPUFrequency() { return 1.0; }

pid_t GetTID() { return static_cast<pid_t>(syscall(SYS_gettid)); }
pid_t GetCachedTID() { return GetTID(); }

}  // namespace base_internal

// The sampling of cords is off.
#ifdef ABSL_INTERNAL_CORDZ_ENABLED
namespace cord_internal {

int32_t get_cordz_mean_interval() { return 0; }
void set_cordz_mean_interval(int32_t) {}

#if defined(ABSL_LTS_RELEASE_VERSION) && ABSL_LTS_RELEASE_VERSION < 20240101
ABSL_CONST_INIT thread_local int64_t cordz_next_sample = std::numeric_limits<int64_t>::max();

bool cordz_should_profile_slow() {
  cordz_next_sample = std::numeric_limits<int64_t>::max();
  return false;
}
void cordz_set_next_sample_for_testing(int64_t) {}
#else
ABSL_CONST_INIT thread_local SamplingState cordz_next_sample = {std::numeric_limits<int64_t>::max(),
                                                                1};

int64_t cordz_should_profile_slow(SamplingState& state) {
  state.next_sample = std::numeric_limits<int64_t>::max();
  return 0;
}
#endif

}  // namespace cord_internal
#endif

ABSL_NAMESPACE_END
}  // namespace absl
