// What a server knows to be zero, asked about a window of the export at a time.
#ifndef CBT_SOURCE_NBD_NBD_ZEROS_H_
#define CBT_SOURCE_NBD_NBD_ZEROS_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "cbt/units.h"
#include "source/nbd/nbd_connection.h"

namespace cbt {

// For an export that does not change. Thread-safe. Whatever goes wrong means that everything has to
// be read, and that the server is not asked again.
class NbdZeros {
 public:
  static constexpr uint64_t kWindowBytes = 16 * kMiB;
  // Shorter runs of zeros are read along: a further request costs more.
  static constexpr uint64_t kMinRunBytes = 128 * kKiB;

  explicit NbdZeros(uint64_t size) : size_(size) {}

  // The parts of `wanted`, ascending, that may hold anything but zeros. `connection` has the context
  // base:allocation; it may be unusable afterwards.
  std::vector<Extent> DataIn(Extent wanted, NbdConnection& connection);

 private:
  // What is not in `data` is zero inside `extent`.
  struct Window {
    Extent extent = {};
    std::vector<Extent> data = {};
  };

  absl::StatusOr<std::shared_ptr<const Window>> Ask(Extent wanted, NbdConnection& connection) const;

  const uint64_t size_;
  std::mutex mutex_;
  bool asks_ = true;
  std::shared_ptr<const Window> window_ = std::make_shared<Window>();
};

}  // namespace cbt

#endif  // CBT_SOURCE_NBD_NBD_ZEROS_H_
