// Changes that a service knows, as an input of a command.
#ifndef CBT_PROGRAMS_CBT_COMMANDS_SERVICE_CHANGES_H_
#define CBT_PROGRAMS_CBT_COMMANDS_SERVICE_CHANGES_H_

#include <cstdint>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"

namespace cbt::cli {

// `--service ADDR` and what belongs to it. In a build without cbt::rpc there is no such option.
class ServiceChanges {
 public:
  virtual ~ServiceChanges() = default;

  // Whether `--service` was given.
  virtual bool wanted() const = 0;

  // Opens the delta that the options name. `capacity`: the size of the data in bytes, for a service
  // that reports nothing and does not say it. Call once.
  virtual absl::StatusOr<ExtentCursor*> Open(uint64_t capacity) = 0;

  // What a user should know of a stream that was read to its end; empty: nothing.
  virtual std::string Warning() const = 0;
};

// `name`: of the subcommand. The options use the result, which must outlive the parsing.
std::shared_ptr<ServiceChanges> AddServiceChanges(CLI::App& subcommand, const std::string& name);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_COMMANDS_SERVICE_CHANGES_H_
