#include "source/nbd/nbd_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cbt {

absl::StatusOr<std::shared_ptr<NbdExport::State>> NbdExport::State::Open(const std::string& uri,
                                                                         NbdExportOptions options,
                                                                         NbdNeeds needs) {
  if (options.label.empty()) options.label = uri;
  absl::StatusOr<std::unique_ptr<NbdConnection>> connection =
      NbdConnection::Connect(uri, options, needs);
  if (!connection.ok()) return connection.status();
  const absl::StatusOr<uint64_t> bytes = (*connection)->QuerySize();
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<std::vector<std::string>> listed = (*connection)->ListContexts();
  if (!listed.ok()) return listed.status();
  return std::make_shared<State>(uri, std::move(options), needs, *bytes, *std::move(listed),
                                 *std::move(connection));
}

absl::StatusOr<std::unique_ptr<NbdConnection>> NbdExport::State::Start(const std::string& context) {
  std::unique_ptr<NbdConnection> connection;
  {
    const std::lock_guard lock(mutex_);
    if (returned_ != nullptr && returned_context_ == context && returned_->usable()) {
      return std::move(returned_);
    }
    connection = std::move(spare_);
  }
  if (connection != nullptr && !connection->usable()) connection.reset();
  if (connection != nullptr) {
    const absl::Status status = StartAndCheck(*connection, context);
    if (status.ok()) return connection;
    // Servers drop connections that negotiate for long; a new one shows the real error.
    if (connection->usable() || !absl::IsUnavailable(status)) return status;
    connection.reset();
  }
  absl::StatusOr<std::unique_ptr<NbdConnection>> fresh =
      NbdConnection::Connect(uri_, options_, needs_);
  if (!fresh.ok()) return fresh;
  if (absl::Status status = StartAndCheck(**fresh, context); !status.ok()) return status;
  return fresh;
}

void NbdExport::State::GiveBack(const std::string& context,
                                std::unique_ptr<NbdConnection> connection) {
  if (needs_ != NbdNeeds::kData || connection == nullptr || !connection->usable()) return;
  const std::lock_guard lock(mutex_);
  returned_ = std::move(connection);
  returned_context_ = context;
}

// The contexts, as many as fit into a message.
std::string NbdExport::State::ContextList() const {
  constexpr size_t kListed = 32;
  constexpr size_t kMaxName = 200;
  std::string list;
  for (size_t i = 0; i < std::min(contexts_.size(), kListed); ++i) {
    absl::StrAppend(&list, i == 0 ? "" : ", ", Printable(contexts_[i], kMaxName));
  }
  if (contexts_.size() > kListed) absl::StrAppend(&list, ", ...");
  return contexts_.empty() ? "none" : list;
}

absl::Status NbdExport::State::StartAndCheck(NbdConnection& connection,
                                             const std::string& context) const {
  if (absl::Status status = connection.Start(context); !status.ok()) {
    if (!absl::IsNotFound(status)) return status;
    return absl::NotFoundError(absl::StrCat(status.message(), "; it lists: ", ContextList()));
  }
  const absl::StatusOr<uint64_t> bytes = connection.Size();
  if (!bytes.ok()) return bytes.status();
  if (*bytes != size_) {
    return absl::AbortedError(absl::StrCat(label(), ": the export has ", *bytes,
                                           " bytes now, it had ", size_, " when it was opened"));
  }
  return absl::OkStatus();
}

}  // namespace cbt
