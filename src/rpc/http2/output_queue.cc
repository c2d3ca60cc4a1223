#include "rpc/http2/output_queue.h"

#include <algorithm>
#include <utility>

namespace cbt::rpc::http2 {
namespace {

// The most that an idle connection keeps.
constexpr size_t kKeptControlBytes = 256;
constexpr size_t kKeptSegments = 4;

iovec Part(const char* data, size_t bytes) noexcept {
  return {.iov_base = const_cast<char*>(data), .iov_len = bytes};
}

}  // namespace

void OutputQueue::AddControl(const uint8_t* data, size_t bytes) {
  if (first_ == segments_.size() || !segments_.back().data.empty()) segments_.emplace_back();
  control_.append(reinterpret_cast<const char*>(data), bytes);
  segments_.back().control += bytes;
  bytes_ += bytes;
  account_.Add(bytes);
}

void OutputQueue::AddData(absl::Cord data) {
  if (first_ == segments_.size() || !segments_.back().data.empty()) segments_.emplace_back();
  bytes_ += data.size();
  account_.Add(data.size());
  segments_.back().data = std::move(data);
}

size_t OutputQueue::Parts(std::span<iovec, kMaxParts> parts) const noexcept {
  size_t count = 0;
  size_t control = control_begin_;
  for (size_t i = first_; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    if (count == kMaxParts) break;
    if (segment.control > 0) parts[count++] = Part(control_.data() + control, segment.control);
    control += segment.control;
    size_t written = segment.written;
    for (const absl::string_view chunk : segment.data.Chunks()) {
      if (count == kMaxParts) return count;
      const size_t skipped = std::min(written, chunk.size());
      written -= skipped;
      if (skipped == chunk.size()) continue;
      parts[count++] = Part(chunk.data() + skipped, chunk.size() - skipped);
    }
  }
  return count;
}

void OutputQueue::RemovePrefix(size_t bytes) noexcept {
  bytes_ -= bytes;
  account_.Remove(bytes);
  while (bytes > 0) {
    Segment& segment = segments_[first_];
    const size_t control = std::min(bytes, segment.control);
    segment.control -= control;
    control_begin_ += control;
    bytes -= control;
    const size_t data = std::min(bytes, segment.data.size() - segment.written);
    segment.written += data;
    bytes -= data;
    if (segment.control > 0 || segment.written < segment.data.size()) break;
    segment.data.Clear();
    segment.written = 0;
    ++first_;
  }
  if (bytes_ == 0) {
    Clear();
  } else if (first_ >= 2 * kMaxParts) {
    // A queue that is never empty must not grow.
    segments_.erase(segments_.begin(), segments_.begin() + static_cast<ptrdiff_t>(first_));
    first_ = 0;
    control_.erase(0, control_begin_);
    control_begin_ = 0;
  }
}

void OutputQueue::Clear() noexcept {
  account_.Remove(bytes_);
  bytes_ = 0;
  first_ = control_begin_ = 0;
  segments_.clear();
  control_.clear();
  if (segments_.capacity() > kKeptSegments) std::vector<Segment>().swap(segments_);
  if (control_.capacity() > kKeptControlBytes) std::string().swap(control_);
}

}  // namespace cbt::rpc::http2
