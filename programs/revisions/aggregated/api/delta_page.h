// The contract between the aggregated API server and the HTTPS service of a driver: one page of
// changed blocks as lines of JSON. docs/reference/delta-pages.md describes it for others.
#ifndef CBT_PROGRAMS_REVISIONS_AGGREGATED_API_DELTA_PAGE_H_
#define CBT_PROGRAMS_REVISIONS_AGGREGATED_API_DELTA_PAGE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::kube::aggregated {

// The path below that of the DriverDiscovery.
inline constexpr char kDeltaPagesPath[] = "/v1alpha1/delta-pages";
// Most blocks of a page.
inline constexpr uint64_t kMaxPageBlocks = 16'384;
// Longest line, in bytes.
inline constexpr size_t kMaxPageLine = 16 * 1024;

// What is asked for. Snapshots are named by the driver's handles.
struct DeltaPageRequest {
  std::optional<std::string> base_snapshot_id = {};  // unset: what is allocated in the target
  std::string target_snapshot_id = {};
  uint64_t block_size = 0;      // bytes
  uint64_t starting_block = 0;  // index of the first block that is wanted
  uint64_t max_blocks = 0;      // 1 .. kMaxPageBlocks
  // The Secret that the driver needs for these snapshots; both or neither.
  std::string secret_namespace = {};
  std::string secret_name = {};

  // Errors: INVALID_ARGUMENT with the field, also for one that is not known.
  static absl::StatusOr<DeltaPageRequest> Parse(std::string_view json);
  std::string ToJson() const;
};

// A driver's token for the data of a block.
struct DataToken {
  std::string token = {};
  std::string issuance_time = {};  // RFC 3339; may be empty
  int64_t ttl_seconds = 0;
  friend bool operator==(const DataToken&, const DataToken&) = default;
};

// The first line.
struct PageHead {
  uint64_t block_size = 0;  // as it was asked for
  // Bytes. Unset if the driver does not say how large the volume is, as it may if no block is left.
  std::optional<uint64_t> volume_size = {};
  // Differs whenever the answer may differ; empty if the driver does not say.
  std::string source_version = {};
  std::string ToJson() const;
};

// One line for each block, in ascending order.
struct PageBlock {
  uint64_t index = 0;
  std::optional<DataToken> token = {};
  std::string ToJson() const;
};

// The last line: without it the page is broken.
struct PageEnd {
  uint64_t blocks = 0;      // how many lines there were
  uint64_t next_block = 0;  // where the next page starts
  bool more = false;        // there are blocks from there on
  std::string ToJson() const;
};

// Reads the lines of one page and checks them against each other and against the request: a page
// that is not whole, or not what was asked for, is DATA_LOSS. Memory is that of one line.
class PageReader {
 public:
  explicit PageReader(const DeltaPageRequest& request)
      : block_size_(request.block_size),
        max_blocks_(request.max_blocks),
        next_(request.starting_block),
        starting_block_(request.starting_block) {}

  // Takes a line without its newline. The block that it holds, if it is one; valid until the next
  // call. Errors: DATA_LOSS; later calls repeat it.
  absl::StatusOr<const PageBlock*> Take(std::string_view line);

  // OK if all of the page has come.
  absl::Status Finish() const;
  const PageHead& head() const noexcept { return head_; }  // after the first line
  const PageEnd& end() const noexcept { return end_; }     // if Finish() is OK

 private:
  absl::Status TakeLine(std::string_view line, bool& is_block);
  absl::Status TakeHead(std::string_view line);

  const uint64_t block_size_;
  const uint64_t max_blocks_;
  uint64_t next_;  // the smallest index that may come
  const uint64_t starting_block_;
  uint64_t count_ = 0;
  bool has_head_ = false;
  bool ended_ = false;
  absl::Status failure_;
  PageHead head_;
  PageBlock block_;
  PageEnd end_;
};

}  // namespace cbt::kube::aggregated

#endif  // CBT_PROGRAMS_REVISIONS_AGGREGATED_API_DELTA_PAGE_H_
