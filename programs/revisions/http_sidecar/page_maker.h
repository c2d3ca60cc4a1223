// One page of changed blocks, from a plugin.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PAGE_MAKER_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PAGE_MAKER_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cbt/secrets.h"
#include "programs/revisions/aggregated/api/delta_page.h"
#include "programs/revisions/http_sidecar/changed_blocks.h"
#include "programs/revisions/http_sidecar/page_tokens.h"
#include "rpc/transport/client_call.h"

namespace cbt::kube::http_sidecar {

// The lines of the page: blocks of the size that is asked for which hold a byte that `blocks`
// reports, from the request's first block on. A block's token is passed on only if the plugin's
// block is exactly that one.
// Errors: those of `blocks`; OUT_OF_RANGE for a start past the volume's end.
absl::StatusOr<std::string> WritePage(const aggregated::DeltaPageRequest& request,
                                      ChangedBlocks& blocks);

// Asks the plugin: ListSnapshotDeltas, or the streams of csi.v1.SnapshotMetadata if it does not
// have that, which is found out by asking. Thread safe.
class PageMaker {
 public:
  // Errors: INVALID_ARGUMENT for an address that can't be one.
  static absl::StatusOr<std::unique_ptr<PageMaker>> Create(const std::string& address);

  // Waits for the plugin until `deadline`.
  absl::StatusOr<std::string> Make(const aggregated::DeltaPageRequest& request,
                                   const Secrets& secrets,
                                   std::chrono::system_clock::time_point deadline);

  // The plugin was started anew, and may be another one: what it has is asked again.
  void Forget() noexcept { has_pages_ = true; }

 private:
  PageMaker(std::string address, std::shared_ptr<rpc::Channel> channel)
      : address_(std::move(address)), channel_(std::move(channel)) {}
  absl::StatusOr<std::unique_ptr<ChangedBlocks>> Stream(ChangedBlocksQuery query,
                                                        uint64_t block_size);

  const std::string address_;
  const std::shared_ptr<rpc::Channel> channel_;
  PageTokens tokens_;
  std::atomic<bool> has_pages_ = true;
};

}  // namespace cbt::kube::http_sidecar

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PAGE_MAKER_H_
