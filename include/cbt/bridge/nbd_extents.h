// An NBD server's reply to a block status request, as extents. Header only and without any NBD
// library: it takes the arguments of a client's extent callback, whichever client that is.
//
// snippet: tests/consumer/snippets/source.cc#nbd
//   auto extents = cbt::NbdExtents::For("qemu:dirty-bitmap:b0");
//   if (!extents.ok()) return extents.status();
//   extents->Expect(offset, length);
//   nbd_block_status(handle, length, offset, {cbt::NbdExtents::Callback, &*extents, nullptr}, 0);
//   absl::StatusOr<uint64_t> known = extents->Finish();  // then extents->extents() below *known
//
// The format: https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md, "Metadata
// querying", and docs/interop/nbd.rst of qemu.
#ifndef CBT_BRIDGE_NBD_EXTENTS_H_
#define CBT_BRIDGE_NBD_EXTENTS_H_

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cbt/extent.h"

namespace cbt {

// The replies about one context, checked and turned into the extents that count as allocated or
// changed:
//
//   base:allocation           everything not known to read as zeros (flag 2). A hole (flag 1) that
//                             may read as something else counts.
//   qemu:dirty-bitmap:NAME    what is dirty (flag 1).
//   qemu:allocation-depth     what is held by an image at most `deepest_changed` levels down the
//                             chain; 1 is the overlay itself, so 1 gives what differs from its
//                             backing image. Clusters that the overlay zeroes or discards are its
//                             own and count. Depth 0, in no image at all, does not.
//
// Undefined flags count as allocated or changed. Belongs to one thread at a time.
class NbdExtents {
 public:
  // The most extents kept of one reply (16 bytes each). Whatever follows is left to the next
  // request; Finish() returns where that starts.
  static constexpr size_t kMaxExtents = size_t{1} << 17;

  static constexpr std::string_view kAllocation = "base:allocation";
  static constexpr std::string_view kDirtyBitmap = "qemu:dirty-bitmap:";
  static constexpr std::string_view kAllocationDepth = "qemu:allocation-depth";

  // Replies about `context`. `deepest_changed` (>= 1) matters for qemu:allocation-depth only.
  // Errors: INVALID_ARGUMENT for a context whose flags have no meaning here.
  static absl::StatusOr<NbdExtents> For(std::string_view context, uint32_t deepest_changed = 1) {
    Kind kind = Kind::kAllocation;
    if (context == kAllocationDepth) {
      kind = Kind::kAllocationDepth;
      if (deepest_changed == 0) {
        return absl::InvalidArgumentError("nbd: the deepest level that counts as changed is 0");
      }
    } else if (context.substr(0, kDirtyBitmap.size()) == kDirtyBitmap &&
               context.size() > kDirtyBitmap.size() && context.size() <= kMaxName &&
               context.find('\0') == std::string_view::npos) {
      kind = Kind::kDirtyBitmap;
    } else if (context != kAllocation) {
      return absl::InvalidArgumentError(
          "nbd: the context is neither base:allocation nor qemu:dirty-bitmap:NAME nor "
          "qemu:allocation-depth");
    }
    return NbdExtents(std::string(context), kind, deepest_changed);
  }

  const std::string& context() const noexcept { return context_; }

  // Starts on the replies to a request for [offset, offset + length) (bytes, length > 0, the end at
  // most kMaxCapacity). Discards earlier replies.
  void Expect(uint64_t offset, uint64_t length) noexcept {
    extents_.clear();
    status_ = absl::OkStatus();
    answered_ = false;
    begin_ = known_ = offset;
    end_ = offset;
    if (length == 0 || offset > kMaxCapacity || length > kMaxCapacity - offset) {
      status_ = absl::InvalidArgumentError("nbd: a request for no or too many bytes");
    } else {
      end_ = offset + length;
    }
  }

  // Takes the arguments of nbd_block_status()'s callback: `entries` are `count` numbers, lengths in
  // bytes and flags in turn. Other contexts are ignored. What reaches past the request is cut.
  // Errors: DATA_LOSS, then also from Finish(), for an invalid reply: no entries, half a pair, a
  //         length of 0, another offset than requested, a second reply.
  absl::Status Take(std::string_view context, uint64_t offset, const uint32_t* entries,
                    size_t count) {
    if (count % 2 != 0) return context == context_ ? Refuse("half an entry") : absl::OkStatus();
    return TakeAll(context, offset, count / 2, [entries](size_t i) {
      return std::pair<uint64_t, uint64_t>(entries[2 * i], entries[2 * i + 1]);
    });
  }

