// restic as the judge, both ways.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "absl/time/clock.h"
#include "repository/repository.h"
#include "repository/tree.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::repository {
namespace restic_test {

using test::ValueOf;

constexpr char kPassword[] = "restic's password";

class Restic : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override {
    if (std::string(CBT_TEST_RESTIC).empty()) GTEST_SKIP() << "restic is not installed";
  }

  void Run(const std::string& arguments) {
    const std::string command = std::string("RESTIC_PASSWORD=\"") + kPassword + "\" " +
                                CBT_TEST_RESTIC + " --no-cache -q -r " + (directory_ / "r") + " " +
                                arguments;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }

  std::unique_ptr<Repository> Open(const char* password = kPassword) {
    std::unique_ptr<Repository> repository = ValueOf(Repository::Open(
        ValueOf(bucket::OpenDirectoryBucket(directory_ / "r")), "", Secret(password), true));
    EXPECT_EQ(ValueOf(repository->LoadIndex(true)).missing_packs, 0u);
    return repository;
  }

  const test::TempDir directory_;
};
INSTANTIATE_TEST_SUITE_P(Formats, Restic, testing::Values(1, 2));

std::string RandomText(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_P(Restic, ReadsWhatResticWrote) {
  const std::string content = RandomText(5'000'000, 3) + std::string(3'000'000, 'x');
  directory_.Write("volume", content);
  Run("init --repository-version " + std::to_string(GetParam()));
  Run("backup --stdin --stdin-filename volume --tag one < " + (directory_ / "volume"));
  // A second key.
  directory_.Write("second", "another password\n");
  Run("key add --new-password-file " + (directory_ / "second"));
  for (const char* password : {kPassword, "another password"}) {
    const auto repository = Open(password);
    EXPECT_EQ(repository->config().version, GetParam());
    const std::vector<Snapshot> snapshots = ValueOf(repository->Snapshots());
    ASSERT_EQ(snapshots.size(), 1u);
    EXPECT_TRUE(snapshots[0].HasTag("one"));
    EXPECT_EQ(snapshots[0].paths, std::vector<std::string>{"/volume"});
    const std::vector<uint8_t> tree =
        ValueOf(repository->LoadBlob(BlobType::kTree, snapshots[0].tree));
    std::string read;
    ASSERT_OK(DecodeTree({reinterpret_cast<const char*>(tree.data()), tree.size()}, 1000,
                         [&](TreeNode& node) -> absl::Status {
                           EXPECT_EQ(node.name, "volume");
                           EXPECT_EQ(node.size, content.size());
                           for (const Id& id : node.content) {
                             const auto blob = ValueOf(repository->LoadBlob(BlobType::kData, id));
                             read.append(blob.begin(), blob.end());
                           }
                           return absl::OkStatus();
                         }));
    EXPECT_TRUE(read == content);
  }
}

TEST_P(Restic, ReadsWhatIsWrittenHere) {
  ASSERT_EQ(mkdir((directory_ / "r").c_str(), 0700), 0);
  ASSERT_OK(Repository::Create(ValueOf(bucket::OpenDirectoryBucket(directory_ / "r")), "",
                               Secret(kPassword), GetParam()));
  const std::string content = RandomText(20'000'000, 4) + std::string(5'000'000, '\0') + "end";
  {
    const auto repository = Open();
    TreeNode file{.name = "volume", .size = content.size()};
    for (size_t at = 0; at < content.size(); at += 1 << 20) {
      const std::string part = content.substr(at, 1 << 20);
      file.content.push_back(ValueOf(repository->SaveBlob(
          BlobType::kData, {reinterpret_cast<const uint8_t*>(part.data()), part.size()})));
    }
    const std::string tree = EncodeFileTree(file, absl::Now());
    const Id id = ValueOf(repository->SaveBlob(
        BlobType::kTree, {reinterpret_cast<const uint8_t*>(tree.data()), tree.size()}));
    ASSERT_OK(repository->Flush());
    ValueOf(repository->SaveSnapshot({.time = absl::Now(),
                                      .tree = id,
                                      .paths = {"/volume"},
                                      .host = "h",
                                      .user = "u",
                                      .tags = {"cbt"}}));
    // restic's shared lock and ours don't exclude each other; its exclusive lock waits for ours.
    Run("snapshots > /dev/null");
    const std::string prune = std::string("RESTIC_PASSWORD=\"") + kPassword + "\" " +
                              CBT_TEST_RESTIC + " --no-cache -q -r " + (directory_ / "r") +
                              " prune > /dev/null 2>&1";
    EXPECT_NE(std::system(prune.c_str()), 0);
  }
  Run("check --read-data");
  Run("dump latest /volume > " + (directory_ / "dumped"));
  EXPECT_TRUE(Contents(directory_ / "dumped") == content);
  // A prune that repacks, and indexes that it rewrites, change nothing.
  Run("tag --add two");
  Run("prune --max-unused 0");
  Run("rebuild-index");
  const auto repository = Open();
  EXPECT_TRUE(ValueOf(repository->Snapshots()).at(0).HasTag("two"));
}

}  // namespace restic_test
}  // namespace cbt::repository
