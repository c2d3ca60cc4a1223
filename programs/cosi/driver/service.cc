#include "programs/cosi/driver/service.h"

#include <exception>
#include <new>
#include <utility>

#include "absl/strings/cord.h"
#include "base/wipe.h"
#include "programs/cosi/driver/requests.h"
#include "rpc/transport/flat_message.h"

namespace cbt::cosi {
namespace {

constexpr cosi::Method kMethods[] = {cosi::Method::kInfo,  cosi::Method::kCreate,
                                     cosi::Method::kFind,  cosi::Method::kDelete,
                                     cosi::Method::kGrant, cosi::Method::kRevoke};

absl::Status Exhausted() noexcept { return {absl::StatusCode::kResourceExhausted, ""}; }

absl::Status ServerError(const char* text) noexcept try {
  return absl::InternalError(text);
} catch (const std::bad_alloc&) {
  return {absl::StatusCode::kInternal, ""};
}

}  // namespace

// Runs on the executor, since the store waits for its backend.
class CosiService::Call final : public rpc::CallHandler {
 public:
  Call(CosiService& service, rpc::ServerCall& call) : service_(service), call_(call) {
    ++service_.open_;
  }
  ~Call() override { --service_.open_; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  void Run(const std::string& path, const Answer& answer, const absl::Cord& request) noexcept {
    const auto begin = std::chrono::steady_clock::now();
    absl::Status status;
    absl::Cord message;
    try {
      rpc::FlatMessage flat;
      absl::StatusOr<std::string> bytes = answer(flat.Of(request));
      status = bytes.status();
      if (bytes.ok()) {
        const Wiper wiper(*bytes);
        message = absl::Cord(absl::string_view(*bytes));
      }
    } catch (const std::bad_alloc&) {
      status = Exhausted();
    } catch (const std::exception& error) {
      status = ServerError(error.what());
    }
    service_.observer_(path, status, std::chrono::steady_clock::now() - begin);
    // It may be destroyed as soon as one of these is called.
    if (status.ok()) return call_.WriteAndFinish(std::move(message));
    call_.Finish(std::move(status));
  }

  void OnDone() override { delete this; }

 private:
  CosiService& service_;
  rpc::ServerCall& call_;
};

CosiService::CosiService(BucketStore& store, DriverInfo info, Executor& executor, Observer observer)
    : store_(store), info_(std::move(info)), executor_(executor), observer_(std::move(observer)) {
  for (const Revision revision : kRevisions) Serve(revision);
}

void CosiService::Serve(Revision revision) {
  const Contract& contract = ContractOf(revision);
  for (const cosi::Method method : kMethods) {
    const std::string path(contract.Path(method));
    if (path.empty()) continue;
    AddMethod(path,
              [this, path, answer = AnswerOf(contract, revision, method)](
                  rpc::ServerCall& call, absl::Cord request) -> absl::StatusOr<rpc::CallHandler*> {
                if (open_ >= kMaxCalls) {
                  return absl::ResourceExhaustedError("too many calls are open");
                }
                auto opened = std::make_unique<Call>(*this, call);
                executor_.Schedule(
                    [handler = opened.get(), &path, &answer, request = std::move(request)] {
                      handler->Run(path, answer, request);
                    });
                return opened.release();
              });
  }
}

CosiService::Answer CosiService::AnswerOf(const Contract& contract, Revision revision,
                                          cosi::Method method) {
  switch (method) {
    case cosi::Method::kInfo:
      return [this, &contract](MessageBytes) -> absl::StatusOr<std::string> {
        return contract.WriteInfo(info_);
      };
    case cosi::Method::kCreate:
      return [this, &contract, revision](MessageBytes bytes) -> absl::StatusOr<std::string> {
        const absl::StatusOr<CreateRequest> request = contract.ReadCreate(bytes);
        if (!request.ok()) return request.status();
        const absl::StatusOr<BucketAnswer> bucket = Create(store_, revision, *request);
        if (!bucket.ok()) return bucket.status();
        return contract.WriteBucket(*bucket);
      };
    case cosi::Method::kFind:
      return [this, &contract](MessageBytes bytes) -> absl::StatusOr<std::string> {
        const absl::StatusOr<FindRequest> request = contract.ReadFind(bytes);
        if (!request.ok()) return request.status();
        const absl::StatusOr<BucketAnswer> bucket = Find(store_, *request);
        if (!bucket.ok()) return bucket.status();
        return contract.WriteBucket(*bucket);
      };
    case cosi::Method::kDelete:
      return [this, &contract](MessageBytes bytes) -> absl::StatusOr<std::string> {
        const absl::StatusOr<DeleteRequest> request = contract.ReadDelete(bytes);
        if (!request.ok()) return request.status();
        absl::Status deleted = Delete(store_, *request);
        if (!deleted.ok()) return deleted;
        return std::string();
      };
    case cosi::Method::kGrant:
      return [this, &contract, revision](MessageBytes bytes) -> absl::StatusOr<std::string> {
        const absl::StatusOr<GrantRequest> request = contract.ReadGrant(bytes);
        if (!request.ok()) return request.status();
        const absl::StatusOr<GrantAnswer> access = Grant(store_, revision, *request);
        if (!access.ok()) return access.status();
        return contract.WriteAccess(*access);
      };
    case cosi::Method::kRevoke:
      break;
  }
  return [this, &contract](MessageBytes bytes) -> absl::StatusOr<std::string> {
    const absl::StatusOr<RevokeRequest> request = contract.ReadRevoke(bytes);
    if (!request.ok()) return request.status();
    absl::Status revoked = Revoke(store_, *request);
    if (!revoked.ok()) return revoked;
    return std::string();
  };
}

}  // namespace cbt::cosi
