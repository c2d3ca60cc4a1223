#include "base/holes.h"

#include <sys/utsname.h>
#include <sys/vfs.h>

#include <charconv>
#include <utility>

namespace cbt {

bool SkipsUnwrittenData(uint64_t magic, std::string_view release) noexcept {
  constexpr uint64_t kXfs = 0x58465342;  // missing in some versions of linux/magic.h
  constexpr std::pair<int, int> kMended{6, 9};
  if (magic != kXfs) return false;
  const char* const end = release.data() + release.size();
  std::pair<int, int> version;
  const auto [dot, error] = std::from_chars(release.data(), end, version.first);
  if (error != std::errc() || dot == end || *dot != '.') return true;
  if (std::from_chars(dot + 1, end, version.second).ec != std::errc()) return true;
  return version < kMended;
}

bool SkipsUnwrittenData(int file) noexcept {
  struct statfs system {};
  if (::fstatfs(file, &system) != 0) return true;
  utsname kernel{};
  const bool known = ::uname(&kernel) == 0;
  return SkipsUnwrittenData(static_cast<uint32_t>(system.f_type),
                            known ? std::string_view(kernel.release) : std::string_view());
}

}  // namespace cbt
