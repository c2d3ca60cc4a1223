#include "programs/cbt/options/block_size.h"

#include <string>

#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "cbt/source/image.h"
#include "programs/cbt/support/numbers.h"
#include "programs/cbt/support/status.h"

namespace cbt::cli {

void AddBlockSizeOption(CLI::App& subcommand, std::optional<uint64_t>& block_size) {
  const std::string name = "--block-size";
  subcommand
      .add_option_function<std::string>(
          "-b," + name,
          [name, &block_size](const std::string& text) {
            const absl::StatusOr<uint64_t> value = ParseNumber(text, kMaxCapacity);
            if (!value.ok()) throw CLI::ValidationError(name, MessageOf(value.status()));
            if (!IsPowerOfTwo(*value) || *value < kMinImageBlockSize ||
                *value > kMaxImageBlockSize) {
              throw CLI::ValidationError(name,
                                         "'" + text + "': not a power of two from 512 to 64M");
            }
            block_size = *value;
          },
          "Granularity in bytes, a power of two from 512 to 64M")
      ->type_name("N")
      ->default_str("4096");
}

}  // namespace cbt::cli
