// A cursor whose answer counts only if the files behind it are what they were.
#ifndef CBT_MAP_UNCHANGED_CURSOR_H_
#define CBT_MAP_UNCHANGED_CURSOR_H_

#include <memory>
#include <vector>

#include "base/file_io.h"
#include "cbt/cursor.h"

namespace cbt {

// Hands on what `input` tells, which it reads from `files` as it goes. Before it is complete it
// looks whether one of them was written to since it was opened: what was told may be of both then,
// each checked against digests of its own. They are kept as long as the cursor. Errors: those of
// `input`, of MappedFile::CheckUnchanged().
std::unique_ptr<ExtentCursor> WhileUnchanged(std::unique_ptr<ExtentCursor> input,
                                             std::vector<std::shared_ptr<const MappedFile>> files);

}  // namespace cbt

#endif  // CBT_MAP_UNCHANGED_CURSOR_H_
