#include "map/chain/chain_access.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"
#include "map/map_file.h"

namespace cbt {

absl::Status NoChain(std::string_view shown) {
  return absl::NotFoundError(absl::StrCat(AbslView(shown), ": no chain in this directory"));
}

absl::StatusOr<std::unique_ptr<ChangeChain>> ChangeChain::Create(const std::string& path,
                                                                 const std::string& volume,
                                                                 uint64_t granularity,
                                                                 const ChainSnapshot& first,
                                                                 const ChainOptions& options) {
  absl::Status status = CheckGeometry({.capacity = first.capacity, .granularity = granularity});
  if (!status.ok()) return status;
  if (status = CheckIdentity({volume, {}, first.id}); !status.ok()) return status;
  if (first.id.empty()) return absl::InvalidArgumentError("the first snapshot needs a name");
  if (status = MakeDirectory(path, options.sync); !status.ok()) return status;
  absl::StatusOr<Directory> directory = Directory::Open(path, options.name);
  if (!directory.ok()) return directory.status();
  return CreateChainIn(*directory, volume, granularity, first, options);
}

absl::StatusOr<std::unique_ptr<ChangeChain>> ChangeChain::Open(const std::string& path,
                                                               Access access,
                                                               const ChainOptions& options) {
  const std::string shown = options.name.empty() ? path : options.name;
  const absl::StatusOr<Directory> directory = Directory::Open(path, shown);
  if (absl::IsNotFound(directory.status())) return NoChain(shown);
  if (!directory.ok()) return directory.status();
  return OpenChainIn(*directory, access, options);
}

}  // namespace cbt
