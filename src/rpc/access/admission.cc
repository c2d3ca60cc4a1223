#include "rpc/access/admission.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>
#include <utility>

namespace cbt::rpc {
namespace {

// The only text that unauthorised callers get.
absl::Status Refused() {
  return absl::UnauthenticatedError("the token is invalid or does not grant access");
}

// Converts an error of an authenticator or authorizer for the client, without its text.
absl::Status Deny(const absl::Status& reason) {
  switch (reason.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return absl::UnavailableError("access can't be checked now");
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return absl::InternalError("access can't be checked");
    default:
      return Refused();
  }
}

// The same for a caller who is known.
absl::Status DenyKnown(const absl::Status& reason, bool reports_denied) {
  if (reports_denied && absl::IsPermissionDenied(reason)) {
    return absl::PermissionDeniedError("the caller may not read snapshots of the namespace");
  }
  return Deny(reason);
}

// Converts an error of a resolver or secret provider for the client: codes that a plugin would
// send.
absl::Status ClientError(const absl::Status& reason) {
  switch (reason.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kFailedPrecondition:
      return reason;
    default:
      return absl::InternalError("the snapshots can't be looked up");
  }
}

// A callback for foreign code: calls `use` once, with INTERNAL if it is dropped uncalled. If `use`
// throws, because memory ran out, `fail` is called: the caller must get an answer.
template <typename Argument>
std::function<void(Argument)> Once(std::function<void(Argument)> use, std::function<void()> fail) {
  struct State {
    State(std::function<void(Argument)> call, std::function<void()> otherwise)
        : use(std::move(call)), fail(std::move(otherwise)) {}
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() {
      if (called.exchange(true)) return;
      try {
        use(Argument(absl::InternalError("the access check gave no answer")));
      } catch (const std::bad_alloc&) {
        fail();
      }
    }
    void Call(Argument argument) {
      if (called.exchange(true)) return;
      try {
        use(std::move(argument));
      } catch (const std::bad_alloc&) {
        fail();
      }
    }
    const std::function<void(Argument)> use;
    const std::function<void()> fail;
    std::atomic<bool> called = false;
  };
  const auto state = std::make_shared<State>(std::move(use), std::move(fail));
  return [state](Argument argument) { state->Call(std::move(argument)); };
}

// Runs foreign code; an exception counts as an answer.
template <typename Argument, typename Call>
void Ask(std::function<void(Argument)> use, std::function<void()> fail, Call call) {
  const std::function<void(Argument)> done = Once<Argument>(std::move(use), std::move(fail));
  try {
    call(done);
  } catch (...) {
    done(Argument(absl::Status(absl::StatusCode::kInternal, "")));
  }
}

AdmittedRequest Admitted(MetadataRequest& request) {
  return {.base_snapshot_id = std::move(request.base_snapshot_id),
          .target_snapshot_id = std::move(request.target_snapshot_id),
          .starting_offset = static_cast<uint64_t>(request.starting_offset),
          .max_results = static_cast<uint32_t>(
              std::min<int64_t>(request.max_results, std::numeric_limits<uint32_t>::max())),
          .secrets = std::move(request.secrets),
          .capacity = std::nullopt};
}

class OpenAdmission final : public Admission {
 public:
  void Admit(MetadataRequest request, Done<AdmittedRequest> done) override {
    done(Admitted(request));
  }
};

// One request on its way through the four interfaces.
class Ticket : public std::enable_shared_from_this<Ticket> {
 public:
  Ticket(const AccessControl& access, bool base_is_handle, MetadataRequest request,
         Done<AdmittedRequest> done)
      : access_(access),
        base_is_handle_(base_is_handle),
        request_(std::move(request)),
        done_(std::move(done)) {}

  void Authenticate() {
    Ask<absl::StatusOr<Principal>>(
        [self = shared_from_this()](absl::StatusOr<Principal> who) {
          self->request_.token = Secret();
          if (!who.ok()) return self->done_(Deny(who.status()));
          self->principal_ = *std::move(who);
          self->Authorize();
        },
        WhenShort(),
        [this](auto done) {
          access_.authenticator->AuthenticateFrom(request_.peer, request_.token, done);
        });
  }

  void FindSession(SessionStore& sessions) {
    Ask<absl::StatusOr<Session>>(
        [self = shared_from_this()](absl::StatusOr<Session> session) {
          self->request_.token = Secret();
          if (!session.ok()) return self->done_(Deny(session.status()));
          const auto opens = [&session](const std::string& id) {
            return std::find(session->snapshots.begin(), session->snapshots.end(), id) !=
                   session->snapshots.end();
          };
          if (!opens(self->request_.target_snapshot_id) ||
              (self->request_.base_snapshot_id.has_value() &&
               !opens(*self->request_.base_snapshot_id))) {
            return self->done_(Refused());
          }
          self->request_.name_space = session->name_space;
          self->Resolve();
        },
        WhenShort(), [&](auto done) { sessions.FindFrom(request_.peer, request_.token, done); });
  }

