// Tokens, names and sessions in the library's own implementations.
#include "cbt/rpc/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {
namespace access_test {

using absl::StatusCode;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

TEST(Sessions, OpenWhatTheyWereOpenedForAsLongAsTheyLast) {
  auto now = std::chrono::system_clock::now();
  const auto store = rpc::MemorySessionStore::Create(3, [&now] { return now; });
  const auto find = [&store](const Secret& token) {
    StatusCode code = StatusCode::kUnknown;
    store->Find(token,
                [&code](absl::StatusOr<rpc::Session> session) { code = session.status().code(); });
    return code;
  };
  const auto open = [&](seconds life) {
    return store->Open({.name_space = "n", .snapshots = {"s"}, .expires = now + life});
  };
  auto first = open(seconds(10));
  auto second = open(seconds(100));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->Reveal().size(), 64u);
  EXPECT_FALSE(first->Equals(second->Reveal()));
  EXPECT_EQ(find(*first), StatusCode::kOk);
  EXPECT_EQ(find(Secret(first->Reveal().substr(1))), StatusCode::kUnauthenticated);
  EXPECT_EQ(find(Secret()), StatusCode::kUnauthenticated);
  EXPECT_OK(open(seconds(10)));
  EXPECT_EQ(open(seconds(10)).status().code(), StatusCode::kResourceExhausted);
  now += seconds(10);
  EXPECT_EQ(find(*first), StatusCode::kUnauthenticated);
  // Expired sessions make room.
  EXPECT_OK(open(seconds(10)));
  EXPECT_OK(open(seconds(10)));
  EXPECT_EQ(store->size(), 3u);
  now += seconds(50);
  EXPECT_EQ(store->Sweep(), 2u);
  EXPECT_EQ(find(*second), StatusCode::kOk);
  store->Close(*second);
  EXPECT_EQ(find(*second), StatusCode::kUnauthenticated);
  EXPECT_EQ(open(seconds(0)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store
                ->OpenWith(Secret("short"),
                           {.name_space = "n", .snapshots = {"s"}, .expires = now + seconds(1)})
                .code(),
            StatusCode::kInvalidArgument);
}

TEST(Sessions, ThatCanOpenNothingAreRefused) {
  const auto store = rpc::MemorySessionStore::Create();
  const auto later = std::chrono::system_clock::now() + seconds(100);
  const auto refused = [&store](rpc::Session session) {
    const absl::Status status = store->Open(std::move(session)).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refused({.name_space = "", .snapshots = {"s"}, .expires = later}),
              HasSubstr("the namespace is missing"));
  EXPECT_THAT(refused({.name_space = "n", .snapshots = {}, .expires = later}),
              HasSubstr("the list of snapshots is empty"));
  EXPECT_THAT(refused({.name_space = "n", .snapshots = {"s"}, .expires = {}}),
              HasSubstr("already expired"));
  EXPECT_EQ(store->size(), 0u);
}

// No one has to sweep: a store of expired sessions must not grow forever.
TEST(Sessions, ThatHaveExpiredAreSweptOnTheWay) {
  auto now = std::chrono::system_clock::now();
  const auto store = rpc::MemorySessionStore::Create(100'000, [&now] { return now; });
  size_t most = 0;
  for (int i = 0; i < 5000; ++i) {
    now += seconds(1);
    ASSERT_OK(store->Open({.name_space = "n", .snapshots = {"s"}, .expires = now + seconds(100)}));
    most = std::max(most, store->size());
  }
  EXPECT_LE(most, 1024u);
  EXPECT_GE(store->size(), 100u);
}

// --- access files --------------------------------------------------------------------------------

void Write(const std::string& path, const std::string& text) {
  // Replaced by a rename, as careful owners do. The new inode is noticed whatever the clock says.
  std::ofstream(path + ".new") << text;
  std::filesystem::rename(path + ".new", path);
}

StatusCode Ask(rpc::TokenAccess& access, const std::string& token, const std::string& name_space) {
  StatusCode code = StatusCode::kUnknown;
  access.Authenticate(Secret(token), [&](absl::StatusOr<rpc::Principal> who) {
    if (!who.ok()) {
      code = who.status().code();
      return;
    }
    access.Authorize(*who, name_space, [&](absl::Status status) { code = status.code(); });
  });
  return code;
}

TEST(AccessFiles, TokensAreReadAgainWhenTheyChange) {
  const TempDir dir;
  const std::string path = dir / "tokens";
  EXPECT_EQ(rpc::MakeTokenFileAccess(path).status().code(), StatusCode::kNotFound);
  Write(path, "# tokens\n\ntoken1 alice ns1,ns2\r\n  token2\tbob  *\n");
  const auto access = rpc::MakeTokenFileAccess(path);
  ASSERT_OK(access);
  EXPECT_EQ(Ask(**access, "token1", "ns2"), StatusCode::kOk);
  EXPECT_EQ(Ask(**access, "token1", "ns3"), StatusCode::kPermissionDenied);
  EXPECT_EQ(Ask(**access, "token2", "ns3"), StatusCode::kOk);
  EXPECT_EQ(Ask(**access, "token", "ns1"), StatusCode::kUnauthenticated);
  EXPECT_EQ(Ask(**access, "", "ns1"), StatusCode::kUnauthenticated);
  Write(path, "token3 alice ns1\n");
  EXPECT_EQ(Ask(**access, "token1", "ns1"), StatusCode::kUnauthenticated);
  EXPECT_EQ(Ask(**access, "token3", "ns1"), StatusCode::kOk);
  // An unreadable list must not preserve access.
  Write(path, "token3 alice\n");
  EXPECT_EQ(Ask(**access, "token3", "ns1"), StatusCode::kUnavailable);
  std::filesystem::remove(path);
  EXPECT_EQ(Ask(**access, "token3", "ns1"), StatusCode::kUnavailable);
  EXPECT_THAT(rpc::MakeTokenFileAccess(path).status().ToString(), Not(HasSubstr("token3")));
}

TEST(AccessFiles, BadLinesAreNamedAndNotQuoted) {
  const TempDir dir;
  const std::string path = dir / "tokens";
  Write(path, "good alice ns\nsecret-canary\n");
  const absl::Status status = rpc::MakeTokenFileAccess(path).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.ToString(), HasSubstr("line 2"));
  EXPECT_THAT(status.ToString(), Not(HasSubstr("canary")));
}

// "ns tue vol1/tuesday", cut, is "ns tue vol1/tue": another snapshot, or another token.
TEST(AccessFiles, ALineThatWasCutIsRefused) {
  const TempDir dir;
  const std::string path = dir / "file";
  const auto tokens = [&] { return rpc::MakeTokenFileAccess(path).status(); };
  const auto snapshots = [&] { return rpc::MakeFileResolver(path).status(); };
  const auto secrets = [&] { return rpc::MakeFileSecrets(path).status(); };
  const auto sessions = [&] { return rpc::MakeFileSessions(path).status(); };
  const std::pair<std::function<absl::Status()>, std::string> files[] = {
      {tokens, "canary alice ns1\ncanary2 bob ns1,ns2\n"},
      {snapshots, "ns mon vol1/canary\nns tue vol1/canary2\n"},
      {secrets, "user=canary\npassword=canary2\n"},
      {sessions, "canary-89012345678901234567890123456789 ns mon 2036-01-31T12:00:00Z\n"}};
  for (const auto& [read, text] : files) {
    for (size_t size = 0; size <= text.size(); ++size) {
      Write(path, text.substr(0, size));
      const absl::Status status = read();
      // A file cut at the end of a line looks complete.
      if (size == 0 || text[size - 1] == '\n') {
        EXPECT_OK(status);
        continue;
      }
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text.substr(0, size);
      EXPECT_THAT(status.ToString(),
                  HasSubstr("the last line has no newline: is the file truncated?"));
      EXPECT_THAT(status.ToString(), HasSubstr(absl::StrCat(path, ": line ")));
      EXPECT_THAT(status.ToString(), Not(HasSubstr("canary")));
    }
  }
  // A file that is cut while in use admits no one.
  Write(path, "token alice ns1\n");
  const auto access = rpc::MakeTokenFileAccess(path);
  ASSERT_OK(access);
  EXPECT_EQ(Ask(**access, "token", "ns1"), StatusCode::kOk);
  Write(path, "token alice ns1");
  EXPECT_EQ(Ask(**access, "token", "ns1"), StatusCode::kUnavailable);
}

TEST(AccessFiles, SnapshotsAreFoundByNameAndByHandle) {
  const TempDir dir;
  const std::string path = dir / "snapshots";
  Write(path, "ns monday vol1/monday\nns tuesday -\nother monday vol2/monday\n");
  const auto resolver = rpc::MakeFileResolver(path);
  ASSERT_OK(resolver);
  const auto resolve = [&](const rpc::SnapshotQuery& query) {
    std::string text;
    (*resolver)->Resolve(query, [&](absl::StatusOr<rpc::ResolvedSnapshots> found) {
      text = found.ok() ? absl::StrCat(found->base_handle.value_or(""), ">", found->target_handle)
                        : absl::StatusCodeToString(found.status().code());
    });
    return text;
  };
  EXPECT_EQ(resolve({.name_space = "ns", .target = "monday"}), ">vol1/monday");
  EXPECT_EQ(resolve({.name_space = "ns", .target = "tuesday"}), "UNAVAILABLE");
  EXPECT_EQ(resolve({.name_space = "ns", .target = "sunday"}), "NOT_FOUND");
  EXPECT_EQ(resolve({.name_space = "ns", .base = "vol1/monday", .target = "monday"}),
            "vol1/monday>vol1/monday");
  EXPECT_EQ(resolve({.name_space = "ns", .base = "vol2/monday", .target = "monday"}), "NOT_FOUND");
  EXPECT_EQ(
      resolve({.name_space = "ns", .base = "monday", .base_is_handle = false, .target = "monday"}),
      "vol1/monday>vol1/monday");
}

// An empty token in a list must not admit clients that show none.
TEST(TokenLists, AnEmptyTokenIsNobodys) {
  std::vector<rpc::TokenGrant> grants(2);
  grants[0] = {.token = Secret(), .name = "empty", .name_spaces = {"*"}};
  grants[1] = {.token = Secret("token"), .name = "somebody", .name_spaces = {"ns"}};
  const auto access = rpc::MakeTokenAccess(std::move(grants));
  EXPECT_EQ(Ask(*access, "", "ns"), StatusCode::kUnauthenticated);
  EXPECT_EQ(Ask(*access, "token", "ns"), StatusCode::kOk);
  EXPECT_EQ(Ask(*access, "token", "other"), StatusCode::kPermissionDenied);
}

TEST(TokenLists, TheLaterOfTwoLinesWithOneTokenCounts) {
  std::vector<rpc::TokenGrant> grants(2);
  grants[0] = {.token = Secret("token"), .name = "first", .name_spaces = {"ns"}};
  grants[1] = {.token = Secret("token"), .name = "second", .name_spaces = {"other"}};
  const auto access = rpc::MakeTokenAccess(std::move(grants));
  EXPECT_EQ(Ask(*access, "token", "other"), StatusCode::kOk);
  EXPECT_EQ(Ask(*access, "token", "ns"), StatusCode::kPermissionDenied);
}

TEST(SessionFiles, TheLastLineOfATokenThatHasNotExpiredCounts) {
  const TempDir dir;
  const std::string token = "token-678901234567890123456789012";
  dir.Write("file", absl::StrCat(token, " one vol/a -\n", token, " two vol/b -\n", token,
                                 " three vol/c 2020-01-01T00:00:00Z\n"));
  ASSERT_OK_AND_ASSIGN(const auto sessions, rpc::MakeFileSessions(dir / "file"));
  absl::StatusOr<rpc::Session> answer = absl::UnknownError("no answer");
  sessions->Find(Secret(token),
                 [&answer](absl::StatusOr<rpc::Session> found) { answer = std::move(found); });
  ASSERT_OK(answer);
  EXPECT_EQ(answer->name_space, "two");
}

absl::StatusOr<rpc::ResolvedSnapshots> Resolve(rpc::SnapshotResolver& resolver,
                                               const rpc::SnapshotQuery& query) {
  absl::StatusOr<rpc::ResolvedSnapshots> answer = absl::UnknownError("no answer");
  resolver.Resolve(query, [&answer](absl::StatusOr<rpc::ResolvedSnapshots> found) {
    answer = std::move(found);
  });
  return answer;
}

// A namespace is one directory; a name that is a path must not escape it.
TEST(Directories, HoldTheirNamespaceAndNoOther) {
  const auto directories = rpc::MakeDirectoryResolver();
  const auto found = [&directories](const std::string& name_space, const std::string& target) {
    return Resolve(*directories, {.name_space = name_space, .target = target});
  };
  ASSERT_OK(found("ns", "a"));
  EXPECT_EQ(found("ns", "a")->target_handle, "ns/a");
  EXPECT_EQ(found("ns", "..a..")->target_handle, "ns/..a..");
  for (const char* name_space : {"ns/other", "..", ".", "../ns", "ns/..", "/"}) {
    EXPECT_EQ(found(name_space, "a").status().code(), StatusCode::kNotFound) << name_space;
  }
  for (const char* target : {"..", "../other/a", "./a", "a/..", "a/../../other/a"}) {
    EXPECT_EQ(found("ns", target).status().code(), StatusCode::kNotFound) << target;
  }
}

// Any bad line is reported, and the file then grants nothing.
TEST(AccessFiles, LinesOfAnotherFormAreRefused) {
  const TempDir dir;
  const std::string path = dir / "file";
  const auto snapshots = [&] { return rpc::MakeFileResolver(path).status(); };
  const auto secrets = [&] { return rpc::MakeFileSecrets(path).status(); };
  const auto sessions = [&] { return rpc::MakeFileSessions(path).status(); };
  const std::string token = "canary-8901234567890123456789012";
  const std::pair<std::function<absl::Status()>, std::vector<std::string>> files[] = {
      {snapshots, {"ns canary", "ns canary vol1 more", "ns monday vol2"}},
      {secrets, {"canary", "=canary"}},
      {sessions,
       {token + " ns mon", token + " ns mon - more", token.substr(1) + " ns mon -",
        token + " ns mon tomorrow", token + " ns mon 2036-01-31", token + " ns mon 1"}}};
  const std::string good[] = {"ns monday vol1\n", "key=value\n", token + "x ns mon -\n"};
  for (size_t i = 0; i < std::size(files); ++i) {
    const auto& [read, lines] = files[i];
    Write(path, good[i]);
    EXPECT_OK(read());
    for (const std::string& line : lines) {
      Write(path, absl::StrCat(good[i], "# a comment\n", line, "\n"));
      const absl::Status status = read();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << line;
      EXPECT_THAT(status.ToString(), HasSubstr(absl::StrCat(path, ": line 3")));
      EXPECT_THAT(status.ToString(), Not(HasSubstr("canary")));
    }
  }
}

TEST(AccessFiles, SecretsAreWhatStandsBehindTheFirstSign) {
  const TempDir dir;
  const std::string path = dir / "secrets";
  Write(path, "user=someone\r\npassword=a=b=\nempty=\n");
  const auto provider = rpc::MakeFileSecrets(path);
  ASSERT_OK(provider);
  absl::StatusOr<Secrets> secrets = absl::UnknownError("no answer");
  const auto ask = [&] {
    (*provider)->GetSecrets(
        "ns", {}, [&secrets](absl::StatusOr<Secrets> found) { secrets = std::move(found); });
  };
  ask();
  ASSERT_OK(secrets);
  EXPECT_EQ(secrets->Get("user"), "someone");
  EXPECT_EQ(secrets->Get("password"), "a=b=");
  EXPECT_EQ(secrets->Get("empty"), "");
  EXPECT_EQ(secrets->size(), 3u);
  // If today's file cannot be read, yesterday's secrets are not used.
  std::filesystem::remove(path);
  ask();
  EXPECT_EQ(secrets.status(), absl::UnavailableError("the access file can't be used"));
}

TEST(AccessFiles, NamesThatCantBeReadAreNotTheOldOnes) {
  const TempDir dir;
  const std::string path = dir / "snapshots";
  Write(path, "ns monday vol1/monday\n");
  const auto resolver = rpc::MakeFileResolver(path);
  ASSERT_OK(resolver);
  const rpc::SnapshotQuery query = {.name_space = "ns", .target = "monday"};
  EXPECT_EQ(Resolve(**resolver, query)->target_handle, "vol1/monday");
  Write(path, "ns monday vol1/monday");
  EXPECT_EQ(Resolve(**resolver, query).status(),
            absl::UnavailableError("the access file can't be used"));
  Write(path, "ns monday vol2/monday\n");
  EXPECT_EQ(Resolve(**resolver, query)->target_handle, "vol2/monday");
}

TEST(SessionFiles, OpenUntilTheyExpireAndAsLongAsTheyAreWritten) {
  const TempDir dir;
  const std::string path = dir / "sessions";
  const std::string token = "0123456789abcdef0123456789abcdef";
  const std::string over = "fedcba9876543210fedcba9876543210";
  Write(path, absl::StrCat(token, " ns mon,tue -\n", over, " ns mon 2001-01-31T12:00:00Z\n"));
  const auto store = rpc::MakeFileSessions(path);
  ASSERT_OK(store);
  const auto find = [&store](const std::string& shown) {
    absl::StatusOr<rpc::Session> found = absl::UnknownError("no answer");
    (*store)->Find(Secret(shown),
                   [&found](absl::StatusOr<rpc::Session> session) { found = std::move(session); });
    return found;
  };
  ASSERT_OK(find(token));
  EXPECT_EQ(find(token)->name_space, "ns");
  EXPECT_THAT(find(token)->snapshots, testing::ElementsAre("mon", "tue"));
  EXPECT_EQ(find(over).status().code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(find("").status().code(), StatusCode::kUnauthenticated);
  // An expired line for the same token revokes nothing, wherever it is.
  Write(path, absl::StrCat(token, " ns mon 2001-01-31T12:00:00Z\n", token, " ns tue -\n", token,
                           " ns wed 2001-01-31T12:00:00Z\n"));
  ASSERT_OK(find(token));
  EXPECT_THAT(find(token)->snapshots, testing::ElementsAre("tue"));
  std::filesystem::remove(path);
  EXPECT_EQ(find(token).status(), absl::UnavailableError("the session file can't be used"));
}

}  // namespace access_test
}  // namespace cbt::test
