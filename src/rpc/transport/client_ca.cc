#include "rpc/transport/client_ca.h"

#include <utility>

#include "rpc/transport/tls.h"

namespace cbt::rpc {

ClientCa::ClientCa(std::string path, std::string text, std::chrono::milliseconds settle)
    : path_(std::move(path)), settle_(settle), text_(std::move(text)) {}

// Requires the lock. An unusable file is reread by each call; a file rewritten with the same
// contents has not changed.
void ClientCa::Look() {
  const FileState state = StateOf(path_);
  if (usable_ && state == state_) return;
  absl::StatusOr<std::string> text = ReadSmallFile(path_);
  const bool usable = text.ok() && HasCertificate(*text);
  state_ = state;
  if (!usable) {
    if (usable_) change_ = Change::kUnusable;
  } else if (*text != text_) {
    text_ = *std::move(text);
    change_ = Change::kChanged;
    trusted_from_ = Clock::now() + settle_;
  }
  usable_ = usable;
}

bool ClientCa::Trusted() {
  const std::lock_guard lock(mutex_);
  Look();
  return usable_ && Clock::now() >= trusted_from_;
}

ClientCa::Change ClientCa::TakeChange() {
  const std::lock_guard lock(mutex_);
  Look();
  return std::exchange(change_, Change::kNone);
}

}  // namespace cbt::rpc
