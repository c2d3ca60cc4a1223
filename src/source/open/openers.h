// The opener of each format. It lives with its format; open_source.cc chooses it.
#ifndef CBT_SOURCE_OPEN_OPENERS_H_
#define CBT_SOURCE_OPEN_OPENERS_H_

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/change_map.h"
#include "cbt/cursor.h"
#include "cbt/source/lists.h"
#include "cbt/source/open.h"
#include "source/open/source_request.h"

namespace cbt {

// Each opens the source of a prepared request whose format is one of its own. The caller rounds the
// extents, limits the time and compares the capacity.
// Errors: those of the format's own function; INVALID_ARGUMENT if the source can't answer what was
//         asked.
absl::StatusOr<OpenedSource> OpenBitmapSource(SourceRequest& request);
absl::StatusOr<OpenedSource> OpenBtrfsSource(SourceRequest& request);
absl::StatusOr<OpenedSource> OpenExtSource(SourceRequest& request);
absl::StatusOr<OpenedSource> OpenImageSource(SourceRequest& request);
absl::StatusOr<OpenedSource> OpenListSource(SourceRequest& request);  // every format of lists.h
absl::StatusOr<OpenedSource> OpenMapSource(SourceRequest& request);   // cbm and roaring bytes
absl::StatusOr<OpenedSource> OpenNbdSource(SourceRequest& request);
absl::StatusOr<OpenedSource> OpenPartcloneSource(SourceRequest& request);
absl::StatusOr<OpenedSource> OpenQcow2Source(SourceRequest& request);

// The delta of two sources of the format.
absl::StatusOr<OpenedSource> OpenImagePair(SourceRequest& base, SourceRequest& target);
absl::StatusOr<OpenedSource> OpenQcow2Pair(SourceRequest& base, SourceRequest& target);

// For openers:

// INVALID_ARGUMENT `<label>: <why>`.
absl::Status CannotTell(const SourceRequest& request, std::string_view why);

// A map, or a cursor, as a source.
absl::StatusOr<OpenedSource> OfMap(const absl::StatusOr<ChangeMap>& map);
absl::StatusOr<OpenedSource> OfCursor(absl::StatusOr<std::unique_ptr<ExtentCursor>> cursor);

// The options of an importer.
ImportOptions ImportOf(const SourceRequest& request);

}  // namespace cbt

#endif  // CBT_SOURCE_OPEN_OPENERS_H_
