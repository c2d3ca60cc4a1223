// Opens NBD exports.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include "cbt/source/nbd.h"
#include "source/open/openers.h"

namespace cbt {

absl::StatusOr<OpenedSource> OpenNbdSource(SourceRequest& request) {
  NbdExportOptions where;
  where.export_name = request.Option("export");
  where.tls_certificates = request.Option("tls-certificates").value_or("");
  where.tls_psk_file = request.Option("tls-psk").value_or("");
  where.tls_username = request.Option("tls-username").value_or("");
  where.label = request.options().label;
  where.stop = request.options().stop;
  uint64_t seconds = 30;
  uint64_t depth = 0;
  absl::Status status = request.Number("timeout", 1'000'000, seconds);
  if (status.ok()) status = request.Number("depth", 1 << 20, depth);
  if (!status.ok()) return status;
  where.timeout = std::chrono::seconds(seconds);
  if (request.options().time_limit.has_value()) {
    where.timeout = std::min(where.timeout, *request.options().time_limit);
  }
  NbdOptions options;
  const auto bitmap = request.Option("bitmap");
  if (bitmap.has_value() && depth != 0) return CannotTell(request, "bitmap= or depth=, not both");
  const bool delta = bitmap.has_value() || depth != 0;
  if (request.options().purpose.value_or(delta ? SourcePurpose::kDelta
                                               : SourcePurpose::kAllocated) !=
      (delta ? SourcePurpose::kDelta : SourcePurpose::kAllocated)) {
    return CannotTell(request, delta ? "bitmap= and depth= are about what changed"
                                     : "since when? Give bitmap=NAME of a dirty bitmap, or "
                                       "depth=N for what N overlays hold by themselves");
  }
  if (bitmap.has_value()) options.context = "qemu:dirty-bitmap:" + *bitmap;
  if (depth != 0) {
    options.context = "qemu:allocation-depth";
    options.deepest_changed = static_cast<uint32_t>(depth);
  }
  absl::StatusOr<std::shared_ptr<const NbdExport>> opened =
      NbdExport::Open(request.address(), where);
  if (!opened.ok()) return opened.status();
  return OfCursor(MakeNbdCursor(*std::move(opened), options));
}

}  // namespace cbt
