// Access control: what a service of the Kubernetes contract asks before it answers, in this order:
//
//   Authenticator     whose token is it?
//   Authorizer        may its bearer read snapshots of the namespace?
//   SnapshotResolver  which storage handles do these snapshots have?
//   SecretProvider    which secrets does the storage need?
//
// No snapshot is looked up before the first two have agreed. All their refusals have the same code
// and the same text (but see AccessControl::reports_denied).
//
// All are asynchronous: an implementation answers by calling `done` once, from any thread, during
// the call or later. Arguments live until then. They are called concurrently on the transport's
// threads, so they must not block. If an implementation drops `done` without calling it, or throws,
// the call fails with INTERNAL.
#ifndef CBT_RPC_ACCESS_H_
#define CBT_RPC_ACCESS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/secrets.h"

namespace cbt::rpc {

template <typename Result>
using Done = std::function<void(absl::StatusOr<Result>)>;
using DoneStatus = std::function<void(absl::Status)>;

// The authenticated caller.
struct Principal {
  std::string name = {};
  std::vector<std::string> groups = {};
  // Further attributes that the authenticator reports, for authorizers that pass them on.
  std::string uid = {};
  std::map<std::string, std::vector<std::string>> extra = {};
};

class Authenticator {
 public:
  virtual ~Authenticator() = default;
  // UNAVAILABLE: can't be decided now. Any other error: the token is invalid. The client never sees
  // the text.
  virtual void Authenticate(const Secret& token, Done<Principal> done) = 0;
  // The same with the address, without its port, that the token came from; empty if it has none.
  // For authenticators whose answers are costly: a sender of invalid tokens must not use up the
  // resources of others.
  virtual void AuthenticateFrom(const std::string& /*peer*/, const Secret& token,
                                Done<Principal> done) {
    Authenticate(token, std::move(done));
  }
};

class Authorizer {
 public:
  virtual ~Authorizer() = default;
  // OK: `who` may read metadata of the snapshots of `name_space`. Errors as Authenticate().
  virtual void Authorize(const Principal& who, const std::string& name_space, DoneStatus done) = 0;
};

// Snapshots as a request names them.
struct SnapshotQuery {
  std::string name_space = {};
  std::optional<std::string> base = {};  // of a delta
  bool base_is_handle = true;            // false: a name, like the target
  std::string target = {};
};

// Results of a resolver that its secret provider needs; a provider knows its resolver's class.
struct ResolutionDetails {
  ResolutionDetails() = default;
  virtual ~ResolutionDetails() = default;
  ResolutionDetails(const ResolutionDetails&) = delete;
  ResolutionDetails& operator=(const ResolutionDetails&) = delete;
};

// Snapshots as the storage names them.
struct ResolvedSnapshots {
  std::optional<std::string> base_handle = {};
  std::string target_handle = {};
  // The target's size in bytes, for a plugin that reports nothing and does not name it; optional.
  std::optional<uint64_t> capacity = {};
  std::shared_ptr<const ResolutionDetails> details = {};  // may be null
};

class SnapshotResolver {
 public:
  virtual ~SnapshotResolver() = default;
  // Errors, sent to the client with their text: NOT_FOUND; INVALID_ARGUMENT for a snapshot of
  // another driver or volume; UNAVAILABLE for one that is not ready. Treat a base handle that does
  // not belong to the namespace, or to the target's volume, as one that does not exist: the caller
  // is authorised for the namespace only.
  virtual void Resolve(const SnapshotQuery& query, Done<ResolvedSnapshots> done) = 0;
};

class SecretProvider {
 public:
  virtual ~SecretProvider() = default;
  // The secrets that the storage's plugin needs for these snapshots. Errors: UNAVAILABLE, without
  // its text, if another attempt may help; FAILED_PRECONDITION, with its text, which must not quote
  // secrets, if somebody has to mend something first.
  virtual void GetSecrets(const std::string& name_space, const ResolvedSnapshots& snapshots,
                          Done<Secrets> done) = 0;
};

// All four must outlive the server. Without a secret provider, no secrets are sent.
struct AccessControl {
  Authenticator* authenticator = nullptr;
  Authorizer* authorizer = nullptr;
  SnapshotResolver* resolver = nullptr;
  SecretProvider* secrets = nullptr;
  // True: if the authorizer returns PERMISSION_DENIED, the client gets that code with a fixed text.
  // False: the client gets what it gets for an invalid token.
  bool reports_denied = false;
};

// --- Implementations over lists and files. All are thread safe and answer during the call.

// A token, the name of its bearer and the namespaces it grants; "*" grants all.
struct TokenGrant {
  Secret token = {};
  std::string name = {};
  std::vector<std::string> name_spaces = {};
};

// Authenticates and authorises by a list of tokens. The time of a lookup reveals nothing about the
// tokens in the list, of which it keeps hashes only.
class TokenAccess : public Authenticator, public Authorizer {};
std::unique_ptr<TokenAccess> MakeTokenAccess(std::vector<TokenGrant> grants);

// The same from a file, which is reread when it changes. Each line has a token, the name of its
// bearer and its namespaces, separated by commas; empty lines and lines that begin with # are
// ignored:
//
//   8f1c00e2  backup-operator  prod,staging
//   77ab0001  admin            *
//
// While the file can't be read or has an invalid line, every request is refused (UNAVAILABLE). In
// this file and those below, every line must end with a newline, including the last: a missing one
// means that the file was truncated, perhaps in the middle of a name. Write a temporary file and
// rename it, so that no partial file is read. The limit is 4 MiB. Errors: NOT_FOUND,
// PERMISSION_DENIED, INVALID_ARGUMENT that names the line.
absl::StatusOr<std::unique_ptr<TokenAccess>> MakeTokenFileAccess(const std::string& path);

// Resolves names to handles "<namespace>/<name>", for storage with a directory per namespace. A
// base handle of another namespace is NOT_FOUND.
std::unique_ptr<SnapshotResolver> MakeDirectoryResolver();

// Resolves names by a file, which is reread when it changes. Each line has a namespace, a name and
// a handle; handle `-` means that the snapshot is not ready. A base handle must belong to the
// namespace.
absl::StatusOr<std::unique_ptr<SnapshotResolver>> MakeFileResolver(const std::string& path);

// The same secrets for every snapshot.
std::unique_ptr<SecretProvider> MakeStaticSecrets(Secrets secrets);

// The same secrets for every snapshot, from KEY=VALUE lines of a file, which is reread when it
// changes.
absl::StatusOr<std::unique_ptr<SecretProvider>> MakeFileSecrets(const std::string& path);

// --- Sessions of the contract's first revision: a token that grants access to some snapshots of a
// namespace for a limited time.

struct Session {
  std::string name_space = {};
  std::vector<std::string> snapshots = {};
  std::chrono::system_clock::time_point expires = {};
};

// Finds sessions by their token. Thread safe; see cbt/rpc/access.h for `done`.
class SessionStore {
 public:
  virtual ~SessionStore() = default;

