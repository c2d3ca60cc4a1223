#include "net/loop_threads.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace cbt::net {

absl::StatusOr<std::unique_ptr<LoopThreads>> LoopThreads::Create(size_t count) try {
  const size_t processors = std::max(1U, std::thread::hardware_concurrency());
  std::vector<Part> parts(std::clamp<size_t>(count, 1, processors));
  for (Part& part : parts) {
    auto loop = EventLoop::Create();
    if (!loop.ok()) return loop.status();
    part.loop = *std::move(loop);
    part.chunks = std::make_unique<ReadChunks>(std::make_shared<MemoryAccount>());
  }
  std::unique_ptr<LoopThreads> threads(new LoopThreads(std::move(parts)));
  threads->threads_.reserve(threads->size());
  return threads;
} catch (const std::bad_alloc&) {
  return absl::Status(absl::StatusCode::kResourceExhausted, "");
}

LoopThreads::LoopThreads(std::vector<Part> parts) noexcept : parts_(std::move(parts)) {}

LoopThreads::~LoopThreads() {
  for (const Part& part : parts_) part.loop->Stop();
  for (std::thread& thread : threads_) thread.join();
  for (size_t i = running(); i < size(); ++i) loop(i).RunOnce(std::chrono::milliseconds(0));
}

void LoopThreads::Run() {
  while (running() < size()) {
    threads_.emplace_back([&loop = loop(running())] { loop.Run(); });
  }
}

}  // namespace cbt::net
