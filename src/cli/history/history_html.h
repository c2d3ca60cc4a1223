// A chain's history as one HTML page, in which any two snapshots can be picked.
#ifndef CBT_CLI_HISTORY_HISTORY_HTML_H_
#define CBT_CLI_HISTORY_HISTORY_HTML_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/history/delta_sizes.h"
#include "cli/history/history.h"

namespace cbt::cli {

// What a page holds.
struct HistoryPage {
  HistoryScale scale;
  std::vector<HistoryRow> rows;  // rows[i]: from snapshot i to i + 1
  DeltaSizes sizes;
};

// Reads the delta of every two neighbours, once.
// Errors: those of ReadHistoryRow().
absl::StatusOr<HistoryPage> ReadHistoryPage(const History& history);

// Ten thousand snapshots with names of usual length stay below 2 MB.
inline constexpr size_t kMaxPageBytes = 1'950'000;

// The page: a document that loads nothing else. Names are kept as they are; what remains of
// `max_bytes` is for cells and sizes, which are made coarser until they fit. What is coarser is
// rounded up, and the page says "at most" then. `page` is left coarser too.
// Cost: linear in what the page holds, for each step that it is made coarser.
std::string HistoryHtml(const History& history, HistoryPage& page,
                        size_t max_bytes = kMaxPageBytes);

}  // namespace cbt::cli

#endif  // CBT_CLI_HISTORY_HISTORY_HTML_H_
