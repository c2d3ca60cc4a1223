// Opens streams of btrfs send.
#include "cbt/source/btrfs_send.h"
#include "cbt/source/byte_stream.h"
#include "source/open/openers.h"

namespace cbt {

absl::StatusOr<OpenedSource> OpenBtrfsSource(SourceRequest& request) {
  const BtrfsSendOptions options = {.path = request.Option("path").value_or(""),
                                    .base_path = request.Option("base-path").value_or(""),
                                    .granularity = request.options().block_size,
                                    .capacity = request.options().capacity,
                                    .single_name = request.Option("single-name").has_value(),
                                    .path_exists = request.Option("path-exists").has_value()};
  absl::StatusOr<ByteStream*> stream = request.Stream();
  if (!stream.ok()) return stream.status();
  absl::StatusOr<OpenedSource> source = OfMap(ReadBtrfsSend(**stream, options));
  if (!source.ok()) return source;
  const bool delta = !source->identity.base.empty();
  const auto purpose = request.options().purpose;
  if (purpose.has_value() && (*purpose == SourcePurpose::kDelta) != delta) {
    return CannotTell(request, delta ? "an incremental stream reports what changed, not what is "
                                       "allocated"
                                     : "a full stream reports what is there, not what changed");
  }
  return source;
}

}  // namespace cbt