  // Errors: UNAUTHENTICATED for an unknown or expired token; UNAVAILABLE when it can't be checked
  //         now.
  virtual void Find(const Secret& token, Done<Session> done) = 0;
  // As Authenticator::AuthenticateFrom().
  virtual void FindFrom(const std::string& /*peer*/, const Secret& token, Done<Session> done) {
    Find(token, std::move(done));
  }
};

// Sessions in memory. A token is 256 random bits, written as 64 hexadecimal digits. The store keeps
// only a hash of it, and the time of a lookup does not depend on how much of a guess is right.
class MemorySessionStore : public SessionStore {
 public:
  using Clock = std::function<std::chrono::system_clock::time_point()>;

  // `max_sessions` limits unexpired sessions. `clock` is for tests.
  static std::unique_ptr<MemorySessionStore> Create(size_t max_sessions = 100'000,
                                                    Clock clock = {});

  // Opens a session and returns its token, which the store itself does not keep.
  // Errors: INVALID_ARGUMENT without a namespace or snapshots, or if it has already expired;
  //         RESOURCE_EXHAUSTED if there are too many.
  virtual absl::StatusOr<Secret> Open(Session session) = 0;
  // The same with an existing token of at least 32 characters.
  virtual absl::Status OpenWith(const Secret& token, Session session) = 0;
  // Closes a session. Does nothing for an unknown token.
  virtual void Close(const Secret& token) = 0;
  // Removes expired sessions and returns their number. Open() does this from time to time.
  virtual size_t Sweep() = 0;
  virtual size_t size() const = 0;
};

// Sessions from a file, which is reread when it changes. Each line has a token of at least 32
// characters, a namespace, snapshots separated by commas, and the time of expiry in UTC
// (2026-01-31T12:00:00Z), or `-` for never. Every line must end with a newline, see
// MakeTokenFileAccess().
// Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT that names the line.
absl::StatusOr<std::unique_ptr<SessionStore>> MakeFileSessions(const std::string& path);

// 256 bits from the system's cryptographic random source, as 64 hexadecimal digits.
Secret RandomToken();

}  // namespace cbt::rpc

#endif  // CBT_RPC_ACCESS_H_
