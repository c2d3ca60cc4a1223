#include "cbt/c/client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/process_mark.h"
#include "c/abandoned.h"
#include "c/handles.h"
#include "cbt/rpc/client.h"

namespace cbt::c {
namespace {

using std::chrono::milliseconds;

// The greatest time that no clock overflows with: a year.
constexpr uint64_t kMaxClientMs = uint64_t{366} * 24 * 3600 * 1000;

}  // namespace

// The caller's functions.
struct ClientCallbacks {
  ClientCallbacks() = default;
  ~ClientCallbacks() { Release(release, user); }
  ClientCallbacks(const ClientCallbacks&) = delete;
  ClientCallbacks& operator=(const ClientCallbacks&) = delete;

  absl::StatusOr<Secret> NextToken() const {
    cbt_bytes* token = nullptr;
    cbt_error* error = nullptr;
    const cbt_code code = next_token(user, &token, &error);
    absl::StatusOr<Secret> answer = absl::InternalError("next_token: the callback gave no token");
    if (absl::Status status = FromCallback(code, error); !status.ok()) {
      answer = status;
    } else if (Usable(token)) {
      const std::span<const uint8_t> bytes = token->bytes.bytes();
      answer = Secret({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    Free(token);
    return answer;
  }

  void* user = nullptr;
  cbt_code (*next_token)(void*, cbt_bytes**, cbt_error**) = nullptr;
  void (*on_resume)(void*, uint64_t, cbt_code, const char*) = nullptr;
  void (*release)(void*) = nullptr;
};

// What a client and its cursor share.
struct ClientCall {
  ClientCallbacks callbacks;
  rpc::ListRequest request;
  std::stop_source stop;

  std::atomic<bool> taken = false;  // by a call that opens it, for good if that succeeds
  // Constant once `open` is set.
  std::atomic<bool> open = false;
  std::string version;
  cbt_client_info info = {};
  // Set by the thread that reads.
  std::atomic<int> resumes = 0;
  std::atomic<rpc::Completeness> completeness = rpc::Completeness::kUnderWay;
};

namespace {

absl::StatusOr<rpc::Api> ApiOf(int32_t contract) {
  switch (contract) {
    case CBT_CONTRACT_CSI:
      return rpc::Api::kCsi;
    case CBT_CONTRACT_KUBERNETES:
      return rpc::Api::kKubernetes;
    case CBT_CONTRACT_SESSION:
      return rpc::Api::kSession;
    case CBT_CONTRACT_PAGED:
      return rpc::Api::kPaged;
    default:
      return absl::InvalidArgumentError("contract: unknown");
  }
}

absl::StatusOr<rpc::NoMessage> NoMessageOf(int32_t meaning) {
  switch (meaning) {
    case CBT_NO_MESSAGE_NEEDS_CAPACITY:
      return rpc::NoMessage::kNeedsCapacity;
    case CBT_NO_MESSAGE_ACCEPTED:
      return rpc::NoMessage::kAccepted;
    case CBT_NO_MESSAGE_REFUSED:
      return rpc::NoMessage::kRefused;
    default:
      return absl::InvalidArgumentError("no_message: unknown");
  }
}

absl::Status TooLate(const char* name) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": expected at most a year"));
}

absl::Status SetTimes(const cbt_client_options& given, rpc::ListRequest& request) {
  if (given.timeout_ms > kMaxClientMs) return TooLate("timeout_ms");
  if (given.stall_ms > kMaxClientMs) return TooLate("stall_ms");
  if (given.timeout_ms != 0) request.timeout = milliseconds(given.timeout_ms);
  if (given.stall_ms != 0) request.stall_timeout = milliseconds(given.stall_ms);
  if (given.retry_ms == CBT_NO_RETRY) {
    request.retry_for = milliseconds(0);
  } else if (given.retry_ms > kMaxClientMs) {
    return TooLate("retry_ms");
  } else if (given.retry_ms != 0) {
    request.retry_for = milliseconds(given.retry_ms);
  }
  return absl::OkStatus();
}

absl::Status SetRequest(const cbt_client_options& given, rpc::ListRequest& request) {
  if (given.address == nullptr) return IsNull("address");
  if (given.snapshot == nullptr) return IsNull("snapshot");
  if (given.secrets == nullptr && given.secret_count != 0) return IsNull("secrets");
  absl::StatusOr<rpc::Api> api = ApiOf(given.contract);
  if (!api.ok()) return api.status();
  absl::StatusOr<rpc::NoMessage> no_message = NoMessageOf(given.no_message);
  if (!no_message.ok()) return no_message.status();
  if (given.max_results > static_cast<uint32_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError("max_results: expected at most 2^31 - 1");
  }
  request.address = given.address;
  request.api = *api;
  request.snapshot_id = given.snapshot;
  if (given.base != nullptr) request.base_snapshot_id = given.base;
  if (given.token != nullptr) request.token = Secret(given.token);
  request.name_space = Text(given.name_space);
  request.volume_id = Text(given.volume);
  for (uint64_t i = 0; i < given.secret_count; ++i) {
    const cbt_metadata& secret = given.secrets[i];
    if (secret.key == nullptr || secret.value == nullptr) return IsNull("secrets");
    request.secrets.Set(secret.key, secret.value);
  }
  request.starting_offset = given.starting_offset;
  request.source_version = Text(given.source_version);
  request.max_results = static_cast<int32_t>(given.max_results);
  request.no_message = *no_message;
  if (given.capacity != 0) request.capacity = given.capacity;
  request.require_proof = given.require_proof != 0;
  request.wire_tuples = given.wire_tuples != 0;
  request.tls = {.enabled = given.tls != 0,
                 .ca = Text(given.ca),
                 .certificate = Text(given.certificate),
                 .private_key = Text(given.key)};
  return SetTimes(given, request);
}

// The remote stream; says how far it is to the client's handle.
class ClientCursor final : public ExtentCursor {
 public:
  ClientCursor(std::shared_ptr<ClientCall> call, std::unique_ptr<rpc::RemoteCursor> remote)
      : ExtentCursor(remote->geometry()), call_(std::move(call)), remote_(std::move(remote)) {}
  ~ClientCursor() override {
    if (mark_.IsOurs()) return;
    Abandon(std::move(remote_));
    Abandon(std::move(call_));
  }
  ClientCursor(const ClientCursor&) = delete;
  ClientCursor& operator=(const ClientCursor&) = delete;

