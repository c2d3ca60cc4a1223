// NBD exports as change sources: what a server knows of an export's allocation, of its dirty
// bitmaps and of what an overlay holds. Part of cbt::source; needs libnbd, without which Open() is
// UNIMPLEMENTED. Only metadata is asked for, no data is read.
//
// The export must not change while a cursor reads it: serve a snapshot, a disabled bitmap or an
// image that nobody writes to. Which flags count as what: cbt/source/nbd_extents.h. Commands that
// make a server for it: docs/reference/sources/nbd.md.
#ifndef CBT_SOURCE_NBD_H_
#define CBT_SOURCE_NBD_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/cursor.h"

namespace cbt {

struct NbdExportOptions {
  // Taken instead of the export name in the URI.
  std::optional<std::string> export_name;

  // For nbds:// and nbds+unix://. A directory with ca-cert.pem (and client-cert.pem,
  // client-key.pem), or a file of pre-shared keys and the user whose key it is; the system's
  // certificates when both are empty. The server's certificate is always verified.
  std::string tls_certificates;
  std::string tls_psk_file;
  std::string tls_username;

  // How long connecting, and any one answer, may take. A server that is slower is UNAVAILABLE.
  std::chrono::milliseconds timeout{30'000};

  // Names the export in error messages, the URI if empty; a server gives the snapshot's id.
  std::string label;
};

// Where an export is, and what it was when it was opened. Safe to share between threads. Holds one
// connection until the first cursor takes it over (so that a server that admits one client only
// is enough for one cursor); every further cursor makes a connection of its own.
class NbdExport {
 public:
  // Connects to `uri`: nbd://host[:port]/name, nbd+unix:///name?socket=path, and the same with
  // nbds for TLS. See https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md.
  // Errors: INVALID_ARGUMENT for another URI, or TLS files with one that asks for no TLS;
  //         NOT_FOUND when the server has no such export; FAILED_PRECONDITION when it can't do
  //         block status (no structured replies); PERMISSION_DENIED; UNAVAILABLE when it can't be
  //         reached, breaks off or does not answer; UNIMPLEMENTED when built without libnbd.
  // Cost:   a few round trips. Resolving a host's name is not subject to the timeout.
  static absl::StatusOr<std::shared_ptr<const NbdExport>> Open(
      const std::string& uri, const NbdExportOptions& options = {});

  ~NbdExport();
  NbdExport(const NbdExport&) = delete;
  NbdExport& operator=(const NbdExport&) = delete;

  // Size in bytes when it was opened.
  uint64_t size() const noexcept;
  const std::string& label() const noexcept;

  // The contexts that the server lists for the export, at most kMaxContexts; empty when it lists
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

  // qemu:allocation-depth only: the deepest level of the backing chain that counts as changed, from
  // 1, the overlay that is served. n gives what differs from the n-th image below it.
  uint32_t deepest_changed = 1;

  // Bytes of the volume that one request asks about, 1 to kMaxNbdRequest.
  uint64_t request_bytes = uint64_t{1} << 30;
};

// Not the protocol's limit: servers have been seen to abort on requests close to 4 GiB.
inline constexpr uint64_t kMaxNbdRequest = uint64_t{1} << 30;

// What the context says is allocated or changed, as maximal extents; capacity is the export's size,
// granularity 1. A cursor that failed because its connection broke makes a new one after the next
// Seek(). Memory: 2 MiB of extents, and what libnbd needs for one reply (at most 64 MiB, from a
// server that sends that much).
// Errors: INVALID_ARGUMENT for options out of range; NOT_FOUND, with the list of those that there
//         are, when the server has no such context; as NbdExport::Open(). From Next(): UNAVAILABLE
//         when the connection breaks, the server refuses or does not answer in time; DATA_LOSS for
//         an answer that can't be; ABORTED when the export's size has changed.
// Cost:   a round trip for each GiB at least; Seek() O(1): the next request begins there.
absl::StatusOr<std::unique_ptr<ExtentCursor>> MakeNbdCursor(
    const std::shared_ptr<const NbdExport>& nbd_export, const NbdOptions& options = {});

}  // namespace cbt

#endif  // CBT_SOURCE_NBD_H_
