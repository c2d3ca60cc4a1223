// A chain's history as one HTML page, in which any two snapshots can be selected.
#ifndef CBT_PROGRAMS_CBT_HISTORY_HISTORY_HTML_H_
#define CBT_PROGRAMS_CBT_HISTORY_HISTORY_HTML_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "programs/cbt/history/delta_sizes.h"
#include "programs/cbt/history/history.h"

namespace cbt::cli {

// The contents of a page.
struct HistoryPage {
  HistoryScale scale;
  std::vector<HistoryRow> rows;  // rows[i]: from snapshot i to i + 1
  DeltaSizes sizes;
};

// Reads the delta of every two adjacent snapshots, once. Errors: those of ReadHistoryRow().
absl::StatusOr<HistoryPage> ReadHistoryPage(const History& history);

// Ten thousand snapshots with names of usual length stay below 2 MB.
inline constexpr size_t kMaxPageBytes = 1'950'000;

// A self-contained document. Names are kept whole; the rest of `max_bytes` is for cells and sizes,
// which are coarsened until they fit. Coarse values are rounded up, and the page then says "at
// most". `page` stays coarsened, too. Cost: linear in the size of the page, for each step of
// coarsening.
std::string HistoryHtml(const History& history, HistoryPage& page,
                        size_t max_bytes = kMaxPageBytes);

}  // namespace cbt::cli

#endif  // CBT_PROGRAMS_CBT_HISTORY_HISTORY_HTML_H_
