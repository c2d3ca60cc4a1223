#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_io.h"
#include "base/text.h"
#include "base/wipe.h"
#include "programs/backup/place.h"

extern char** environ;

namespace cbt::backup {
namespace {

// The buffer never grows, so that no copy is left behind.
constexpr size_t kMaxPasswordBytes = 64 * 1024;

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

absl::StatusOr<Secret> ReadTo(int descriptor, std::string_view what) {
  std::string text(kMaxPasswordBytes, '\0');
  const Wiper wiper(text);
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t read =
        Retry([&] { return ::read(descriptor, text.data() + size, text.size() - size); });
    if (read < 0) return FileError(what, errno);
    if (read == 0) break;
    size += static_cast<size_t>(read);
  }
  const std::string_view password = Trimmed(std::string_view(text).substr(0, size));
  if (size == text.size() || password.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(AbslView(what), ": no password, or more than 64 KiB"));
  }
  return Secret(password);
}

absl::StatusOr<Secret> FromFile(const std::string& path) {
  const OwnedDescriptor file(OpenFile(path, O_RDONLY | O_CLOEXEC));
  if (!file.has_value()) return FileError(path, errno);
  return ReadTo(file.number(), path);
}

// Words between spaces, as a shell has them: with quotes, and without anything that it replaces.
std::optional<std::vector<std::string>> SplitWords(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word.push_back(text[++i]);
      in_word = true;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
      if (c != quote && quote != 0) word.push_back(c);
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word.push_back(c);
      in_word = true;
    }
  }
  if (in_word) words.push_back(word);
  if (quote != 0 || words.empty()) return std::nullopt;
  return words;
}

absl::StatusOr<Secret> FromCommand(const std::string& command) {
  constexpr std::string_view kWhat = "the command for the password";
  std::optional<std::vector<std::string>> words = SplitWords(command);
  if (!words.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(AbslView(kWhat), ": open quotes, or no words"));
  }
  std::vector<char*> arguments;
  for (std::string& word : *words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return FileError(kWhat, errno);
  OwnedDescriptor from(ends[0]);
  OwnedDescriptor to(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to.number(), STDOUT_FILENO);
  pid_t child = 0;
  const int failed =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  to = OwnedDescriptor();
  if (failed != 0) return FileError(absl::StrCat(AbslView(kWhat), ", ", words->front()), failed);
  absl::StatusOr<Secret> password = ReadTo(from.number(), kWhat);
  from = OwnedDescriptor();
  int status = 0;
  if (Retry([&] { return ::waitpid(child, &status, 0); }) < 0) return FileError(kWhat, errno);
  if (status != 0) {
    return absl::InvalidArgumentError(absl::StrCat(AbslView(kWhat), ": it failed"));
  }
  return password;
}

}  // namespace

absl::StatusOr<Secret> ReadPassword(const std::string& file, const std::string& command) {
  if (!file.empty()) return FromFile(file);
  if (!command.empty()) return FromCommand(command);
  const auto variable = [](const char* name) -> std::string_view {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::string_view() : std::string_view(value);
  };
  if (const std::string_view text = variable("RESTIC_PASSWORD"); !text.empty()) {
    return Secret(text);
  }
  if (const std::string_view path = variable("RESTIC_PASSWORD_FILE"); !path.empty()) {
    return FromFile(std::string(path));
  }
  if (const std::string_view words = variable("RESTIC_PASSWORD_COMMAND"); !words.empty()) {
    return FromCommand(std::string(words));
  }
  return absl::InvalidArgumentError(
      "no password of the repository: give --password-file, or set RESTIC_PASSWORD, "
      "RESTIC_PASSWORD_FILE or RESTIC_PASSWORD_COMMAND");
}

}  // namespace cbt::backup
