// Tokens, names and sessions, as the implementations that come with the library keep them.
#include "cbt/rpc/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cbt/rpc/session_store.h"
#include "support/temp_dir.h"

namespace cbt::test {
namespace {

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
  EXPECT_TRUE(open(seconds(10)).ok());
  EXPECT_EQ(open(seconds(10)).status().code(), StatusCode::kResourceExhausted);
  now += seconds(10);
  EXPECT_EQ(find(*first), StatusCode::kUnauthenticated);
  // What has expired makes room.
  EXPECT_TRUE(open(seconds(10)).ok());
  EXPECT_TRUE(open(seconds(10)).ok());
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

// --- files of access -----------------------------------------------------------------------------

void Write(const std::string& path, const std::string& text) {
  // As careful owners do it; also gives it another inode, whatever the clock says.
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
  ASSERT_TRUE(access.ok()) << access.status();
  EXPECT_EQ(Ask(**access, "token1", "ns2"), StatusCode::kOk);
  EXPECT_EQ(Ask(**access, "token1", "ns3"), StatusCode::kPermissionDenied);
  EXPECT_EQ(Ask(**access, "token2", "ns3"), StatusCode::kOk);
  EXPECT_EQ(Ask(**access, "token", "ns1"), StatusCode::kUnauthenticated);
  EXPECT_EQ(Ask(**access, "", "ns1"), StatusCode::kUnauthenticated);
  Write(path, "token3 alice ns1\n");
  EXPECT_EQ(Ask(**access, "token1", "ns1"), StatusCode::kUnauthenticated);
  EXPECT_EQ(Ask(**access, "token3", "ns1"), StatusCode::kOk);
  // Nobody keeps access because the list can't be read.
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

// "ns tue vol1/tuesday", cut, is "ns tue vol1/tue": another snapshot, or another's token.
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
      // A file that ends with a line's end can't be told from a whole one.
      if (size == 0 || text[size - 1] == '\n') {
        EXPECT_TRUE(status.ok()) << status;
        continue;
      }
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text.substr(0, size);
      EXPECT_THAT(status.ToString(), HasSubstr("the last line has no end: is the file cut?"));
      EXPECT_THAT(status.ToString(), HasSubstr(absl::StrCat(path, ": line ")));
      EXPECT_THAT(status.ToString(), Not(HasSubstr("canary")));
    }
  }
  // One that is cut while it is in use lets nobody in.
  Write(path, "token alice ns1\n");
  const auto access = rpc::MakeTokenFileAccess(path);
  ASSERT_TRUE(access.ok());
  EXPECT_EQ(Ask(**access, "token", "ns1"), StatusCode::kOk);
  Write(path, "token alice ns1");
  EXPECT_EQ(Ask(**access, "token", "ns1"), StatusCode::kUnavailable);
}

TEST(AccessFiles, SnapshotsAreFoundByNameAndByHandle) {
  const TempDir dir;
  const std::string path = dir / "snapshots";
  Write(path, "ns monday vol1/monday\nns tuesday -\nother monday vol2/monday\n");
  const auto resolver = rpc::MakeFileResolver(path);
  ASSERT_TRUE(resolver.ok());
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

}  // namespace
}  // namespace cbt::test
