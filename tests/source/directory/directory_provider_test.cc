#include "cbt/source/directory_provider.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "tests/support/cursors.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace directory_provider_test {

using test::ValueOf;

using absl::StatusCode;
using reference::Ranges;

class DirectoryProviderTest : public testing::Test {
 protected:
  DirectoryProviderTest() {
    dir_.Write("root/vol1/monday.img", std::string(10'000, 'a'));
    dir_.Write("root/vol1/tuesday.raw", std::string(5'000, 'a') + std::string(5'000, 'b'));
    dir_.Write("root/vol1/bare", "x");
    dir_.Write("root/vol1/late.partial", "x");
    dir_.Write("root/vol1/twice.img", "x");
    dir_.Write("root/vol1/twice.raw", "x");
    dir_.Write("root/vol1/.hidden.img", "x");
    dir_.Write("root/vol1/v1.2.img", "x");
    dir_.Write("root/vol1/folder.img/file.img", "x");
    dir_.Write("root/vol2/monday.img", "x");
    dir_.Write("root/top.img", "x");
    dir_.Write("outside.img", "x");
    namespace fs = std::filesystem;
    fs::create_symlink("../../outside.img", dir_ / "root/vol1/escape.img");
    fs::create_symlink(dir_ / "outside.img", dir_ / "root/vol1/absolute.img");
    fs::create_symlink("monday.img", dir_ / "root/vol1/alias.img");
    fs::create_symlink(dir_.path(), dir_ / "root/away");
    provider_ = ValueOf(MakeDirectoryProvider(dir_ / "root"));
  }

  absl::Status Allocated(std::string_view id) {
    return provider_->OpenAllocated(id, context_).status();
  }

  const test::TempDir dir_;
  const Secrets secrets_;
  const StreamContext context_{{}, secrets_};
  std::unique_ptr<SnapshotProvider> provider_;
};

// What such a file holds is no volume, or one in another form.
TEST_F(DirectoryProviderTest, SCAFileThatIsNamedLikeAnotherFormatIsNoRawImage) {
  for (const char* extension : {".vmdk", ".vhdx", ".QCOW2", ".diff", ".xml", ".json", ".gz"}) {
    dir_.Write(std::string("root/vol1/other") + extension, std::string(8192, 'x'));
    EXPECT_EQ(Allocated("vol1/other").code(), StatusCode::kFailedPrecondition) << extension;
    EXPECT_EQ(provider_->OpenDelta("vol1/monday", "vol1/other", context_).status().code(),
              StatusCode::kFailedPrecondition)
        << extension;
    std::filesystem::remove(dir_ / (std::string("root/vol1/other") + extension));
  }
}

TEST_F(DirectoryProviderTest, ServesWhatIsThere) {
  for (const char* id : {"vol1/monday", "vol1/tuesday", "vol1/bare", "vol1/v1.2", "vol1/alias",
                         "vol2/monday", "top"}) {
    EXPECT_OK(Allocated(id)) << id << " " << Allocated(id);
  }
  auto delta = provider_->OpenDelta("vol1/monday", "vol1/tuesday", context_);
  ASSERT_OK(delta);
  EXPECT_EQ(delta->type, BlockMetadataType::kVariableLength);
  EXPECT_EQ(ValueOf(test::Drain(*delta->cursor)), (Ranges{{4096, 10'000 - 4096}}));
}

TEST_F(DirectoryProviderTest, IdsThatCannotBeOnesAreInvalid) {
  for (const std::string& id :
       {std::string(), std::string("/etc/passwd"), std::string("../outside"),
        std::string("vol1/../../outside"), std::string("vol1/.."), std::string("."),
        std::string("vol1//monday"), std::string("vol1/monday/"), std::string("vol1/mon\0day", 12),
        std::string(5000, 'x')}) {
    EXPECT_EQ(Allocated(id).code(), StatusCode::kInvalidArgument) << id;
    EXPECT_EQ(provider_->OpenDelta(id, "vol1/monday", context_).status().code(),
              StatusCode::kInvalidArgument);
    EXPECT_EQ(provider_->OpenDelta("vol1/monday", id, context_).status().code(),
              StatusCode::kInvalidArgument);
  }
}

TEST_F(DirectoryProviderTest, WhatIsNotThereOrLeadsOutIsNotFound) {
  const std::string longer_than_names(300, 'x');
  for (const std::string& id :
       {std::string("vol1/none"), std::string("none/monday"), std::string("none"),
        std::string("vol1/monday.img"), std::string("vol1/escape"), std::string("vol1/absolute"),
        std::string("away/outside"), std::string("vol1/.hidden"), std::string("vol1/folder"),
        std::string("vol1"), std::string("vol1/monday/x"), "vol1/" + longer_than_names,
        longer_than_names + "/monday"}) {
    EXPECT_EQ(Allocated(id).code(), StatusCode::kNotFound) << id << " " << Allocated(id);
    EXPECT_EQ(provider_->OpenDelta(id, "vol1/monday", context_).status().code(),
              StatusCode::kNotFound);
  }
  EXPECT_EQ(Allocated("vol1/none").message(), "snapshot \"vol1/none\": no such snapshot");
}

TEST_F(DirectoryProviderTest, OtherErrorsHaveTheCodesOfTheContract) {
  EXPECT_EQ(Allocated("vol1/late").code(), StatusCode::kUnavailable);
  EXPECT_EQ(Allocated("vol1/twice").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(provider_->OpenDelta("vol2/monday", "vol1/monday", context_).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(provider_->OpenDelta("top", "vol1/monday", context_).status().code(),
            StatusCode::kInvalidArgument);
}

// It is unknown which of the two is the snapshot.
TEST_F(DirectoryProviderTest, AnImageBesideOneThatCannotBeHadIsNotTakenForTheSnapshot) {
  dir_.Write("root/vol1/half.img", "x");
  dir_.Write("root/vol1/half.partial", "x");
  dir_.Write("root/vol1/shut.img", "x");
  // Exists but cannot be opened, not even by root: the name is too long.
  std::filesystem::create_symlink(std::string(300, 'x'), dir_ / "root/vol1/shut.raw");
  for (const char* id : {"vol1/half", "vol1/shut"}) {
    EXPECT_EQ(Allocated(id).code(), StatusCode::kUnavailable) << id << " " << Allocated(id);
    for (const auto& [base, target] :
         {std::pair(id, "vol1/monday"), std::pair("vol1/monday", id)}) {
      EXPECT_EQ(provider_->OpenDelta(base, target, context_).status().code(),
                StatusCode::kUnavailable)
          << base << " " << target;
    }
  }
  // A link that leads out is not a snapshot and does not interfere.
  std::filesystem::create_symlink("../../outside.img", dir_ / "root/vol1/bare.raw");
  EXPECT_OK(Allocated("vol1/bare"));
}

TEST_F(DirectoryProviderTest, E18SnapshotDeletedMeanwhileIsAnsweredInFull) {
  auto delta = provider_->OpenDelta("vol1/monday", "vol1/tuesday", context_);
  ASSERT_OK(delta);
  std::filesystem::remove(dir_ / "root/vol1/monday.img");
  std::filesystem::remove(dir_ / "root/vol1/tuesday.raw");
  EXPECT_EQ(ValueOf(test::Drain(*delta->cursor)), (Ranges{{4096, 10'000 - 4096}}));
  EXPECT_EQ(Allocated("vol1/monday").code(), StatusCode::kNotFound);
}

TEST_F(DirectoryProviderTest, ErrorsNameTheSnapshotAndNotThePath) {
  std::filesystem::resize_file(dir_ / "root/vol1/monday.img", 20'000);
  const MetadataSource delta =
      ValueOf(provider_->OpenDelta("vol1/monday", "vol1/tuesday", context_));
  std::filesystem::resize_file(dir_ / "root/vol1/monday.img", 1'000);
  const auto drained = test::Drain(*delta.cursor);
  EXPECT_EQ(drained.status().code(), StatusCode::kAborted);
  EXPECT_NE(std::string(drained.status().message()).find("\"vol1/monday\""), std::string::npos);
  EXPECT_EQ(std::string(drained.status().message()).find(dir_.path()), std::string::npos);
}

// Counts how often a directory is opened for reading.
class DirectoryReads {
 public:
  explicit DirectoryReads(const std::string& directory) : events_(inotify_init1(IN_NONBLOCK)) {
    EXPECT_GE(inotify_add_watch(events_, directory.c_str(), IN_OPEN | IN_CLOSE | IN_ONLYDIR), 0);
  }
  ~DirectoryReads() { close(events_); }
  DirectoryReads(const DirectoryReads&) = delete;
  DirectoryReads& operator=(const DirectoryReads&) = delete;

  // Since the last call.
  int Count() const {
    int count = 0;
    char buffer[4096];
    for (ssize_t size; (size = read(events_, buffer, sizeof(buffer))) > 0;) {
      for (ssize_t at = 0; at < size;) {
        inotify_event event;
        std::memcpy(&event, buffer + at, sizeof(event));
        // Events of files in the directory carry a name.
        count += event.len == 0 && (event.mask & IN_OPEN) != 0 ? 1 : 0;
        at += static_cast<ssize_t>(sizeof(event) + event.len);
      }
    }
    return count;
  }

 private:
  const int events_;
};

TEST_F(DirectoryProviderTest, ARequestReadsTheDirectoryOnce) {
  const DirectoryReads reads(dir_ / "root/vol1");
  EXPECT_TRUE(provider_->OpenDelta("vol1/monday", "vol1/tuesday", context_).ok());
  EXPECT_EQ(reads.Count(), 1);
  EXPECT_TRUE(Allocated("vol1/monday").ok());
  EXPECT_EQ(reads.Count(), 1);
  EXPECT_EQ(Allocated("vol1/none").code(), StatusCode::kNotFound);
  EXPECT_EQ(reads.Count(), 1);
}

TEST(MakeDirectoryProviderTest, RefusesRootsAndOptionsThatCannotWork) {
  const test::TempDir dir;
  dir.Write("file", "x");
  EXPECT_EQ(MakeDirectoryProvider(dir / "none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(MakeDirectoryProvider(dir / "file").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MakeDirectoryProvider(dir.path(), {.block_size = 1000}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(
      MakeDirectoryProvider(dir.path(), {.type = BlockMetadataType::kUnknown}).status().code(),
      StatusCode::kInvalidArgument);
}

// Time stamps advance with the kernel's clock tick: a second write within one tick looks like no
// change.
void AwaitTick(const std::string& path) {
  const auto written = std::filesystem::last_write_time(path);
  const std::string probe = path + ".probe";
  do {
    std::ofstream(probe) << "x";
  } while (std::filesystem::last_write_time(probe) <= written);
  std::filesystem::remove(probe);
}

TEST_F(DirectoryProviderTest, AttackUTheVersionOfAnImageIsThatOfItsFiles) {
  const auto versions = [this] {
    const auto delta = provider_->OpenDelta("vol1/monday", "vol1/tuesday", context_);
    const auto allocated = provider_->OpenAllocated("vol1/tuesday", context_);
    EXPECT_TRUE(delta.ok() && allocated.ok());
    EXPECT_FALSE(delta->version.empty() || allocated->version.empty());
    return std::pair(delta->version, allocated->version);
  };
  const auto first = versions();
  EXPECT_EQ(versions(), first);
  ASSERT_OK_AND_ASSIGN(provider_, MakeDirectoryProvider(dir_ / "root"));
  EXPECT_EQ(versions(), first);
  // The name now refers to another file of the same size.
  dir_.Write("root/.other", std::string(10'000, 'c'));
  std::filesystem::rename(dir_ / "root/.other", dir_ / "root/vol1/tuesday.raw");
  const auto replaced = versions();
  EXPECT_NE(replaced.first, first.first);
  EXPECT_NE(replaced.second, first.second);
  // Of the delta, only the base changes.
  dir_.Write("root/.other", std::string(10'000, 'd'));
  std::filesystem::rename(dir_ / "root/.other", dir_ / "root/vol1/monday.img");
  EXPECT_NE(versions().first, replaced.first);
  EXPECT_EQ(versions().second, replaced.second);
  // Written in place.
  const auto before = versions();
  AwaitTick(dir_ / "root/vol1/tuesday.raw");
  dir_.Write("root/vol1/tuesday.raw", std::string(10'000, 'e'));
  EXPECT_NE(versions().second, before.second);
}

}  // namespace directory_provider_test
}  // namespace cbt