 private:
  // Answers when out of memory, without allocating.
  std::function<void()> WhenShort() {
    return [self = shared_from_this()] {
      self->done_(absl::Status(absl::StatusCode::kResourceExhausted, ""));
    };
  }

  void Authorize() {
    Ask<absl::Status>(
        [self = shared_from_this()](const absl::Status& allowed) {
          if (!allowed.ok()) {
            return self->done_(DenyKnown(allowed, self->access_.reports_denied));
          }
          self->Resolve();
        },
        WhenShort(),
        [this](auto done) {
          access_.authorizer->Authorize(principal_, request_.name_space, done);
        });
  }

  void Resolve() {
    if (access_.resolver == nullptr) {
      snapshots_.base_handle = request_.base_snapshot_id;
      snapshots_.target_handle = request_.target_snapshot_id;
      return GetSecrets();
    }
    query_ = {.name_space = request_.name_space,
              .base = request_.base_snapshot_id,
              .base_is_handle = base_is_handle_,
              .target = request_.target_snapshot_id};
    Ask<absl::StatusOr<ResolvedSnapshots>>(
        [self = shared_from_this()](absl::StatusOr<ResolvedSnapshots> snapshots) {
          if (!snapshots.ok()) return self->done_(ClientError(snapshots.status()));
          // If a resolver omits the base, the delta would become another request.
          if (snapshots->target_handle.empty() ||
              snapshots->base_handle.has_value() != self->query_.base.has_value()) {
            return self->done_(absl::InternalError("the snapshots can't be looked up"));
          }
          self->snapshots_ = *std::move(snapshots);
          self->GetSecrets();
        },
        WhenShort(), [this](auto done) { access_.resolver->Resolve(query_, done); });
  }

  void GetSecrets() {
    if (access_.secrets == nullptr) return Finish(Secrets());
    Ask<absl::StatusOr<Secrets>>(
        [self = shared_from_this()](absl::StatusOr<Secrets> secrets) {
          if (absl::IsFailedPrecondition(secrets.status())) return self->done_(secrets.status());
          // Without the text: it may quote secrets.
          if (!secrets.ok()) {
            return self->done_(secrets.status().code() == absl::StatusCode::kUnavailable
                                   ? absl::UnavailableError("the secrets can't be read now")
                                   : absl::InternalError("the secrets can't be read"));
          }
          self->Finish(*std::move(secrets));
        },
        WhenShort(),
        [this](auto done) { access_.secrets->GetSecrets(request_.name_space, snapshots_, done); });
  }

  void Finish(Secrets secrets) {
    request_.base_snapshot_id = std::move(snapshots_.base_handle);
    request_.target_snapshot_id = std::move(snapshots_.target_handle);
    request_.secrets = std::move(secrets);
    AdmittedRequest admitted = Admitted(request_);
    if (snapshots_.capacity.value_or(0) > 0) admitted.capacity = snapshots_.capacity;
    done_(std::move(admitted));
  }

  const AccessControl access_;
  const bool base_is_handle_;
  MetadataRequest request_;
  const Done<AdmittedRequest> done_;
  Principal principal_;
  SnapshotQuery query_;
  ResolvedSnapshots snapshots_;
};

class AccessAdmission final : public Admission {
 public:
  AccessAdmission(const AccessControl& access, bool base_is_handle)
      : access_(access), base_is_handle_(base_is_handle) {}

  void Admit(MetadataRequest request, Done<AdmittedRequest> done) override {
    std::make_shared<Ticket>(access_, base_is_handle_, std::move(request), std::move(done))
        ->Authenticate();
  }

 private:
  const AccessControl access_;
  const bool base_is_handle_;
};

class SessionAdmission final : public Admission {
 public:
  SessionAdmission(SessionStore& sessions, const AccessControl& access)
      : sessions_(sessions), access_(access) {}

  void Admit(MetadataRequest request, Done<AdmittedRequest> done) override {
    std::make_shared<Ticket>(access_, false, std::move(request), std::move(done))
        ->FindSession(sessions_);
  }

 private:
  SessionStore& sessions_;
  const AccessControl access_;
};

}  // namespace

std::unique_ptr<Admission> MakeOpenAdmission() { return std::make_unique<OpenAdmission>(); }

std::unique_ptr<Admission> MakeAccessAdmission(const AccessControl& access, bool base_is_handle) {
  return std::make_unique<AccessAdmission>(access, base_is_handle);
}

std::unique_ptr<Admission> MakeSessionAdmission(SessionStore& sessions,
                                                const AccessControl& access) {
  return std::make_unique<SessionAdmission>(sessions, access);
}

}  // namespace cbt::rpc
