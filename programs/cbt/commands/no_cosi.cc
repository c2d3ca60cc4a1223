// Replaces `cbtctl conform --cosi` in a build without Kubernetes or S3.

#include "programs/cbt/commands/conform_cosi.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

int ConformCosi(const std::string& /*address*/, const ConformCosiArguments& /*arguments*/,
                std::optional<std::chrono::milliseconds> /*timeout*/, bool /*json*/,
                bool /*verbose*/) {
  return Report("conform", UsageError("--cosi",
                                      "not in this build: it was built without Kubernetes, libcurl "
                                      "or expat"));
}

}  // namespace cbt::cli
