// Every fault of S3's double at every request of a backup, a restore and a comparison: the result is
// right, or an error, and the repository stays sound.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <random>

#include "tests/backup/fixture.h"
#include "tests/bucket/s3_double.h"
#include "tests/support/figures.h"

namespace cbt::backup {
namespace faults_test {

using namespace test_support;  // NOLINT(google-build-using-namespace)
using bucket::test_support::Double;
using bucket::test_support::kSecret;
using bucket::test_support::kToken;
using test::ValueOf;
using namespace std::chrono_literals;

struct Kind {
  const char* name;
  bool passes;  // once: the next attempt has the answer
};
constexpr std::array<Kind, 17> kKinds = {{{"slowdown", true},
                                          {"retryafter", true},
                                          {"internal", true},
                                          {"reset", true},
                                          {"lost", true},
                                          {"cut", true},
                                          {"stall", true},
                                          {"hold", true},
                                          {"error200", false},
                                          {"echo", false},
                                          {"region", false},
                                          {"etag", false},
                                          {"damage", false},
                                          {"norange", false},
                                          {"otherrange", false},
                                          {"shortrange", false},
                                          {"halflist", false}}};
enum class Work { kBackup, kRestore, kCompare };
constexpr std::array<Work, 3> kWorks = {Work::kBackup, Work::kRestore, Work::kCompare};

struct Case {
  Work work;
  Kind kind;
  int skip;   // requests before the first fault
  int count;  // faults
};

// A volume, its repository in the double, and what was written there.
class World {
 public:
  World() {
    test::RequireOk(repository::Repository::Create(Bucket(), "", Secret(kPassword)));
    bytes_.resize(3 << 20);
    for (size_t at = 0; at < bytes_.size(); at += 500'000) Change(at);
    history_.Add("0", bytes_);
    test::RequireOk(BackUpOnce("0"));
  }

  // How many requests the work makes.
  int Requests(Work work) {
    double_.Say("count");
    const absl::Status done = Do({.work = work, .kind = {"none", true}, .skip = 0, .count = 0});
    EXPECT_OK(done);
    return std::stoi(double_.Say("count"));
  }

  absl::Status Do(const Case& one) {
    if (one.work == Work::kBackup) {
      Change(random_() % bytes_.size());
      history_.Add(std::to_string(++number_), bytes_);
    }
    double_.Fault(one.kind.name, "ANY", one.count, one.skip);
    absl::Status done;
    std::string handle;
    Bytes restored;
    bool same = false;
    switch (one.work) {
      case Work::kBackup:
        done = BackUpOnce(std::to_string(number_));
        break;
      case Work::kRestore:
        done = RestoreOnce(handle, restored);
        EXPECT_TRUE(!done.ok() || restored == history_.newest());
        break;
      case Work::kCompare:
        done = CompareOnce(same);
        EXPECT_TRUE(!done.ok() || same);
        break;
    }
    double_.Fault("none", "ANY", 0);
    if (one.work == Work::kBackup) CheckBackup(done);
    return done;
  }

  // Those that could not be removed, of this process.
  void RemoveLocks() {
    const auto bucket = Bucket();
    std::vector<std::string> keys;
    ASSERT_OK(bucket->List("locks/", [&](const bucket::ObjectInfo& object) {
      keys.push_back(object.key);
      return absl::OkStatus();
    }));
    for (const std::string& key : keys) ASSERT_OK(bucket->Delete(key));
  }

  // Restic finds nothing wrong; false if it is not installed.
  bool IsSound() {
    if (std::string(CBT_TEST_RESTIC).empty()) return false;
    const test::TempDir directory;
    double_.Say("write " + directory.path());
    std::filesystem::create_directory(directory / "locks");
    const std::string restic = std::string("RESTIC_PASSWORD='") + kPassword + "' " +
                               CBT_TEST_RESTIC + " --no-cache -q -r " + directory.path();
    EXPECT_EQ(std::system((restic + " check --read-data").c_str()), 0);
    return true;
  }

 private:
  std::unique_ptr<bucket::Bucket> Bucket() {
    return ValueOf(bucket::OpenS3Bucket(double_.Place(), {.connections = 2,
                                                          .attempts = 4,
                                                          .first_wait = 2ms,
                                                          .longest_wait = 20ms,
                                                          .stall_timeout = 300ms}));
  }
  absl::StatusOr<std::unique_ptr<repository::Repository>> Open() {
    auto repository = repository::Repository::Open(Bucket(), "", Secret(kPassword), true,
                                                   {.lock = {.pause = 0ms}});
    if (!repository.ok()) return repository;
    if (const auto loaded = (*repository)->LoadIndex(true); !loaded.ok()) return loaded.status();
    return repository;
  }

  void Change(size_t at) {
    for (size_t i = at; i < std::min(at + 2000, bytes_.size()); ++i) {
      bytes_[i] = static_cast<uint8_t>(random_());
    }
  }

  absl::Status BackUpOnce(const std::string& handle) {
    const auto repository = Open();
    if (!repository.ok()) return repository.status();
    return BackUp(**repository, history_, handle, {.threads = 2}).status();
  }
  // What is stored under the newest handle, which is returned.
  absl::Status RestoreOnce(std::string& handle, Bytes& restored) {
    const auto repository = Open();
    if (!repository.ok()) return repository.status();
    const auto snapshot = FindVolumeSnapshot(**repository, "vol", "");
    if (!snapshot.ok()) return snapshot.status();
    const auto content = LoadContent(**repository, *snapshot);
    if (!content.ok()) return content.status();
    handle = snapshot->handle.value_or("");
    MemoryOutput output(Bytes(content->size));
    const auto done = Restore(**repository, *content, output, Target::kZero, {.threads = 2});
    restored = std::move(output.bytes);
    return done.status();
  }
  absl::Status CompareOnce(bool& same) {
    const auto repository = Open();
    if (!repository.ok()) return repository.status();
    const auto snapshot = FindVolumeSnapshot(**repository, "vol", "");
    if (!snapshot.ok()) return snapshot.status();
    const auto content = LoadContent(**repository, *snapshot);
    if (!content.ok()) return content.status();
    const auto compared =
        Compare(**repository, *content, MemoryInput(history_.newest()), 100, {.threads = 2});
    same = compared.ok() && !compared->difference.has_value();
    return compared.status();
  }

  // The newest snapshot is the one before or the new one, and complete.
  void CheckBackup(const absl::Status& done) {
    std::string handle;
    Bytes restored;
    ASSERT_OK(RestoreOnce(handle, restored));
    EXPECT_TRUE(!done.ok() || handle == std::to_string(number_)) << handle;
    if (handle != std::to_string(number_)) {
      EXPECT_EQ(handle, std::to_string(number_ - 1));
      EXPECT_TRUE(restored == history_.at(handle));
      ASSERT_OK(BackUpOnce(std::to_string(number_)));
    } else {
      EXPECT_TRUE(restored == bytes_);
    }
  }

  Double double_;
  std::mt19937_64 random_{std::random_device{}()};
  Bytes bytes_;
  History history_;
  int number_ = 0;
};

TEST(BackupFaults, EndWellOrWithAnError) {
  // A repository grows by each backup, and then each needs more requests.
  constexpr size_t kCasesOfAWorld = 40;
  std::vector<Case> cases;
  {
    World world;
    for (const Work work : kWorks) {
      const int requests = world.Requests(work);
      ASSERT_GT(requests, 5);
      for (const Kind& kind : kKinds) {
        for (int skip = 0; skip < requests; ++skip) {
          for (const int count : {1, 1000}) cases.push_back({work, kind, skip, count});
        }
      }
    }
  }
  // All of them at CBT_TEST_SCALE=200.
  std::mt19937_64 random{std::random_device{}()};
  std::shuffle(cases.begin(), cases.end(), random);
  const size_t wanted = 12 * static_cast<size_t>(test::TestScale());
  cases.resize(std::min(cases.size(), wanted));
  size_t passed = 0;
  bool is_checked = true;
  for (size_t at = 0; at < cases.size() && !testing::Test::HasFailure();) {
    World world;
    const size_t end = std::min(cases.size(), at + kCasesOfAWorld);
    for (; at < end && !testing::Test::HasFailure(); ++at) {
      const Case& one = cases[at];
      SCOPED_TRACE(testing::Message()
                   << one.kind.name << " at request " << one.skip << ", " << one.count
                   << " times, work " << static_cast<int>(one.work));
      const absl::Status done = world.Do(one);
      passed += done.ok() ? 1 : 0;
      EXPECT_TRUE(done.ok() || !one.kind.passes || one.count > 1) << done;
      if (!done.ok()) {
        EXPECT_FALSE(done.message().empty());
        EXPECT_EQ(done.message().find(kSecret), std::string_view::npos) << done;
        EXPECT_EQ(done.message().find(kToken), std::string_view::npos) << done;
      }
      world.RemoveLocks();
    }
    is_checked = world.IsSound();
  }
  testing::Test::RecordProperty("cases", std::to_string(cases.size()));
  testing::Test::RecordProperty("passed", std::to_string(passed));
  if (!is_checked) GTEST_SKIP() << "restic is not installed";
}

}  // namespace faults_test
}  // namespace cbt::backup
