// One connection to an NBD server: libnbd with deadlines, and with absl::Status for errors.
#ifndef CBT_SOURCE_NBD_NBD_CONNECTION_H_
#define CBT_SOURCE_NBD_NBD_CONNECTION_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/source/nbd.h"
#include "cbt/source/nbd_extents.h"

struct nbd_handle;

namespace cbt {

// How an option of the negotiation ended.
struct NbdOutcome {
  bool done = false;
  int error = 0;  // errno
};

// Belongs to one thread at a time. After an error of the connection itself it is of no more use.
class NbdConnection {
 public:
  // Connects, as far as the point where options are negotiated; options.label is not empty.
  static absl::StatusOr<std::unique_ptr<NbdConnection>> Connect(const std::string& uri,
                                                                const NbdExportOptions& options);
  ~NbdConnection();
  NbdConnection(const NbdConnection&) = delete;
  NbdConnection& operator=(const NbdConnection&) = delete;

  // While negotiating: the export's size in bytes, and the contexts that the server lists for it.
  absl::StatusOr<uint64_t> QuerySize();
  absl::StatusOr<std::vector<std::string>> ListContexts();

  // Ends the negotiation with `context`.
  // Errors: NOT_FOUND when the server does not have it.
  absl::Status Start(const std::string& context);

  // After Start(): the size in bytes, and what requests must be aligned to.
  absl::StatusOr<uint64_t> Size() const;
  uint64_t MinimumBlock() const;

  // Asks about [offset, offset + length) and hands the replies to `extents`, which stands at
  // Expect(offset, length). Check its Finish() when this is OK.
  absl::Status BlockStatus(uint64_t offset, uint64_t length, NbdExtents& extents);

  // False when no further request can succeed.
  bool usable() const;

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  NbdConnection(nbd_handle* handle, const NbdExportOptions& options);

  absl::Status Configure(const std::string& uri, const NbdExportOptions& options);
  absl::Status Negotiate(const std::string& uri, const NbdExportOptions& options);
  absl::Status PollOnce(Deadline deadline, std::string_view doing);
  absl::Status WaitForOption(std::string_view doing);
  absl::Status LibraryError(std::string_view doing) const;
  absl::Status Broken(std::string_view doing, std::string_view reason) const;
  Deadline FromNow() const;

  nbd_handle* const handle_;
  const std::string label_;
  const std::chrono::milliseconds timeout_;
  bool given_up_ = false;

  // What callbacks of the option or request under way write to. Here, because one that was given up
  // can still write until the handle is closed.
  NbdOutcome outcome_;
  std::vector<std::string> names_;
  NbdExtents* extents_ = nullptr;
};

// `text` without control characters, which a server may have put into it, and cut at `limit`.
std::string Printable(std::string_view text, size_t limit);

}  // namespace cbt

#endif  // CBT_SOURCE_NBD_NBD_CONNECTION_H_
