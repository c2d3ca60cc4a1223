#include "base/system_library.h"

#include <atomic>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace cbt::system_library_test {
namespace {

struct Functions {
  decltype(static_cast<double (*)(double)>(&::cos)) cosine = nullptr;
  double (*wrong)(double) = nullptr;
};

TEST(SystemLibraryTest, FindsFunctions) {
  Functions functions;
  SystemLibrary library("libm.so.6", "angles", "libc6");
  const SystemFunction wanted[] = {{"cos", &functions.cosine}};
  ASSERT_TRUE(library.Load(wanted).ok());
  ASSERT_NE(functions.cosine, nullptr);
  EXPECT_EQ(functions.cosine(0), 1);
}

TEST(SystemLibraryTest, AMissingLibraryIsNamedWithItsPackage) {
  Functions functions;
  SystemLibrary library("libcbt-is-not-there.so.7", "angles", "libangle7 (Debian)");
  const SystemFunction wanted[] = {{"cos", &functions.cosine}};
  for (int attempt = 0; attempt < 2; ++attempt) {
    const absl::Status status = library.Load(wanted);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_TRUE(absl::StartsWith(status.message(), "angles need libcbt-is-not-there.so.7: "))
        << status;
    EXPECT_TRUE(absl::EndsWith(status.message(), "; install the package libangle7 (Debian)"))
        << status;
    EXPECT_EQ(functions.cosine, nullptr);
  }
}

TEST(SystemLibraryTest, AnOldLibraryIsRefusedAndTheNextCallTriesAgain) {
  Functions functions;
  SystemLibrary library("libm.so.6", "angles", "libc6");
  const SystemFunction wanted[] = {{"cos", &functions.cosine},
                                   {"cbt_is_not_there", &functions.wrong}};
  const absl::Status status = library.Load(wanted);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "cbt_is_not_there")) << status;
  EXPECT_EQ(functions.wrong, nullptr);
  const SystemFunction fewer[] = {{"cos", &functions.cosine}};
  EXPECT_TRUE(library.Load(fewer).ok());
}

std::atomic<int> starts = 0;

TEST(SystemLibraryTest, StartsOnceForAllThreads) {
  constexpr int kThreads = 8;
  starts = 0;
  Functions functions;
  SystemLibrary library("libm.so.6", "angles", "libc6");
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        const SystemFunction wanted[] = {{"cos", &functions.cosine}};
        const absl::Status status = library.Load(wanted, [] {
          ++starts;
          return absl::OkStatus();
        });
        if (status.ok() && functions.cosine(0) == 1) ++right;
      });
    }
  }
  EXPECT_EQ(starts, 1);
  EXPECT_EQ(right, kThreads);
}

TEST(SystemLibraryTest, AStartThatFailsIsRepeated) {
  starts = 0;
  Functions functions;
  SystemLibrary library("libm.so.6", "angles", "libc6");
  const SystemFunction wanted[] = {{"cos", &functions.cosine}};
  const auto start = [] {
    return ++starts < 2 ? absl::UnavailableError("not yet") : absl::OkStatus();
  };
  EXPECT_EQ(library.Load(wanted, start).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(library.Load(wanted, start).ok());
  EXPECT_TRUE(library.Load(wanted, start).ok());
  EXPECT_EQ(starts, 2);
}

}  // namespace
}  // namespace cbt::system_library_test
