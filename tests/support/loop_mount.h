// Real file systems on loop devices, for tests that run as root.
#ifndef CBT_TESTS_SUPPORT_LOOP_MOUNT_H_
#define CBT_TESTS_SUPPORT_LOOP_MOUNT_H_

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/files.h"
#include "tests/support/temp_dir.h"

namespace cbt::test {

// Returns whether the shell command succeeds. Its output goes to a file that Output() reads.
class LoggedShell {
 public:
  explicit LoggedShell(const TempDir& scratch) : log_(scratch / "shell.log") {}

  bool Run(const std::string& command) {
    const std::string line = "{ " + command + "\n} >'" + log_ + "' 2>&1 </dev/null";
    return std::system(line.c_str()) == 0;
  }
  std::string Output() const { return ReadFile(log_); }

 private:
  const std::string log_;
};

// A private file system, unmounted and removed after the test.
class LoopMount {
 public:
  struct Options {
    std::string mkfs;            // "mkfs.xfs -q -m reflink=1"
    std::string mount = "loop";  // options of mount(8)
    std::string image = {};      // a copy of this image instead of a new one
    int mib = 400;
  };

  explicit LoopMount(const Options& options) : shell_(scratch_) {
    if (geteuid() != 0) {
      why_not_ = "needs root";
      return;
    }
    if (!HasOwnMounts()) {
      why_not_ = "can't have mounts of its own";
      return;
    }
    const std::string image = scratch_ / "image";
    const std::string make = options.image.empty()
                                 ? "truncate -s " + std::to_string(options.mib) + "M '" + image +
                                       "' && " + options.mkfs + " '" + image + "'"
                                 : "cp --sparse=always '" + options.image + "' '" + image + "'";
    std::filesystem::create_directory(scratch_ / "mounted");
    if (!shell_.Run(make)) {
      why_not_ = "can't make a file system: " + shell_.Output();
    } else if (!shell_.Run("mount -o " + options.mount + " '" + image + "' '" + path() + "'")) {
      why_not_ = "can't mount: " + shell_.Output();
    } else {
      mounted_ = true;
    }
  }
  ~LoopMount() {
    if (mounted_ && !shell_.Run("umount '" + path() + "'"))
      shell_.Run("umount -l '" + path() + "'");
  }
  LoopMount(const LoopMount&) = delete;
  LoopMount& operator=(const LoopMount&) = delete;

  bool mounted() const { return mounted_; }
  const std::string& why_not() const { return why_not_; }
  std::string path() const { return scratch_ / "mounted"; }
  std::string image() const { return scratch_ / "image"; }
  std::string operator/(const std::string& name) const { return path() + "/" + name; }
  LoggedShell& shell() { return shell_; }

 private:
  // Uses a private mount namespace, so that mounts end with this process whatever happens to it.
  static bool HasOwnMounts() {
    static const bool own = unshare(CLONE_NEWNS) == 0 &&
                            ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
    return own;
  }

  TempDir scratch_;
  LoggedShell shell_;
  bool mounted_ = false;
  std::string why_not_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_SUPPORT_LOOP_MOUNT_H_
