// A cursor over the runs of one map, or of the union of several.
#ifndef CBT_MAP_MAP_CURSOR_H_
#define CBT_MAP_MAP_CURSOR_H_

#include <memory>
#include <vector>

#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "map/portable_index.h"

namespace cbt {

// `maps` hold blocks of the geometry's granularity; those past its capacity are dropped.
std::unique_ptr<ExtentCursor> MakeContainerCursor(
    std::vector<std::shared_ptr<const PortableIndex>> maps, const VolumeGeometry& geometry);

}  // namespace cbt

#endif  // CBT_MAP_MAP_CURSOR_H_