 private:
  absl::Status DoSeek(uint64_t offset) override {
    if (!mark_.IsOurs()) return IsParents("cursor");
    call_->completeness = rpc::Completeness::kUnderWay;
    absl::Status status = remote_->Seek(offset);
    call_->resumes = remote_->resumes();
    return status;
  }

  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override {
    if (!mark_.IsOurs()) return IsParents("cursor");
    absl::StatusOr<Step> step = remote_->Next(batch);
    call_->resumes = remote_->resumes();
    if (!step.ok()) return step.status();
    call_->completeness = remote_->completeness();
    return remote_->covered();
  }

  const ProcessMark mark_;
  // First: the stream calls its callbacks.
  std::shared_ptr<ClientCall> call_;
  std::shared_ptr<rpc::RemoteCursor> remote_;
};

absl::StatusOr<std::unique_ptr<ExtentCursor>> OpenClient(const std::shared_ptr<ClientCall>& call) {
  absl::StatusOr<std::unique_ptr<rpc::RemoteCursor>> opened =
      rpc::RemoteCursor::Open(call->request);
  if (!opened.ok()) return opened.status();
  const rpc::RemoteCursor& remote = **opened;
  cbt_client_info info = {};
  info.type = static_cast<int32_t>(remote.type());
  info.capacity_known = remote.capacity_known() ? 1 : 0;
  info.may_change = remote.may_change_unseen() ? 1 : 0;
  info.has_summary_bytes = remote.summary().bytes.has_value() ? 1 : 0;
  info.has_summary_tuples = remote.summary().tuples.has_value() ? 1 : 0;
  info.summary_bytes = remote.summary().bytes.value_or(0);
  info.summary_tuples = remote.summary().tuples.value_or(0);
  std::string version = remote.source_version();
  const rpc::Completeness completeness = remote.completeness();
  const int resumes = remote.resumes();
  std::unique_ptr<ExtentCursor> cursor = std::make_unique<ClientCursor>(call, *std::move(opened));
  // From here on nothing fails.
  call->info = info;
  call->version = std::move(version);
  call->completeness = completeness;
  call->resumes = resumes;
  return cursor;
}

}  // namespace
}  // namespace cbt::c

struct cbt_client : cbt::c::Handle {
  explicit cbt_client(std::shared_ptr<cbt::c::ClientCall> made)
      : Handle(&kKind<cbt_client>), call(std::move(made)) {}
  const std::shared_ptr<cbt::c::ClientCall> call;
};

