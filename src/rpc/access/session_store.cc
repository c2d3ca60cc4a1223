#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/lines.h"
#include "base/watched_file.h"
#include "base/wipe.h"
#include "cbt/rpc/access.h"
#include "rpc/access/token_hash.h"

namespace cbt::rpc {
namespace {

constexpr size_t kTokenBytes = 32;
constexpr size_t kMinTokenCharacters = 32;

class Store final : public MemorySessionStore {
 public:
  Store(size_t max_sessions, Clock clock) : max_sessions_(max_sessions), clock_(std::move(clock)) {}

  absl::StatusOr<Secret> Open(Session session) override {
    Secret token = RandomToken();
    if (absl::Status status = OpenWith(token, std::move(session)); !status.ok()) return status;
    return token;
  }

  absl::Status OpenWith(const Secret& token, Session session) override {
    if (token.Reveal().size() < kMinTokenCharacters) {
      return absl::InvalidArgumentError(
          absl::StrCat("session: the token has fewer than ", kMinTokenCharacters, " characters"));
    }
    if (session.name_space.empty()) {
      return absl::InvalidArgumentError("session: the namespace is missing");
    }
    if (session.snapshots.empty()) {
      return absl::InvalidArgumentError("session: the list of snapshots is empty");
    }
    if (session.expires <= clock_()) {
      return absl::InvalidArgumentError("session: already expired");
    }
    std::lock_guard lock(mutex_);
    // From time to time, and when the store is full.
    if (sessions_.size() >= next_sweep_ || sessions_.size() >= max_sessions_) {
      SweepLocked();
      next_sweep_ = std::max<size_t>(1024, 2 * sessions_.size());
    }
    if (sessions_.size() >= max_sessions_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("session: all ", max_sessions_, " sessions are in use"));
    }
    sessions_[HashOf(token)] = std::move(session);
    return absl::OkStatus();
  }

  void Find(const Secret& token, Done<Session> done) override {
    const TokenHash hash = HashOf(token);
    absl::StatusOr<Session> answer = absl::UnauthenticatedError("no such session");
    {
      std::lock_guard lock(mutex_);
      const auto found = sessions_.find(hash);
      if (found != sessions_.end()) {
        if (found->second.expires > clock_()) {
          answer = found->second;
        } else {
          sessions_.erase(found);
        }
      }
    }
    done(std::move(answer));
  }

  void Close(const Secret& token) override {
    const TokenHash hash = HashOf(token);
    std::lock_guard lock(mutex_);
    sessions_.erase(hash);
  }

  size_t Sweep() override {
    std::lock_guard lock(mutex_);
    return SweepLocked();
  }

  size_t size() const override {
    std::lock_guard lock(mutex_);
    return sessions_.size();
  }

 private:
  size_t SweepLocked() {
    const std::chrono::system_clock::time_point now = clock_();
    return std::erase_if(sessions_,
                         [now](const auto& entry) { return entry.second.expires <= now; });
  }

  const size_t max_sessions_;
  const Clock clock_;
  mutable std::mutex mutex_;
  std::map<TokenHash, Session> sessions_;
  size_t next_sweep_ = 1024;
};

// Several lines may have one token.
using FileSessions = std::multimap<TokenHash, Session>;

absl::StatusOr<FileSessions> ParseSessions(const std::string& text) {
  FileSessions sessions;
  absl::Status status = ForEachLine(text, [&](size_t number, std::string_view line) {
    std::vector<std::string> words = Words(line, kBlanks);
    const Wiper wiper(words[0]);  // every line has a word
    absl::Time expires = absl::InfiniteFuture();
    std::string ignored;
    if (words.size() != 4 || words[0].size() < kMinTokenCharacters ||
        (words[3] != "-" && !absl::ParseTime(absl::RFC3339_full, words[3], &expires, &ignored))) {
      return BadLine(number, "TOKEN NAMESPACE SNAPSHOT[,SNAPSHOT...] EXPIRES");
    }
    sessions.emplace(HashOf(Secret(words[0])), Session{.name_space = words[1],
                                                       .snapshots = Words(words[2], ","),
                                                       .expires = absl::ToChronoTime(expires)});
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return sessions;
}

class FileStore final : public SessionStore {
 public:
  explicit FileStore(const std::string& path) : file_(path, ParseSessions) {}
  absl::Status Check() { return file_.Get().status(); }

  void Find(const Secret& token, Done<Session> done) override {
    const auto sessions = file_.Get();
    if (!sessions.ok()) return done(absl::UnavailableError("the session file can't be used"));
    absl::StatusOr<Session> answer = absl::UnauthenticatedError("no such session");
    const auto now = std::chrono::system_clock::now();
    // The last line that has not expired counts.
    const auto [begin, end] = (*sessions)->equal_range(HashOf(token));
    for (auto entry = begin; entry != end; ++entry) {
      if (entry->second.expires > now) answer = entry->second;
    }
    done(std::move(answer));
  }

 private:
  WatchedFile<FileSessions> file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SessionStore>> MakeFileSessions(const std::string& path) {
  auto store = std::make_unique<FileStore>(path);
  if (absl::Status status = store->Check(); !status.ok()) return status;
  return store;
}

std::unique_ptr<MemorySessionStore> MemorySessionStore::Create(size_t max_sessions, Clock clock) {
  if (!clock) clock = [] { return std::chrono::system_clock::now(); };
  return std::make_unique<Store>(max_sessions, std::move(clock));
}

Secret RandomToken() {
  std::array<unsigned char, kTokenBytes> bytes;
  // Fails only if the system has no randomness at all; a guessable token is worse than a crash.
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) std::abort();
  std::string text = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  Secret token(text);
  OPENSSL_cleanse(bytes.data(), bytes.size());
  OPENSSL_cleanse(text.data(), text.size());
  return token;
}

}  // namespace cbt::rpc