  // As above for nbd_block_status_64(), whose entries have `length` and `flags`.
  template <typename Entry>
  absl::Status TakeLong(std::string_view context, uint64_t offset, const Entry* entries,
                        size_t count) {
    return TakeAll(context, offset, count, [entries](size_t i) {
      return std::pair<uint64_t, uint64_t>(entries[i].length, entries[i].flags);
    });
  }

  // Take() as a callback of libnbd's type; `user_data` is an NbdExtents. Returns -1 with *error set
  // if the reply is refused.
  static int Callback(void* user_data, const char* context, uint64_t offset, uint32_t* entries,
                      size_t count, int* error) noexcept {
    auto* const self = static_cast<NbdExtents*>(user_data);
    return self->Answer([&] { return self->Take(context, offset, entries, count); }, error);
  }

  // TakeLong() in the same way; Entry is libnbd's nbd_extent.
  template <typename Entry>
  static int CallbackLong(void* user_data, const char* context, uint64_t offset, Entry* entries,
                          size_t count, int* error) noexcept {
    auto* const self = static_cast<NbdExtents*>(user_data);
    return self->Answer([&] { return self->TakeLong(context, offset, entries, count); }, error);
  }

  // Call after the last reply.
  // Returns: the offset (bytes, above the request's) below which extents() is complete. If it is
  //          below the end of the request, ask again from there.
  // Errors:  those of Take(); DATA_LOSS when no reply was about the context.
  absl::StatusOr<uint64_t> Finish() const {
    if (!status_.ok()) return status_;
    if (!answered_) {
      return absl::DataLossError(absl::StrCat("nbd: the server's answer at offset ", begin_,
                                              " says nothing about the context ", context_));
    }
    return known_;
  }

  // Maximal extents, ascending, inside the request.
  const std::vector<Extent>& extents() const noexcept { return extents_; }

 private:
  enum class Kind { kAllocation, kDirtyBitmap, kAllocationDepth };

  // NBD's limit for any string (bytes).
  static constexpr size_t kMaxName = 4096;

  NbdExtents(std::string context, Kind kind, uint32_t deepest_changed)
      : context_(std::move(context)), kind_(kind), deepest_changed_(deepest_changed) {}

  bool Counts(uint64_t flags) const noexcept {
    constexpr uint64_t kHole = 1;
    constexpr uint64_t kZero = 2;
    switch (kind_) {
      case Kind::kAllocation:
        return flags != kZero && flags != (kHole | kZero);
      case Kind::kDirtyBitmap:
        return flags != 0;
      case Kind::kAllocationDepth:
        return flags != 0 && flags <= deepest_changed_;
    }
    return true;
  }

  // The result of a libnbd callback; no exception may pass through it.
  template <typename Taking>
  int Answer(Taking taking, int* error) noexcept {
    try {
      if (taking().ok()) return 0;
      *error = EPROTO;
    } catch (const std::bad_alloc&) {
      status_ = absl::Status(absl::StatusCode::kResourceExhausted, "");  // without an allocation
      *error = ENOMEM;
    }
    return -1;
  }

  absl::Status Refuse(std::string_view reason) {
    if (status_.ok()) {
      status_ = absl::DataLossError(
          absl::StrCat("nbd: the server's answer about ", context_, " to the request at offset ",
                       begin_, " is wrong at offset ", known_, ": ", std::string(reason)));
    }
    return status_;
  }

  template <typename EntryAt>
  absl::Status TakeAll(std::string_view context, uint64_t offset, size_t count, EntryAt entry_at) {
    if (!status_.ok()) return status_;
    if (context != context_) return absl::OkStatus();
    if (answered_) return Refuse("a second answer about the same context");
    if (offset != begin_) return Refuse(absl::StrCat("it begins at offset ", offset));
    if (count == 0) return Refuse("no entries");
    answered_ = true;
    for (size_t i = 0; i < count && known_ < end_; ++i) {
      const auto [length, flags] = entry_at(i);
      if (length == 0) return Refuse("an entry of length 0");
      const uint64_t inside = std::min(length, end_ - known_);
      if (Counts(flags)) {
        if (!extents_.empty() && extents_.back().end() == known_) {
          extents_.back().length += inside;
        } else if (extents_.size() < kMaxExtents) {
          extents_.push_back({known_, inside});
        } else {
          break;
        }
      }
      known_ += inside;
    }
    return absl::OkStatus();
  }

  std::string context_;
  Kind kind_;
  uint32_t deepest_changed_;
  uint64_t begin_ = 0;
  uint64_t end_ = 0;
  uint64_t known_ = 0;
  bool answered_ = false;
  absl::Status status_ = absl::InvalidArgumentError("nbd: nothing was asked");
  std::vector<Extent> extents_;
};

}  // namespace cbt

#endif  // CBT_BRIDGE_NBD_EXTENTS_H_