cbt_code cbt_client_new(const cbt_client_options* options, cbt_client** client,
                        cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (client == nullptr) return cbt::c::IsNull("client");
    *client = nullptr;
    if (options == nullptr) return cbt::c::IsNull("options");
    cbt_client_options copy;
    if (absl::Status status = cbt::c::ReadOptions(options, "options", copy); !status.ok()) {
      return status;
    }
    const auto call = std::make_shared<cbt::c::ClientCall>();
    if (absl::Status status = cbt::c::SetRequest(copy, call->request); !status.ok()) return status;
    call->request.stop = call->stop.get_token();
    cbt::c::ClientCallbacks& callbacks = call->callbacks;
    callbacks.user = copy.user;
    callbacks.next_token = copy.next_token;
    callbacks.on_resume = copy.on_resume;
    // The request is a part of the call, and so are the streams made of it.
    if (copy.next_token != nullptr) {
      call->request.token_source = [&callbacks] { return callbacks.NextToken(); };
    }
    if (copy.on_resume != nullptr) {
      call->request.on_resume = [&callbacks](uint64_t offset, const absl::Status& reason) {
        callbacks.on_resume(callbacks.user, offset, static_cast<cbt_code>(reason.code()),
                            std::string(reason.message()).c_str());
      };
    }
    *client = new cbt_client(call);
    callbacks.release = copy.release;
    return absl::OkStatus();
  });
}

cbt_code cbt_client_open(cbt_client* client, cbt_cursor** cursor, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (cursor == nullptr) return cbt::c::IsNull("cursor");
    *cursor = nullptr;
    if (absl::Status status = cbt::c::Check(client, "client"); !status.ok()) return status;
    // The client may be freed meanwhile.
    const std::shared_ptr<cbt::c::ClientCall> call = client->call;
    if (call->taken.exchange(true)) {
      return absl::FailedPreconditionError("client: was opened before; make another one");
    }
    struct Back {
      explicit Back(cbt::c::ClientCall& of) noexcept : call(of) {}
      Back(const Back&) = delete;
      Back& operator=(const Back&) = delete;
      ~Back() {
        if (!call.open) call.taken = false;
      }
      cbt::c::ClientCall& call;
    } const back(*call);
    const auto proven = [call] { return call->completeness == cbt::rpc::Completeness::kProven; };
    if (absl::Status status = cbt::c::Return(cbt::c::OpenClient(call), cursor, {proven});
        !status.ok()) {
      return status;
    }
    call->open = true;
    return absl::OkStatus();
  });
}

cbt_code cbt_client_get_info(const cbt_client* client, cbt_client_info* info,
                             cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(client, "client"); !status.ok()) return status;
    if (info == nullptr) return cbt::c::IsNull("info");
    const cbt::c::ClientCall& call = *client->call;
    if (!call.open) return absl::FailedPreconditionError("client: is not open");
    cbt_client_info found = call.info;
    found.resumes = static_cast<uint64_t>(call.resumes);
    return cbt::c::WriteResult(found, "info", info);
  });
}

const char* cbt_client_version_borrowed(const cbt_client* client) noexcept {
  return cbt::c::Usable(client) && client->call->open ? client->call->version.c_str() : "";
}

cbt_code cbt_client_proof(const cbt_client* client, int32_t* proof, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (proof == nullptr) return cbt::c::IsNull("proof");
    *proof = CBT_PROOF_ABSENT;
    if (absl::Status status = cbt::c::Check(client, "client"); !status.ok()) return status;
    const cbt::c::ClientCall& call = *client->call;
    switch (call.open ? call.completeness.load() : cbt::rpc::Completeness::kUnderWay) {
      case cbt::rpc::Completeness::kUnderWay:
        return absl::FailedPreconditionError(
            "client: the stream has not been read to its end; it has no answer yet");
      case cbt::rpc::Completeness::kEnded:
        break;
      case cbt::rpc::Completeness::kProvenFromRelay:
        *proof = CBT_PROOF_HOLDS_FROM_RELAY;
        break;
      case cbt::rpc::Completeness::kProvenForPlace:
        *proof = CBT_PROOF_HOLDS_FOR_PLACE;
        break;
      case cbt::rpc::Completeness::kProven:
        *proof = CBT_PROOF_HOLDS;
        break;
    }
    return absl::OkStatus();
  });
}

void cbt_client_cancel(cbt_client* client) noexcept {
  if (cbt::c::Usable(client)) client->call->stop.request_stop();
}

void cbt_client_free(cbt_client* client) noexcept { cbt::c::Free(client); }
