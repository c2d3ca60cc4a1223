// A connection to an NBD server: libnbd with deadlines and absl::Status.
#ifndef CBT_SOURCE_NBD_NBD_CONNECTION_H_
#define CBT_SOURCE_NBD_NBD_CONNECTION_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/process_mark.h"
#include "cbt/bridge/nbd_extents.h"
#include "cbt/source/nbd.h"

struct nbd_handle;

namespace cbt {

// The result of an option of the negotiation.
struct NbdOutcome {
  bool done = false;
  int error = 0;  // errno
};

// What a server must be able to do: say what is allocated or changed, or only hand out data.
enum class NbdNeeds { kStatus, kData };

// Belongs to one thread at a time. Unusable after an error of the connection itself.
class NbdConnection {
 public:
  // Connects up to the negotiation of options; options.label is not empty.
  static absl::StatusOr<std::unique_ptr<NbdConnection>> Connect(const std::string& uri,
                                                                const NbdExportOptions& options,
                                                                NbdNeeds needs = NbdNeeds::kStatus);
  ~NbdConnection();
  NbdConnection(const NbdConnection&) = delete;
  NbdConnection& operator=(const NbdConnection&) = delete;

  // While negotiating: the export's size in bytes, and the contexts that the server lists for it.
  absl::StatusOr<uint64_t> QuerySize();
  absl::StatusOr<std::vector<std::string>> ListContexts();

  // Ends the negotiation with `context`, or with none if that is empty.
  // Errors: NOT_FOUND if the server does not have it.
  absl::Status Start(const std::string& context);

  // After Start(): the size in bytes, and the alignment of requests.
  absl::StatusOr<uint64_t> Size() const;
  uint64_t MinimumBlock() const;

  // Requests [offset, offset + length) and passes the replies to `extents`, after its
  // Expect(offset, length). If this is OK, check its Finish().
  absl::Status BlockStatus(uint64_t offset, uint64_t length, NbdExtents& extents);

  // After Start(). Offsets and lengths are multiples of MinimumBlock(), but for the export's end.
  // After an error the connection is unusable, and must be destroyed before `out` or `bytes` is.
  absl::Status Read(uint64_t offset, std::span<uint8_t> out);
  absl::Status Write(uint64_t offset, std::span<const uint8_t> bytes);
  absl::Status WriteZeros(uint64_t offset, uint64_t length);
  absl::Status Flush();
  // Whether several clients see each other's writes, and a flush of one is one of all.
  bool HasManyClients() const;
  bool IsReadOnly() const;

  // False if no further request can succeed. In a forked child, which shares the socket, none can:
  // both processes would take each other's replies for their own.
  bool usable() const;

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  NbdConnection(nbd_handle* handle, const NbdExportOptions& options);

  absl::Status Configure(const std::string& uri, const NbdExportOptions& options);
  absl::Status Negotiate(const std::string& uri, const NbdExportOptions& options, NbdNeeds needs);
  // Sends the requests for [offset, offset + length) in pieces, then waits for all replies.
  // `send(at, length)` returns libnbd's cookie.
  template <typename Send>
  absl::Status InPieces(std::string_view doing, uint64_t offset, uint64_t length,
                        uint64_t piece_bytes, Send send);
  absl::Status WaitFor(std::span<const int64_t> cookies, Deadline deadline, std::string_view doing);
  uint64_t MaximumPiece() const;
  absl::Status PollOnce(Deadline deadline, std::string_view doing);
  absl::Status WaitForOption(std::string_view doing);
  absl::Status LibraryError(std::string_view doing) const;
  absl::Status Broken(std::string_view doing, std::string_view reason) const;
  Deadline FromNow() const;

  const ProcessMark mark_;
  nbd_handle* const handle_;
  const std::string label_;
  const std::chrono::milliseconds timeout_;
  const std::stop_token stop_;
  bool given_up_ = false;

  // The callbacks of the current option or request write here. A member, because one that was
  // abandoned can write until the handle is closed.
  NbdOutcome outcome_;
  std::vector<std::string> names_;
  NbdExtents* extents_ = nullptr;
};

// `text`, which may come from a server, without control characters and cut at `limit`.
std::string Printable(std::string_view text, size_t limit);

}  // namespace cbt

#endif  // CBT_SOURCE_NBD_NBD_CONNECTION_H_
