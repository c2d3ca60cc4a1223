// `cbtctl conform --cosi`: checks a COSI driver.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_CONFORM_COSI_H_
#define CBT_PROGRAMS_CBT_COMMANDS_CONFORM_COSI_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace cbt::cli {

struct ConformCosiArguments {
  bool cosi = false;
  std::vector<std::string> bucket_parameters = {};  // KEY=VALUE
  std::vector<std::string> access_parameters = {};
  std::string ca_file = {};
  std::chrono::milliseconds settle_time = std::chrono::seconds(10);
};

// The exit status.
int ConformCosi(const std::string& address, const ConformCosiArguments& arguments,
                std::optional<std::chrono::milliseconds> timeout, bool json, bool verbose);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_CONFORM_COSI_H_
