// A cursor that completes only if its files have not changed.
#ifndef CBT_MAP_UNCHANGED_CURSOR_H_
#define CBT_MAP_UNCHANGED_CURSOR_H_

#include <memory>
#include <vector>

#include "base/file_io.h"
#include "cbt/cursor.h"

namespace cbt {

// Returns the extents of `input`, which reads `files` as it goes. Before it completes, it checks
// whether a file was modified since it was opened: the extents may then be from both versions, each
// consistent with its own digests. Keeps the files alive. Errors: those of `input` and of
// MappedFile::CheckUnchanged().
std::unique_ptr<ExtentCursor> WhileUnchanged(std::unique_ptr<ExtentCursor> input,
                                             std::vector<std::shared_ptr<const MappedFile>> files);

}  // namespace cbt

#endif  // CBT_MAP_UNCHANGED_CURSOR_H_
