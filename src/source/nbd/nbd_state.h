// An export and its connections, for cursors over it and for its data.
#ifndef CBT_SOURCE_NBD_NBD_STATE_H_
#define CBT_SOURCE_NBD_NBD_STATE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/source/nbd.h"
#include "source/nbd/nbd_connection.h"

namespace cbt {

// Safe to share between threads.
class NbdExport::State {
 public:
  // Errors: as NbdExport::Open().
  static absl::StatusOr<std::shared_ptr<State>> Open(const std::string& uri,
                                                     NbdExportOptions options, NbdNeeds needs);

  State(std::string uri, NbdExportOptions options, NbdNeeds needs, uint64_t size,
        std::vector<std::string> contexts, std::unique_ptr<NbdConnection> connection)
      : uri_(std::move(uri)),
        options_(std::move(options)),
        needs_(needs),
        size_(size),
        contexts_(std::move(contexts)),
        spare_(std::move(connection)) {}

  uint64_t size() const noexcept { return size_; }
  const std::string& label() const noexcept { return options_.label; }
  const std::vector<std::string>& contexts() const noexcept { return contexts_; }

  // A connection with `context` negotiated, or with none if that is empty.
  absl::StatusOr<std::unique_ptr<NbdConnection>> Start(const std::string& context);

  // Keeps a connection from Start() for the next one that asks for the same context, if data is
  // wanted as well: some servers have one client only.
  void GiveBack(const std::string& context, std::unique_ptr<NbdConnection> connection);

 private:
  std::string ContextList() const;
  absl::Status StartAndCheck(NbdConnection& connection, const std::string& context) const;

  const std::string uri_;
  const NbdExportOptions options_;
  const NbdNeeds needs_;
  const uint64_t size_;
  const std::vector<std::string> contexts_;
  std::mutex mutex_;
  std::unique_ptr<NbdConnection> spare_;     // still negotiating
  std::unique_ptr<NbdConnection> returned_;  // with returned_context_
  std::string returned_context_;
};

// As MakeNbdCursor().
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeStateCursor(
    const std::shared_ptr<NbdExport::State>& state, const NbdOptions& options);

}  // namespace cbt

#endif  // CBT_SOURCE_NBD_NBD_STATE_H_
