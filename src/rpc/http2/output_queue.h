// A connection's output: control bytes, and messages by reference.
#ifndef CBT_RPC_HTTP2_OUTPUT_QUEUE_H_
#define CBT_RPC_HTTP2_OUTPUT_QUEUE_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/cord.h"
#include "net/memory.h"

namespace cbt::rpc::http2 {

// Frames of all streams in their order, which the socket does not take yet. They are not the
// streams' any more: a frame that is begun must be sent, also if its stream is reset.
class OutputQueue {
 public:
  // The most parts in one write.
  static constexpr size_t kMaxParts = 64;

  // `account` outlives the queue.
  explicit OutputQueue(net::MemoryAccount& account) noexcept : account_(account) {}
  ~OutputQueue() { Clear(); }
  OutputQueue(const OutputQueue&) = delete;
  OutputQueue& operator=(const OutputQueue&) = delete;

  bool empty() const noexcept { return bytes_ == 0; }
  size_t bytes() const noexcept { return bytes_; }

  // Copies the bytes. Throws std::bad_alloc; nothing was added then.
  void AddControl(const uint8_t* data, size_t bytes);
  // Refers to the memory of `data`. Throws std::bad_alloc; nothing was added then.
  void AddData(absl::Cord data);

  // The first parts, for writev(); returns their number. Valid until the queue changes.
  size_t Parts(std::span<iovec, kMaxParts> parts) const noexcept;

  // Removes the first `bytes`, which have been written.
  void RemovePrefix(size_t bytes) noexcept;

  void Clear() noexcept;

 private:
  // Control bytes, then data.
  struct Segment {
    size_t control = 0;
    absl::Cord data;
    // Bytes of `data` already written: removing them could need memory.
    size_t written = 0;
  };

  net::MemoryAccount& account_;
  std::string control_;  // of all segments
  size_t control_begin_ = 0;
  std::vector<Segment> segments_;
  size_t first_ = 0;
  size_t bytes_ = 0;
};

}  // namespace cbt::rpc::http2

#endif  // CBT_RPC_HTTP2_OUTPUT_QUEUE_H_
