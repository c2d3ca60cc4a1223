// The data of an NBD export: read for backups, written by restores.
#ifndef CBT_SOURCE_NBD_NBD_DATA_H_
#define CBT_SOURCE_NBD_NBD_DATA_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/cursor.h"
#include "cbt/extent.h"
#include "cbt/source/copy_ranges.h"
#include "cbt/source/nbd.h"
#include "source/nbd/nbd_state.h"
#include "source/nbd/nbd_zeros.h"

namespace cbt {

// Whether `text` is the URI of an export: nbd://, nbd+unix://, nbds:// or nbds+unix://.
bool IsNbdUri(std::string_view text);

// Safe to share between threads. Several connections where the server says that its clients see one
// state, else one. A connection that broke is not made again, because another export may be behind
// the address by then: every later request fails as well.
class NbdData {
 public:
  // Errors: as NbdExport::Open(), but for what block status needs.
  static absl::StatusOr<std::shared_ptr<NbdData>> Open(const std::string& uri,
                                                       const NbdExportOptions& options = {},
                                                       size_t connections = kConnections);
  static constexpr size_t kConnections = 4;

  uint64_t size() const noexcept { return state_->size(); }
  const std::string& label() const noexcept { return state_->label(); }

  // Where it may hold data; the rest is zero.
  // Errors: FAILED_PRECONDITION if the server does not say it; as MakeNbdCursor().
  absl::StatusOr<std::unique_ptr<ExtentCursor>> Allocated();

  // Of any alignment, within size(). Errors: UNAVAILABLE; CANCELLED. std::bad_alloc is thrown, and
  // leaves the connection broken.
  absl::Status Read(uint64_t offset, std::span<uint8_t> out);
  // The same of an export that does not change: what the server knows to be zero is not read.
  absl::Status ReadData(uint64_t offset, std::span<uint8_t> out);
  absl::Status Write(uint64_t offset, std::span<const uint8_t> bytes);
  absl::Status WriteZeros(Extent extent);
  absl::Status Flush();

  // Errors: FAILED_PRECONDITION if the export is read-only; as above.
  absl::Status CheckWritable();

 private:
  explicit NbdData(std::shared_ptr<NbdExport::State> state, size_t connections);

  using Connection = std::unique_ptr<NbdConnection>;
  absl::StatusOr<Connection> Take();
  void Return(Connection connection, const absl::Status& status) noexcept;
  void Forget(const absl::Status& why) noexcept;
  template <typename Use>
  absl::Status With(Use use);
  absl::Status CheckRange(uint64_t offset, uint64_t length) const;
  absl::Status ReadAligned(NbdConnection& connection, uint64_t offset, std::span<uint8_t> out);
  absl::Status WriteEdge(NbdConnection& connection, uint64_t offset,
                         std::span<const uint8_t> bytes);

  const std::shared_ptr<NbdExport::State> state_;
  const size_t connections_;
  const std::string context_;  // empty: the server does not say what is allocated
  // Created while memory is available.
  const absl::Status out_of_memory_ = absl::ResourceExhaustedError("out of memory");
  const absl::Status broken_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<Connection> idle_;
  size_t open_ = 0;
  size_t most_ = 1;
  absl::Status failure_;
  NbdZeros zeros_;
  std::mutex edges_;  // held while a block is read, changed and written
};

// What an input reads: all bytes, or what the server does not know to be zero.
enum class NbdReads { kAll, kData };

std::unique_ptr<CopyInput> MakeCopyInput(std::shared_ptr<NbdData> data,
                                         NbdReads reads = NbdReads::kAll);
std::unique_ptr<CopyOutput> MakeCopyOutput(std::shared_ptr<NbdData> data);

}  // namespace cbt

#endif  // CBT_SOURCE_NBD_NBD_DATA_H_
