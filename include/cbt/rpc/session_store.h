// Sessions of the contract's first revision: a token that grants access to some snapshots of a
// namespace for a limited time.
#ifndef CBT_RPC_SESSION_STORE_H_
#define CBT_RPC_SESSION_STORE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/rpc/access.h"
#include "cbt/secrets.h"

namespace cbt::rpc {

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

#endif  // CBT_RPC_SESSION_STORE_H_
