#include "source/nbd/nbd_connection.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "source/input/time_limit.h"
#ifdef CBT_HAVE_LIBNBD
#include "source/nbd/libnbd.h"
#endif

namespace cbt {

std::string Printable(std::string_view text, size_t limit) {
  std::string out;
  for (const char c : text.substr(0, limit)) {
    const auto byte = static_cast<unsigned char>(c);
    out.push_back(byte < 0x20 || byte == 0x7f ? '?' : c);
  }
  if (text.size() > limit) out += "...";
  return out;
}

#ifdef CBT_HAVE_LIBNBD

namespace {

constexpr size_t kMaxMessage = 500;

// libnbd's NBD_NULL_COMPLETION is not valid C++.
constexpr nbd_completion_callback kNoCompletion{nullptr, nullptr, nullptr};

absl::Status StatusOf(int error, const std::string& text) {
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(text);
    case EPERM:
    case EACCES:
      return absl::PermissionDeniedError(text);
    default:
      return absl::UnavailableError(text);
  }
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

absl::Status CheckAddress(const std::string& uri, const NbdExportOptions& options) {
  const bool tls = StartsWith(uri, "nbds://") || StartsWith(uri, "nbds+unix://");
  if (!tls && !StartsWith(uri, "nbd://") && !StartsWith(uri, "nbd+unix://")) {
    return absl::InvalidArgumentError(
        "nbd: the URI must begin with nbd://, nbds://, nbd+unix:// or nbds+unix://");
  }
  if (uri.find('\0') != std::string::npos ||
      (options.export_name && options.export_name->find('\0') != std::string::npos)) {
    return absl::InvalidArgumentError("nbd: a NUL byte in the URI or the export's name");
  }
  if (!tls && !(options.tls_certificates.empty() && options.tls_psk_file.empty())) {
    return absl::InvalidArgumentError("nbd: TLS files for a URI without TLS; write nbds");
  }
  if (options.timeout <= std::chrono::milliseconds(0)) {
    return absl::InvalidArgumentError("nbd: the timeout is not above 0");
  }
  return absl::OkStatus();
}

}  // namespace

NbdConnection::NbdConnection(nbd_handle* handle, const NbdExportOptions& options)
    : handle_(handle), label_(options.label), timeout_(options.timeout), stop_(options.stop) {}

NbdConnection::~NbdConnection() {
  // Disconnects as the protocol requires, without waiting for the reply. A forked child must not:
  // the connection is the parent's.
  given_up_ = given_up_ || !mark_.IsOurs();
  if (!given_up_ && Nbd().aio_is_negotiating(handle_) == 1) Nbd().aio_opt_abort(handle_);
  if (!given_up_ && Nbd().aio_is_ready(handle_) == 1) Nbd().aio_disconnect(handle_, 0);
  Nbd().close(handle_);
}

absl::StatusOr<std::unique_ptr<NbdConnection>> NbdConnection::Connect(
    const std::string& uri, const NbdExportOptions& options, NbdNeeds needs) {
  if (absl::Status status = CheckAddress(uri, options); !status.ok()) return status;
  if (absl::Status status = LoadLibNbd(); !status.ok()) return status;
  nbd_handle* const handle = Nbd().create();
  if (handle == nullptr) return absl::ResourceExhaustedError("nbd: no handle");
  std::unique_ptr<NbdConnection> connection(new NbdConnection(handle, options));
  if (absl::Status status = connection->Configure(uri, options); !status.ok()) return status;
  if (absl::Status status = connection->Negotiate(uri, options, needs); !status.ok()) return status;
  return connection;
}

absl::Status NbdConnection::Configure(const std::string& uri, const NbdExportOptions& options) {
  if (Nbd().supports_uri(handle_) != 1) {
    return absl::UnimplementedError("nbd: libnbd was built without URIs");
  }
  const bool tls = StartsWith(uri, "nbds");
  if (tls && Nbd().supports_tls(handle_) != 1) {
    return absl::UnimplementedError("nbd: libnbd was built without TLS");
  }
  const auto set = [](const std::string& value, auto setter, nbd_handle* handle) {
    return value.empty() ? 0 : setter(handle, value.c_str());
  };
  // Option mode: the export's name and the contexts are set after connecting. Requests are aligned
  // here, whatever a server's odd export size implies.
  const uint32_t strict = Nbd().get_strict_mode(handle_) & ~uint32_t{LIBNBD_STRICT_ALIGN};
  if (Nbd().set_opt_mode(handle_, true) != 0 || Nbd().set_strict_mode(handle_, strict) != 0 ||
      Nbd().set_uri_allow_transports(
          handle_, LIBNBD_ALLOW_TRANSPORT_TCP | LIBNBD_ALLOW_TRANSPORT_UNIX) != 0 ||
      Nbd().set_uri_allow_local_file(handle_, false) != 0 ||
      set(options.tls_certificates, Nbd().set_tls_certificates, handle_) != 0 ||
      set(options.tls_psk_file, Nbd().set_tls_psk_file, handle_) != 0 ||
      set(options.tls_username, Nbd().set_tls_username, handle_) != 0) {
    return LibraryError("configure");
  }
  return absl::OkStatus();
}

absl::Status NbdConnection::Negotiate(const std::string& uri, const NbdExportOptions& options,
                                      NbdNeeds needs) {
  const Deadline deadline = FromNow();
  if (Nbd().aio_connect_uri(handle_, uri.c_str()) != 0) {
    const int error = Nbd().get_errno();
    absl::Status status = LibraryError("connect");
    if (error == EINVAL) return absl::InvalidArgumentError(status.message());
    return status;
  }
  while (Nbd().aio_is_connecting(handle_) == 1) {
    if (absl::Status status = PollOnce(deadline, "connect"); !status.ok()) return status;
  }
  if (!usable()) return Broken("connect", "the server ended the connection");
  if (Nbd().aio_is_negotiating(handle_) != 1 && needs == NbdNeeds::kData) {
    return absl::FailedPreconditionError(
        absl::StrCat(label_, ": the server negotiates nothing: it is too old"));
  }
  if (needs == NbdNeeds::kStatus && (Nbd().get_structured_replies_negotiated(handle_) != 1 ||
                                     Nbd().aio_is_negotiating(handle_) != 1)) {
    return absl::FailedPreconditionError(absl::StrCat(
        label_, ": the server does not support block status: it has no structured replies"));
  }
  if (options.export_name && Nbd().set_export_name(handle_, options.export_name->c_str()) != 0) {
    return absl::InvalidArgumentError(LibraryError("set the export's name").message());
  }
  return absl::OkStatus();
}

absl::Status NbdConnection::WaitForOption(std::string_view doing) {
  const Deadline deadline = FromNow();
  while (!outcome_.done && Nbd().aio_is_connecting(handle_) == 1) {
    if (absl::Status status = PollOnce(deadline, doing); !status.ok()) return status;
  }
  if (!usable()) return Broken(doing, "the server ended the connection");
  if (!outcome_.done) return Broken(doing, "the negotiation ended without a reply");
  if (outcome_.error != 0) {
    return StatusOf(outcome_.error,
                    absl::StrCat(label_, ": ", AbslView(doing),
                                 ": the server refuses: ", ErrnoText(outcome_.error)));
  }
  return absl::OkStatus();
}

namespace {

// libnbd's type.
int TakeOutcome(void* user_data, int* error) noexcept {
  *static_cast<NbdOutcome*>(user_data) = {true, *error};
  return 1;
}

int TakeName(void* user_data, const char* name) noexcept {
  auto* const names = static_cast<std::vector<std::string>*>(user_data);
  try {
    if (names->size() < NbdExport::kMaxContexts) names->emplace_back(name);
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return 0;
}

}  // namespace

absl::StatusOr<uint64_t> NbdConnection::QuerySize() {
  outcome_ = {};
  if (Nbd().aio_opt_info(handle_, {TakeOutcome, &outcome_, nullptr}) != 0) {
    return LibraryError("ask for the export");
  }
  if (absl::Status status = WaitForOption("ask for the export"); !status.ok()) return status;
  return Size();
}

absl::StatusOr<uint64_t> NbdConnection::Size() const {
  const int64_t size = Nbd().get_size(handle_);
  // Some versions of libnbd return sizes over int64 as negative numbers.
  if (size == -1) return LibraryError("ask for the size");
  if (size < 0) {
    return absl::DataLossError(absl::StrCat(label_, ": the export's size is above ", kMaxCapacity));
  }
  return static_cast<uint64_t>(size);
}

uint64_t NbdConnection::MinimumBlock() const {
  // The protocol allows up to 64 KiB; other values are ignored.
  const int64_t block = Nbd().get_block_size(handle_, LIBNBD_SIZE_MINIMUM);
  return block > 0 && block <= 65536 ? static_cast<uint64_t>(block) : 1;
}

absl::StatusOr<std::vector<std::string>> NbdConnection::ListContexts() {
  names_.clear();
  outcome_ = {};
  if (Nbd().get_structured_replies_negotiated(handle_) != 1) return names_;
  if (Nbd().aio_opt_list_meta_context(handle_, {TakeName, &names_, nullptr},
                                      {TakeOutcome, &outcome_, nullptr}) != 0) {
    return LibraryError("list contexts");
  }
  const absl::Status status = WaitForOption("list contexts");
  if (!usable()) return status;
  // A server need not support listing; requesting a context shows whether it works.
  if (!status.ok()) names_.clear();
  return names_;
}

absl::Status NbdConnection::Start(const std::string& context) {
  outcome_ = {};
  if ((!context.empty() && Nbd().add_meta_context(handle_, context.c_str()) != 0) ||
      Nbd().aio_opt_go(handle_, {TakeOutcome, &outcome_, nullptr}) != 0) {
    return LibraryError("open the export");
  }
  if (absl::Status status = WaitForOption("open the export"); !status.ok()) return status;
  if (Nbd().aio_is_ready(handle_) != 1)
    return Broken("open the export", "it does not become ready");
  if (!context.empty() && Nbd().can_meta_context(handle_, context.c_str()) != 1) {
    return absl::NotFoundError(absl::StrCat(label_, ": the server has no context ", context));
  }
  return absl::OkStatus();
}

absl::Status NbdConnection::BlockStatus(uint64_t offset, uint64_t length, NbdExtents& extents) {
  const Deadline deadline = FromNow();
  extents_ = &extents;
#ifdef LIBNBD_HAVE_NBD_BLOCK_STATUS_64
  const auto take = [](void* user_data, const char* context, uint64_t at, nbd_extent* entries,
                       size_t count, int* error) noexcept {
    NbdExtents* const out = static_cast<NbdConnection*>(user_data)->extents_;
    return out == nullptr ? 0 : NbdExtents::CallbackLong(out, context, at, entries, count, error);
  };
  const int64_t cookie =
      Nbd().aio_block_status_64(handle_, length, offset, {take, this, nullptr}, kNoCompletion, 0);
#else
  const auto take = [](void* user_data, const char* context, uint64_t at, uint32_t* entries,
                       size_t count, int* error) noexcept {
    NbdExtents* const out = static_cast<NbdConnection*>(user_data)->extents_;
    return out == nullptr ? 0 : NbdExtents::Callback(out, context, at, entries, count, error);
  };
  const int64_t cookie =
      Nbd().aio_block_status(handle_, length, offset, {take, this, nullptr}, kNoCompletion, 0);
#endif
  const std::string doing = absl::StrCat("block status at offset ", offset);
  absl::Status status;
  if (cookie < 0) status = LibraryError(doing);
  while (status.ok()) {
    const int completed = Nbd().aio_command_completed(handle_, static_cast<uint64_t>(cookie));
    if (completed == 1) break;
    if (completed < 0) {
      // The error in the reply is more useful than the refusal of the callback.
      status = extents.Finish().status();
      if (status.ok() || Nbd().get_errno() != EPROTO) status = LibraryError(doing);
      break;
    }
    status = PollOnce(deadline, doing);
  }
  extents_ = nullptr;
  return status;
}

bool NbdConnection::usable() const {
  return mark_.IsOurs() && !given_up_ && Nbd().aio_is_dead(handle_) != 1 &&
         Nbd().aio_is_closed(handle_) != 1;
}

absl::Status NbdConnection::PollOnce(Deadline deadline, std::string_view doing) {
  if (stop_.stop_requested()) {
    given_up_ = true;
    return Stopped(label_);
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) {
    given_up_ = true;
    return Broken(doing, absl::StrCat("no reply within ", timeout_.count(), " ms"));
  }
  const auto wait = std::min<int64_t>(left.count(), WaitingStep(stop_).count());
  // 0 means a timeout; the next call checks the deadline.
  if (Nbd().poll(handle_, static_cast<int>(wait)) < 0) return LibraryError(doing);
  return absl::OkStatus();
}

absl::Status NbdConnection::LibraryError(std::string_view doing) const {
  const char* const text = Nbd().get_error();
  const int error = Nbd().get_errno();
  const std::string message =
      absl::StrCat(label_, ": ", AbslView(doing), ": ",
                   Printable(text == nullptr ? "unknown error" : text, kMaxMessage));
  // ENOENT means a missing socket here, not a missing export: it may exist soon.
  return error == ENOENT ? absl::UnavailableError(message) : StatusOf(error, message);
}

absl::Status NbdConnection::Broken(std::string_view doing, std::string_view reason) const {
  return absl::UnavailableError(
      absl::StrCat(label_, ": ", AbslView(doing), ": ", AbslView(reason)));
}

NbdConnection::Deadline NbdConnection::FromNow() const {
  // At most a year, so that the clock can't overflow.
  return std::chrono::steady_clock::now() +
         std::min<std::chrono::milliseconds>(timeout_, std::chrono::hours(24 * 365));
}

#else  // CBT_HAVE_LIBNBD

namespace {

absl::Status WithoutLibrary() { return absl::UnimplementedError("nbd: built without libnbd"); }

}  // namespace

NbdConnection::~NbdConnection() = default;

absl::StatusOr<std::unique_ptr<NbdConnection>> NbdConnection::Connect(const std::string&,
                                                                      const NbdExportOptions&,
                                                                      NbdNeeds) {
  return WithoutLibrary();
}

absl::StatusOr<uint64_t> NbdConnection::QuerySize() { return WithoutLibrary(); }
absl::StatusOr<std::vector<std::string>> NbdConnection::ListContexts() { return WithoutLibrary(); }
absl::Status NbdConnection::Start(const std::string&) { return WithoutLibrary(); }
absl::StatusOr<uint64_t> NbdConnection::Size() const { return WithoutLibrary(); }
uint64_t NbdConnection::MinimumBlock() const { return 1; }
absl::Status NbdConnection::BlockStatus(uint64_t, uint64_t, NbdExtents&) {
  return WithoutLibrary();
}
absl::Status NbdConnection::Read(uint64_t, std::span<uint8_t>) { return WithoutLibrary(); }
absl::Status NbdConnection::Write(uint64_t, std::span<const uint8_t>) { return WithoutLibrary(); }
absl::Status NbdConnection::WriteZeros(uint64_t, uint64_t) { return WithoutLibrary(); }
absl::Status NbdConnection::Flush() { return WithoutLibrary(); }
bool NbdConnection::HasManyClients() const { return false; }
bool NbdConnection::IsReadOnly() const { return true; }
bool NbdConnection::usable() const { return false; }

#endif  // CBT_HAVE_LIBNBD

}  // namespace cbt
