// Who may ask for which snapshots: what a service of the Kubernetes contract asks before it
// answers, in this order:
//
//   Authenticator     whose token is it?
//   Authorizer        may they read snapshots of the namespace?
//   SnapshotResolver  which handles does the storage know these snapshots by?
//   SecretProvider    what does the storage want to be shown?
//
// Nothing about a snapshot is looked up before the first two have agreed, and what they refuse is
// refused with one code and one text.
//
// All are asynchronous: an implementation answers by calling `done` once, from any thread, during
// the call or later. Arguments live until then. They are called on gRPC's threads, several at a
// time, so they must not block. One that drops `done` without calling it, or throws, has failed;
// INTERNAL is the answer then.
#ifndef CBT_RPC_ACCESS_H_
#define CBT_RPC_ACCESS_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/secrets.h"

namespace cbt::rpc {

template <typename Result>
using Done = std::function<void(absl::StatusOr<Result>)>;
using DoneStatus = std::function<void(absl::Status)>;

// Who asks.
struct Principal {
  std::string name = {};
  std::vector<std::string> groups = {};
};

class Authenticator {
 public:
  virtual ~Authenticator() = default;
  // UNAVAILABLE: can't tell now. Any other error: not a token of anybody. The client never sees
  // the text.
  virtual void Authenticate(const Secret& token, Done<Principal> done) = 0;
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
  bool base_is_handle = true;            // else it is a name, as the target
  std::string target = {};
};

// Snapshots as the storage names them.
struct ResolvedSnapshots {
  std::optional<std::string> base_handle = {};
  std::string target_handle = {};
};

class SnapshotResolver {
 public:
  virtual ~SnapshotResolver() = default;
  // Errors, which go to the client with their text: NOT_FOUND; INVALID_ARGUMENT for a snapshot of
  // another driver or volume; UNAVAILABLE for one that is not ready. A base handle that does not
  // belong to the namespace, or not to the target's volume, is to be answered as one that does not
  // exist: the caller was authorised for the namespace only.
  virtual void Resolve(const SnapshotQuery& query, Done<ResolvedSnapshots> done) = 0;
};

class SecretProvider {
 public:
  virtual ~SecretProvider() = default;
  // The secrets that the storage's plugin wants for these snapshots.
  virtual void GetSecrets(const std::string& name_space, const ResolvedSnapshots& snapshots,
                          Done<Secrets> done) = 0;
};

// The four of them, which must outlive the server. Without a secret provider there are no secrets.
struct AccessControl {
  Authenticator* authenticator = nullptr;
  Authorizer* authorizer = nullptr;
  SnapshotResolver* resolver = nullptr;
  SecretProvider* secrets = nullptr;
};

// --- Implementations over lists and files. All are thread safe and answer during the call.

// A bearer of a token and the namespaces that it opens; "*" is all of them.
struct TokenGrant {
  Secret token = {};
  std::string name = {};
  std::vector<std::string> name_spaces = {};
};

// Authenticates and authorises by a list of tokens. Looking a token up takes the same time whether
// and where it is in the list.
class TokenAccess : public Authenticator, public Authorizer {};
std::unique_ptr<TokenAccess> MakeTokenAccess(std::vector<TokenGrant> grants);

// As above by a file, which is read again when it changes: a line for each token, with the name of
// its bearer and its namespaces, separated by commas; empty lines and those that begin with # are
// comments:
//
//   8f1c00e2  backup-operator  prod,staging
//   77ab0001  admin            *
//
// While the file can't be read or has a line that is none of these, everybody is refused
// (UNAVAILABLE). In this file and those below every line has an end, the last one too: without it
// the file was cut, perhaps in the middle of a name. Write them beside and rename them, so that
// they are never read half. None may have more than 4 MiB. Errors: NOT_FOUND, PERMISSION_DENIED,
// INVALID_ARGUMENT that names the line.
absl::StatusOr<std::unique_ptr<TokenAccess>> MakeTokenFileAccess(const std::string& path);

// Handles that are "<namespace>/<name>", for storage that keeps a folder for each namespace. A base
// handle of another namespace is NOT_FOUND.
std::unique_ptr<SnapshotResolver> MakeFolderResolver();

// Names by a file, which is read again when it changes: lines of namespace, name and handle; `-`
// for a snapshot that is not ready. A base handle has to be one of the namespace's.
absl::StatusOr<std::unique_ptr<SnapshotResolver>> MakeFileResolver(const std::string& path);

// The same secrets for every snapshot.
std::unique_ptr<SecretProvider> MakeStaticSecrets(Secrets secrets);

// The same secrets for every snapshot, from lines KEY=VALUE of a file that is read again when it
// changes.
absl::StatusOr<std::unique_ptr<SecretProvider>> MakeFileSecrets(const std::string& path);

}  // namespace cbt::rpc

#endif  // CBT_RPC_ACCESS_H_
