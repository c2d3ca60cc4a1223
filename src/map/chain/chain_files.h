// The files of a chain beside its manifest: their names, and which of them are needed.
#ifndef CBT_MAP_CHAIN_CHAIN_FILES_H_
#define CBT_MAP_CHAIN_CHAIN_FILES_H_

#include <cstdint>
#include <string>

#include "base/directory.h"
#include "map/chain/chain_manifest.h"

namespace cbt {

// The name of the map file with this number.
std::string ChainMapName(uint64_t number);

// Removes map files that the manifest does not name, and partial files. Others stay.
void SweepChainFiles(const Directory& directory, const ChainManifest& manifest);

}  // namespace cbt

#endif  // CBT_MAP_CHAIN_CHAIN_FILES_H_
