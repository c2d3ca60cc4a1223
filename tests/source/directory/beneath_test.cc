#include "source/directory/beneath.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "tests/support/temp_dir.h"

namespace cbt {
namespace beneath_test {

TEST(BeneathTest, NothingLeadsOut) {
  const test::TempDir dir;
  dir.Write("root/in/file", "inside");
  dir.Write("secret", "outside");
  namespace fs = std::filesystem;
  fs::create_symlink("../../secret", dir / "root/in/relative");
  fs::create_symlink(dir / "secret", dir / "root/in/absolute");
  fs::create_symlink("../..", dir / "root/in/up");
  fs::create_symlink("file", dir / "root/in/inner");
  fs::create_symlink("inner-loop", dir / "root/in/inner-loop");
  const int root = open((dir / "root").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_GE(root, 0);
  for (auto* const how : {&OpenBeneath, &OpenBeneathStepwise}) {
    const int file = how(root, "in/file", O_RDONLY);
    EXPECT_GE(file, 0);
    close(file);
    for (const char* path :
         {"../secret", "in/../../secret", "in/relative", "in/absolute", "in/up/secret",
          "/etc/passwd", "in/inner-loop", "in/missing", "in/file/below", ""}) {
      errno = 0;
      EXPECT_EQ(how(root, path, O_RDONLY), -1) << path;
      EXPECT_NE(errno, 0) << path;
    }
  }
  // Links that stay inside work if the kernel can check them.
  const int inner = OpenBeneath(root, "in/inner", O_RDONLY);
  EXPECT_GE(inner, 0);
  close(inner);
  EXPECT_EQ(OpenBeneathStepwise(root, "in/inner", O_RDONLY), -1);
  EXPECT_EQ(errno, ELOOP);
  close(root);
}

}  // namespace beneath_test
}  // namespace cbt
