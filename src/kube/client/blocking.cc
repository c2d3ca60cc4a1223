// The functions of Client that wait.
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "cbt/kube/client.h"
#include "kube/client/core.h"

namespace cbt::kube {
namespace {

// Takes the result of a call in one thread to another.
template <typename Result>
class Waiter {
 public:
  void Put(Result result) {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    // Under the lock: afterwards this object may be gone.
    done_.notify_one();
  }
  Result Wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return result_.has_value(); });
    return *std::move(result_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::optional<Result> result_;
};

// Starts a call by `start(done)` and returns its result. `in_thread`: this is the client's thread.
template <typename Result, typename Start>
Result Await(bool in_thread, Start start) {
  if (in_thread) {
    return absl::FailedPreconditionError(
        "a function that waits was called in the client's own thread: use its asynchronous form");
  }
  Waiter<Result> waiter;
  start([&waiter](Result result) { waiter.Put(std::move(result)); });
  return waiter.Wait();
}

}  // namespace

absl::StatusOr<Object> Client::Get(const Resource& resource, std::string_view name_space,
                                   std::string_view name, const GetOptions& options) {
  return Await<absl::StatusOr<Object>>(core_->InThread(), [&](ResultCallback<Object> done) {
    GetAsync(resource, name_space, name, options, std::move(done));
  });
}

absl::StatusOr<Object> Client::Create(const Resource& resource, const Object& object,
                                      const WriteOptions& options) {
  return Await<absl::StatusOr<Object>>(core_->InThread(), [&](ResultCallback<Object> done) {
    CreateAsync(resource, object, options, std::move(done));
  });
}

absl::StatusOr<Object> Client::Update(const Resource& resource, const Object& object,
                                      const WriteOptions& options) {
  return Await<absl::StatusOr<Object>>(core_->InThread(), [&](ResultCallback<Object> done) {
    UpdateAsync(resource, object, options, std::move(done));
  });
}

absl::StatusOr<Object> Client::Patch(const Resource& resource, std::string_view name_space,
                                     std::string_view name, PatchType type, std::string_view patch,
                                     const WriteOptions& options) {
  return Await<absl::StatusOr<Object>>(core_->InThread(), [&](ResultCallback<Object> done) {
    PatchAsync(resource, name_space, name, type, patch, options, std::move(done));
  });
}

absl::StatusOr<Object> Client::Apply(const Resource& resource, const Object& object,
                                     const ApplyOptions& options) {
  return Await<absl::StatusOr<Object>>(core_->InThread(), [&](ResultCallback<Object> done) {
    ApplyAsync(resource, object, options, std::move(done));
  });
}

absl::Status Client::Delete(const Resource& resource, std::string_view name_space,
                            std::string_view name, const DeleteOptions& options) {
  return Await<absl::Status>(core_->InThread(), [&](StatusCallback done) {
    DeleteAsync(resource, name_space, name, options, std::move(done));
  });
}

absl::StatusOr<ObjectList> Client::List(const Resource& resource, std::string_view name_space,
                                        const ListOptions& options) {
  return Await<absl::StatusOr<ObjectList>>(core_->InThread(), [&](ResultCallback<ObjectList> done) {
    ListAsync(resource, name_space, options, std::move(done));
  });
}

absl::StatusOr<ObjectList> Client::ListAll(const Resource& resource, std::string_view name_space,
                                           const ListOptions& options) {
  return Await<absl::StatusOr<ObjectList>>(core_->InThread(), [&](ResultCallback<ObjectList> done) {
    ListAllAsync(resource, name_space, options, std::move(done));
  });
}

absl::StatusOr<ServiceAccountToken> Client::CreateToken(std::string_view name_space,
                                                        std::string_view service_account,
                                                        const TokenOptions& options) {
  return Await<absl::StatusOr<ServiceAccountToken>>(
      core_->InThread(), [&](ResultCallback<ServiceAccountToken> done) {
        CreateTokenAsync(name_space, service_account, options, std::move(done));
      });
}

absl::StatusOr<Response> Client::Send(Request request, const CallOptions& options) {
  return Await<absl::StatusOr<Response>>(core_->InThread(), [&](ResultCallback<Response> done) {
    SendAsync(std::move(request), options, std::move(done));
  });
}

}  // namespace cbt::kube
