#include "programs/cosi/node/unary_service.h"

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "rpc/transport/flat_message.h"

namespace cbt::kube::cosi {

// Destroys itself when the transport is done with it.
class UnaryService::Call final : public rpc::CallHandler {
 public:
  Call(rpc::ServerCall& call, const Method& method) : call_(call), method_(method) {}

  // Ends the call. It may be gone when this returns.
  void Answer(const absl::Cord& request) noexcept {
    absl::StatusOr<std::string> answer = absl::InternalError("");
    try {
      rpc::FlatMessage flat;
      answer = method_(flat.Of(request));
    } catch (const std::exception&) {
      answer = absl::ResourceExhaustedError("");
    }
    if (!answer.ok()) return call_.Finish(answer.status());
    call_.WriteAndFinish(absl::Cord(*std::move(answer)));
  }

  void OnDone() override { delete this; }

 private:
  rpc::ServerCall& call_;
  const Method& method_;
};

UnaryService::UnaryService(size_t threads) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

UnaryService::~UnaryService() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void UnaryService::Add(const std::string& path, Method method) {
  AddMethod(path,
            [this, method = std::move(method)](
                rpc::ServerCall& call, absl::Cord request) -> absl::StatusOr<rpc::CallHandler*> {
              const std::lock_guard lock(mutex_);
              if (jobs_.size() >= kMaxWaiting)
                return absl::ResourceExhaustedError("too many calls wait");
              jobs_.push_back({new Call(call, method), std::move(request)});
              changed_.notify_one();
              // The transport takes it before the call can end.
              return jobs_.back().call;
            });
}

void UnaryService::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ended_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job.call->Answer(job.request);
    lock.lock();
  }
}

}  // namespace cbt::kube::cosi
