#include "cbt/rpc/access.h"

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/lines.h"
#include "base/watched_file.h"
#include "base/wipe.h"
#include "rpc/access/token_hash.h"

namespace cbt::rpc {
namespace {

// Does not reveal to clients why the file can't be used.
absl::Status FileTrouble() { return absl::UnavailableError("the access file can't be used"); }

using Grants = std::map<TokenHash, Principal>;

// Of two with the same token the later one counts; an empty one counts never.
void Add(TokenGrant grant, Grants& grants) {
  if (grant.token.empty()) return;
  grants.insert_or_assign(HashOf(grant.token), Principal{.name = std::move(grant.name),
                                                         .groups = std::move(grant.name_spaces)});
}

absl::StatusOr<Grants> ParseGrants(const std::string& text) {
  Grants grants;
  absl::Status status = ForEachLine(text, [&](size_t number, std::string_view line) {
    std::vector<std::string> words = Words(line, kBlanks);
    const Wiper wiper(words[0]);  // every line has a word
    if (words.size() != 3) return BadLine(number, "TOKEN NAME NAMESPACE[,NAMESPACE...]");
    Add({.token = Secret(words[0]), .name = words[1], .name_spaces = Words(words[2], ",")}, grants);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return grants;
}

absl::StatusOr<Principal> FindPrincipal(const Grants& grants, const Secret& token) {
  const auto found = grants.find(HashOf(token));
  if (found == grants.end()) return absl::UnauthenticatedError("unknown token");
  return found->second;
}

// The groups are the namespaces: the list that authenticated the caller also authorises it.
absl::Status Allows(const Principal& who, const std::string& name_space) {
  for (const std::string& group : who.groups) {
    if (group == "*" || group == name_space) return absl::OkStatus();
  }
  return absl::PermissionDeniedError("the namespace is not granted");
}

class ListAccess final : public TokenAccess {
 public:
  explicit ListAccess(std::vector<TokenGrant> grants) {
    for (TokenGrant& grant : grants) Add(std::move(grant), grants_);
  }
  void Authenticate(const Secret& token, Done<Principal> done) override {
    done(FindPrincipal(grants_, token));
  }
  void Authorize(const Principal& who, const std::string& name_space, DoneStatus done) override {
    done(Allows(who, name_space));
  }

 private:
  Grants grants_;
};

class FileAccess final : public TokenAccess {
 public:
  explicit FileAccess(const std::string& path) : file_(path, ParseGrants) {}
  absl::Status Check() { return file_.Get().status(); }

  void Authenticate(const Secret& token, Done<Principal> done) override {
    const auto grants = file_.Get();
    done(grants.ok() ? FindPrincipal(**grants, token) : FileTrouble());
  }
  void Authorize(const Principal& who, const std::string& name_space, DoneStatus done) override {
    done(Allows(who, name_space));
  }

 private:
  WatchedFile<Grants> file_;
};

class DirectoryResolver final : public SnapshotResolver {
 public:
  void Resolve(const SnapshotQuery& query, Done<ResolvedSnapshots> done) override {
    const std::string directory = query.name_space + "/";
    ResolvedSnapshots snapshots;
    snapshots.target_handle = directory + query.target;
    if (query.base.has_value()) {
      snapshots.base_handle = query.base_is_handle ? *query.base : directory + *query.base;
    }
    if (query.name_space.find('/') != std::string::npos || LeavesDirectory(query.name_space) ||
        LeavesDirectory(snapshots.target_handle)) {
      return done(absl::NotFoundError("the snapshot was not found"));
    }
    if (query.base.has_value() && (!snapshots.base_handle->starts_with(directory) ||
                                   LeavesDirectory(*snapshots.base_handle))) {
      return done(absl::NotFoundError("the base snapshot was not found"));
    }
    done(std::move(snapshots));
  }

 private:
  // "a/../b" would name another namespace's directory.
  static bool LeavesDirectory(std::string_view path) {
    for (const std::string& part : Words(path, "/")) {
      if (part == "." || part == "..") return true;
    }
    return false;
  }
};

struct NamedSnapshots {
  // Namespace and name to handle; empty while not ready.
  std::map<std::pair<std::string, std::string>, std::string> handles;
};

absl::StatusOr<NamedSnapshots> ParseSnapshots(const std::string& text) {
  NamedSnapshots snapshots;
  absl::Status status = ForEachLine(text, [&](size_t number, std::string_view line) {
    const std::vector<std::string> words = Words(line, kBlanks);
    if (words.size() != 3) return BadLine(number, "NAMESPACE NAME HANDLE");
    const auto [entry, fresh] = snapshots.handles.emplace(
        std::pair(words[0], words[1]), words[2] == "-" ? std::string() : words[2]);
    return fresh ? absl::OkStatus() : BadLine(number, "each name once in its namespace");
  });
  if (!status.ok()) return status;
  return snapshots;
}

class FileResolver final : public SnapshotResolver {
 public:
  explicit FileResolver(const std::string& path) : file_(path, ParseSnapshots) {}
  absl::Status Check() { return file_.Get().status(); }

  void Resolve(const SnapshotQuery& query, Done<ResolvedSnapshots> done) override {
    const auto names = file_.Get();
    if (!names.ok()) return done(FileTrouble());
    ResolvedSnapshots snapshots;
    absl::StatusOr<std::string> target =
        ByName(**names, query.name_space, query.target, "snapshot");
    if (!target.ok()) return done(target.status());
    snapshots.target_handle = *std::move(target);
    if (query.base.has_value()) {
      absl::StatusOr<std::string> base =
          query.base_is_handle ? ByHandle(**names, query.name_space, *query.base)
                               : ByName(**names, query.name_space, *query.base, "base snapshot");
      if (!base.ok()) return done(base.status());
      snapshots.base_handle = *std::move(base);
    }
    done(std::move(snapshots));
  }

 private:
  static absl::StatusOr<std::string> ByName(const NamedSnapshots& names,
                                            const std::string& name_space, const std::string& name,
                                            const char* what) {
    const auto found = names.handles.find({name_space, name});
    if (found == names.handles.end()) {
      return absl::NotFoundError(absl::StrCat("the ", what, " was not found"));
    }
    if (found->second.empty()) {
      return absl::UnavailableError(absl::StrCat("the ", what, " is not ready"));
    }
    return found->second;
  }

  static absl::StatusOr<std::string> ByHandle(const NamedSnapshots& names,
                                              const std::string& name_space,
                                              const std::string& handle) {
    for (const auto& [key, value] : names.handles) {
      if (key.first == name_space && value == handle) return handle;
    }
    return absl::NotFoundError("the base snapshot was not found");
  }

  WatchedFile<NamedSnapshots> file_;
};

class StaticSecrets final : public SecretProvider {
 public:
  explicit StaticSecrets(Secrets secrets) : secrets_(std::move(secrets)) {}
  void GetSecrets(const std::string&, const ResolvedSnapshots&, Done<Secrets> done) override {
    done(secrets_.Copy());
  }

 private:
  const Secrets secrets_;
};

absl::StatusOr<Secrets> ParseSecrets(const std::string& text) {
  Secrets secrets;
  absl::Status status = ForEachLine(text, [&](size_t number, std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0) return BadLine(number, "KEY=VALUE");
    secrets.Set(std::string(line.substr(0, equals)), line.substr(equals + 1));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return secrets;
}

class FileSecrets final : public SecretProvider {
 public:
  explicit FileSecrets(const std::string& path) : file_(path, ParseSecrets) {}
  absl::Status Check() { return file_.Get().status(); }
  void GetSecrets(const std::string&, const ResolvedSnapshots&, Done<Secrets> done) override {
    const auto secrets = file_.Get();
    if (!secrets.ok()) return done(FileTrouble());
    done((*secrets)->Copy());
  }

 private:
  WatchedFile<Secrets> file_;
};

// The file must be valid at the start.
template <typename Result, typename Implementation>
absl::StatusOr<std::unique_ptr<Result>> Checked(const std::string& path) {
  auto made = std::make_unique<Implementation>(path);
  if (absl::Status status = made->Check(); !status.ok()) return status;
  return made;
}

}  // namespace

std::unique_ptr<TokenAccess> MakeTokenAccess(std::vector<TokenGrant> grants) {
  return std::make_unique<ListAccess>(std::move(grants));
}

absl::StatusOr<std::unique_ptr<TokenAccess>> MakeTokenFileAccess(const std::string& path) {
  return Checked<TokenAccess, FileAccess>(path);
}

std::unique_ptr<SnapshotResolver> MakeDirectoryResolver() {
  return std::make_unique<DirectoryResolver>();
}

absl::StatusOr<std::unique_ptr<SnapshotResolver>> MakeFileResolver(const std::string& path) {
  return Checked<SnapshotResolver, FileResolver>(path);
}

std::unique_ptr<SecretProvider> MakeStaticSecrets(Secrets secrets) {
  return std::make_unique<StaticSecrets>(std::move(secrets));
}

absl::StatusOr<std::unique_ptr<SecretProvider>> MakeFileSecrets(const std::string& path) {
  return Checked<SecretProvider, FileSecrets>(path);
}

}  // namespace cbt::rpc
