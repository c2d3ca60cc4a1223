// main() of the test programs. A program contains the tests of a room or a layer;
// --file=ROOM/NAME_test runs only that file's tests, which is how ctest starts them. A run without
// any test fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

namespace {

constexpr std::string_view kFileFlag = "--file=";

// The filter for the tests of tests/<file>.cc.
std::string FilterFor(std::string_view file) {
  const std::string end = "/tests/" + std::string(file) + ".cc";
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string filter;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (!std::string_view(test.file()).ends_with(end)) continue;
      filter += (filter.empty() ? "" : ":") + std::string(suite.name()) + "." + test.name();
    }
  }
  return filter;
}

std::string OneLine(std::string text) {
  for (char& c : text) c = c == '\n' || c == '\t' ? ' ' : c;
  return text;
}

class SkipLister : public testing::EmptyTestEventListener {
 public:
  SkipLister(const char* path, std::string file) : path_(path), file_(std::move(file)) {}

  void OnTestEnd(const testing::TestInfo& test) override {
    if (!test.result()->Skipped()) return;
    std::string reason;
    for (int i = 0; i < test.result()->total_part_count(); ++i) {
      const testing::TestPartResult& part = test.result()->GetTestPartResult(i);
      if (part.skipped()) reason = part.message();
    }
    std::ofstream(path_, std::ios::app) << file_ << '\t' << test.test_suite_name() << '.'
                                        << test.name() << '\t' << OneLine(reason) << '\n';
  }

 private:
  const char* const path_;
  const std::string file_;
};

}  // namespace

int main(int argc, char** argv) {
  // `make quick`: fewer random inputs than ctest sets.
  if (const char* runs = std::getenv("CBT_PROPERTY_RUNS"); runs != nullptr) {
    setenv("RC_PARAMS", (std::string("max_success=") + runs).c_str(), 1);
  }
  testing::InitGoogleMock(&argc, argv);
  std::string file;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!argument.starts_with(kFileFlag)) {
      std::fprintf(stderr, "%s: unknown option %s\n", argv[0], argv[i]);
      return 2;
    }
    file = argument.substr(kFileFlag.size());
    const std::string filter = FilterFor(file);
    if (filter.empty()) {
      std::fprintf(stderr, "%s: no tests in that file: %s\n", argv[0], argv[i]);
      return 2;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  if (const char* path = std::getenv("CBT_SKIPS"); path != nullptr) {
    testing::UnitTest::GetInstance()->listeners().Append(new SkipLister(path, file));
  }
  const int result = RUN_ALL_TESTS();
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  if (result == 0 && !GTEST_FLAG_GET(list_tests) && all.test_to_run_count() == 0) {
    std::fprintf(stderr, "%s: no test ran\n", argv[0]);
    return 1;
  }
  return result;
}
