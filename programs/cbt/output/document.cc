#include "programs/cbt/output/document.h"

#include <unistd.h>

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "base/file_io.h"
#include "programs/cbt/output/output.h"
#include "programs/cbt/support/output_place.h"

namespace cbt::cli {

absl::Status WriteDocument(const std::string& path, const InputFiles& inputs,
                           std::string_view document) {
  if (IsStdout(path)) {
    Output output(STDOUT_FILENO, "stdout");
    output.Append(document);
    return output.Close();
  }
  const absl::StatusOr<OutputPlace> place = FindOutputPlace(path, inputs);
  if (!place.ok()) return place.status();
  const std::span<const uint8_t> parts[] = {
      {reinterpret_cast<const uint8_t*>(document.data()), document.size()}};
  return WriteFileAtomically(place->path, parts, true);
}

}  // namespace cbt::cli
