// NBD exports as change sources: what a server knows about an export's allocation, its dirty
// bitmaps and the contents of an overlay. Part of cbt::source; needs libnbd, without which Open()
// is UNIMPLEMENTED. Only metadata is requested, no data is read.
//
// The export must not change while a cursor reads it: serve a snapshot, a disabled bitmap or an
// image that is not being written to. How flags are interpreted: cbt/bridge/nbd_extents.h. Commands
// that start such a server: docs/reference/sources/nbd.md.
#ifndef CBT_SOURCE_NBD_H_
#define CBT_SOURCE_NBD_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/units.h"

namespace cbt {

struct NbdExportOptions {
  // Overrides the export name in the URI.
  std::optional<std::string> export_name;

  // For nbds:// and nbds+unix://. A directory with ca-cert.pem (and client-cert.pem,
  // client-key.pem), or a file of pre-shared keys and the user whose key it is; the system's
  // certificates if both are empty. The server's certificate is always verified.
  std::string tls_certificates;
  std::string tls_psk_file;
  std::string tls_username;

  // Time limit for connecting and for each reply. A slower server is UNAVAILABLE.
  std::chrono::milliseconds timeout{30'000};

  // Names the export in error messages, the URI if empty; a server passes the snapshot's id.
  std::string label;

  // Ends every wait with CANCELLED.
  std::stop_token stop;
};

// An export as it was when it was opened. Safe to share between threads. Holds one connection until
// the first cursor takes it over (so that one cursor works with a server that admits a single
// client); every further cursor makes its own connection.
class NbdExport {
 public:
  // Connects to `uri`: nbd://host[:port]/name, nbd+unix:///name?socket=path, and the same with nbds
  // for TLS. See https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md.
  // Errors: INVALID_ARGUMENT for another URI, or for TLS files with a URI without TLS; NOT_FOUND
  //         when the server has no such export; FAILED_PRECONDITION when it does not support block
  //         status (no structured replies), or when libnbd.so.0 is not installed;
  //         PERMISSION_DENIED; UNAVAILABLE when it can't be reached, disconnects or does not reply;
  //         UNIMPLEMENTED when built without libnbd.
  // Cost:   a few round trips. Host name resolution is not subject to the timeout.
  static absl::StatusOr<std::shared_ptr<const NbdExport>> Open(
      const std::string& uri, const NbdExportOptions& options = {});

  ~NbdExport();
  NbdExport(const NbdExport&) = delete;
  NbdExport& operator=(const NbdExport&) = delete;

  // Size in bytes when it was opened.
  uint64_t size() const noexcept;
  const std::string& label() const noexcept;

  // The contexts that the server lists for the export, at most kMaxContexts; empty if it lists
  // none. As the server sent them: any bytes.
  const std::vector<std::string>& contexts() const noexcept;
  static constexpr size_t kMaxContexts = 1024;

  // For MakeNbdCursor().
  class State;
  const std::shared_ptr<State>& state() const noexcept { return state_; }

 private:
  explicit NbdExport(std::shared_ptr<State> state);

  const std::shared_ptr<State> state_;
};

struct NbdOptions {
  // base:allocation, qemu:dirty-bitmap:NAME or qemu:allocation-depth.
  std::string context = "base:allocation";

  // qemu:allocation-depth only: the deepest level of the backing chain that counts as changed; 1 is
  // the served overlay. n gives what differs from the n-th image below it.
  uint32_t deepest_changed = 1;

  // Bytes of the volume per request, 1 to kMaxNbdRequest.
  uint64_t request_bytes = kGiB;
};

// Below the protocol's limit: some servers abort on requests close to 4 GiB.
inline constexpr uint64_t kMaxNbdRequest = kGiB;

// What the context reports as allocated or changed, as maximal extents; capacity is the export's
// size, granularity 1. A cursor whose connection broke reconnects after the next Seek(). Memory: 2
// MiB of extents, and what libnbd needs for one reply (at most 64 MiB, if a server sends that
// much).
// Errors: INVALID_ARGUMENT for options out of range; NOT_FOUND, with the list of available
//         contexts, when the server has no such context; as NbdExport::Open(). From Next():
//         UNAVAILABLE when the connection breaks, the server refuses or does not reply in time;
//         DATA_LOSS for an invalid reply; ABORTED when the export's size has changed.
// Cost:   at least one round trip per GiB; Seek() O(1): the next request begins there.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeNbdCursor(
    const std::shared_ptr<const NbdExport>& nbd_export, const NbdOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_NBD_H_
