#include "map/chain/chain_access.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/absl_view.h"
#include "base/file_io.h"
#include "map/map_file.h"

namespace cbt {

absl::Status NoChain(std::string_view shown) {
  return absl::NotFoundError(absl::StrCat(AbslView(shown), ": no chain in this directory"));
}

absl::StatusOr<std::unique_ptr<ChangeChain>> ChangeChain::Create(const std::string& directory,
                                                                 const std::string& volume,
                                                                 uint64_t granularity,
                                                                 const ChainSnapshot& first,
                                                                 const ChainOptions& options) {
  absl::Status status = CheckGeometry({.capacity = first.capacity, .granularity = granularity});
  if (!status.ok()) return status;
  if (status = CheckIdentity({volume, {}, first.id}); !status.ok()) return status;
  if (first.id.empty()) return absl::InvalidArgumentError("the first snapshot needs a name");
  if (status = MakeFolder(directory, options.sync); !status.ok()) return status;
  absl::StatusOr<Folder> folder = Folder::Open(directory, options.name);
  if (!folder.ok()) return folder.status();
  return CreateChainIn(*folder, volume, granularity, first, options);
}

absl::StatusOr<std::unique_ptr<ChangeChain>> ChangeChain::Open(const std::string& directory,
                                                               Access access,
                                                               const ChainOptions& options) {
  const std::string shown = options.name.empty() ? directory : options.name;
  const absl::StatusOr<Folder> folder = Folder::Open(directory, shown);
  if (absl::IsNotFound(folder.status())) return NoChain(shown);
  if (!folder.ok()) return folder.status();
  return OpenChainIn(*folder, access, options);
}

}  // namespace cbt
