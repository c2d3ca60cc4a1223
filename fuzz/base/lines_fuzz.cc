// Text files that an operator writes: `*.source` next to images, tokens, names, sessions, storage
// secrets. Each parser rejects a file truncated in its last line and ignores comments and blank
// lines, and no error contains a secret.
#include <fcntl.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cbt/rpc/access.h"
#include "fuzz/support/check.h"
#include "source/directory/snapshot_directory.h"
#include "source/directory/volume_sources.h"

namespace {

constexpr char kSecret[] = "canary-789012345678901234567890123456789";

// A directory with a single file, for the lifetime of the process.
class Directory {
 public:
  Directory() {
    char pattern[] = "/tmp/cbt-fuzz-lines-XXXXXX";
    CBT_FUZZ_CHECK(mkdtemp(pattern) != nullptr);
    path_ = pattern;
    descriptor_ = open(pattern, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CBT_FUZZ_CHECK(descriptor_ >= 0);
  }
  ~Directory() {
    unlink(file().c_str());
    rmdir(path_.c_str());
    close(descriptor_);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  void Write(const std::string& text) const {
    const int out = open(file().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CBT_FUZZ_CHECK(out >= 0);
    CBT_FUZZ_CHECK(write(out, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    close(out);
  }
  std::string file() const { return absl::StrCat(path_, "/a.source"); }
  int descriptor() const { return descriptor_; }

 private:
  std::string path_;
  int descriptor_;
};

absl::Status Read(const Directory& directory, int kind, const std::string& text) {
  const cbt::VolumeSources::Rules rules = {{}, std::chrono::minutes(1)};
  directory.Write(text);
  switch (kind) {
    case 0:
      return cbt::VolumeSources::Read(cbt::SnapshotDirectory::Read(directory.descriptor(), ""),
                                      rules)
          .damage();
    case 1:
      return cbt::rpc::MakeTokenFileAccess(directory.file()).status();
    case 2:
      return cbt::rpc::MakeFileResolver(directory.file()).status();
    case 3:
      return cbt::rpc::MakeFileSessions(directory.file()).status();
    default:
      return cbt::rpc::MakeFileSecrets(directory.file()).status();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Directory directory;
  FuzzedDataProvider in(data, size);
  const int kind = in.ConsumeIntegralInRange<int>(0, 4);
  const std::string text = in.ConsumeRemainingBytesAsString();
  const absl::Status status = Read(directory, kind, text);
  const bool cut = !text.empty() && text.back() != '\n';
  if (cut) CBT_FUZZ_CHECK(!status.ok());
  // Unusable input always has the same error.
  const absl::StatusCode wrong =
      kind == 0 ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kInvalidArgument;
  if (!status.ok()) CBT_FUZZ_CHECK(status.code() == wrong);
  if (kind != 0) CBT_FUZZ_CHECK(status.message().find(kSecret) == std::string_view::npos);
  if (cut) return 0;
  CBT_FUZZ_CHECK(Read(directory, kind, absl::StrCat("# a comment\n\n", text, " \n#\n")).ok() ==
                 status.ok());
  return 0;
}
