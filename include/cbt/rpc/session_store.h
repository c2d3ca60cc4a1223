// Sessions of the first revision of the contract: a token that opens some snapshots of a namespace
// for some time.
#ifndef CBT_RPC_SESSION_STORE_H_
#define CBT_RPC_SESSION_STORE_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
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

  // Errors: UNAUTHENTICATED for a token that is not known or has expired; UNAVAILABLE when it
  //         can't be told now.
  virtual void Find(const Secret& token, Done<Session> done) = 0;
};

// Sessions in memory. A token is 256 random bits, written as 64 hexadecimal digits; the store keeps
// only a hash of it, and finding one takes no time that depends on how much of a guess is right.
class MemorySessionStore : public SessionStore {
 public:
  using Clock = std::function<std::chrono::system_clock::time_point()>;

  // `max_sessions`: that are not expired. `clock`: for tests.
  static std::unique_ptr<MemorySessionStore> Create(size_t max_sessions = 100'000,
                                                    Clock clock = {});

  // Opens a session; its token is known to the caller alone.
  // Errors: INVALID_ARGUMENT without a namespace or snapshots, or expired already;
  //         RESOURCE_EXHAUSTED when there are too many.
  virtual absl::StatusOr<Secret> Open(Session session) = 0;
  // The same with a token that exists already, of at least 32 characters.
  virtual absl::Status OpenWith(const Secret& token, Session session) = 0;
  // Closes a session; a token that is not known is fine.
  virtual void Close(const Secret& token) = 0;
  // Drops expired sessions; Open() does it from time to time. Returns how many.
  virtual size_t Sweep() = 0;
  virtual size_t size() const = 0;
};

// Sessions of a file that is read again when it changes: lines of a token of at least 32
// characters, a namespace, snapshots separated by commas, and when it expires, in UTC
// (2026-01-31T12:00:00Z), or `-` for never. Every line has an end, see MakeTokenFileAccess().
// Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT that names the line.
absl::StatusOr<std::unique_ptr<SessionStore>> MakeFileSessions(const std::string& path);

// 256 random bits as 64 hexadecimal digits, from the system's source for keys.
Secret RandomToken();

}  // namespace cbt::rpc

#endif  // CBT_RPC_SESSION_STORE_H_
