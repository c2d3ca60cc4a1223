// What an error number means, in words.
#ifndef CBT_BASE_ERRNO_TEXT_H_
#define CBT_BASE_ERRNO_TEXT_H_

#include <string>
#include <system_error>

namespace cbt {

// The system's text for `error`, a value of errno. Safe to call from several threads, unlike
// strerror().
inline std::string ErrnoText(int error) { return std::generic_category().message(error); }

}  // namespace cbt

#endif  // CBT_BASE_ERRNO_TEXT_H_
