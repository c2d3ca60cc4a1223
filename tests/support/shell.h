// Runs other programs whose output tests compare.
#ifndef CBT_TESTS_SUPPORT_SHELL_H_
#define CBT_TESTS_SUPPORT_SHELL_H_

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace cbt::test {

// Returns whether the shell command succeeds; discards its output.
inline bool Shell(const std::string& command) {
  return std::system(("{ " + command + "; } > /dev/null 2>&1").c_str()) == 0;
}

// The output of the shell command.
inline std::string ShellOutput(const std::string& command) {
  std::string output;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> buffer;
  for (size_t count; (count = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.append(buffer.data(), count);
  }
  pclose(pipe);
  return output;
}

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_SHELL_H_
