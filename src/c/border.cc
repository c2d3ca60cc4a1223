#include "c/border.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/text.h"

#ifdef CBT_C_CHECKED
#include <mutex>
#include <unordered_map>
#endif

namespace cbt::c {
namespace {

// For when there is no memory for an error. Never freed.
cbt_error* OutOfMemoryError() noexcept {
  static cbt_error error{.code = CBT_RESOURCE_EXHAUSTED, .message = "out of memory"};
  return &error;
}

cbt_error* MakeError(cbt_code code, std::string_view message) noexcept try {
  return new cbt_error{.code = code, .message = std::string(message)};
} catch (...) {
  return OutOfMemoryError();
}

cbt_code SetError(cbt_error* made, cbt_error** error) noexcept {
  const cbt_code code = made->code;
  if (error != nullptr) {
    *error = made;
  } else {
    cbt_error_free(made);
  }
  return code;
}

constexpr bool IsFailure(cbt_code code) { return code > CBT_OK && code <= CBT_UNAUTHENTICATED; }

}  // namespace

cbt_code Fail(const absl::Status& status, cbt_error** error) noexcept {
  const auto code = static_cast<cbt_code>(status.code());
  if (error == nullptr) return code;
  const std::string_view message(status.message().data(), status.message().size());
  return SetError(MakeError(code, message), error);
}

cbt_code FailCaught(cbt_error** error) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return SetError(OutOfMemoryError(), error);
  } catch (const std::length_error&) {
    return SetError(MakeError(CBT_RESOURCE_EXHAUSTED, "more elements than memory can hold"), error);
  } catch (const std::system_error&) {
    return SetError(MakeError(CBT_RESOURCE_EXHAUSTED, "the system can't start more threads"),
                    error);
  } catch (...) {
    // The text is constant because what() may hold anything.
    return SetError(MakeError(CBT_INTERNAL, "an exception was thrown"), error);
  }
}

absl::Status FromCallback(cbt_code code, cbt_error* error) {
  if (code == CBT_OK) {
    cbt_error_free(error);
    return absl::OkStatus();
  }
  std::string message =
      error != nullptr ? error->message : std::string("the callback failed without a message");
  cbt_error_free(error);
  return {IsFailure(code) ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
          message};
}

void Release(void (*release)(void*), void* owner) noexcept {
  if (release == nullptr) return;
  try {
    release(owner);
  } catch (...) {
    return;
  }
}

absl::Status IsNull(std::string_view name) {
  return absl::InvalidArgumentError(absl::StrCat(AbslView(name), ": NULL is not allowed"));
}

absl::Status IsFreed(std::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(name), ": the handle was freed or consumed, or never made"));
}

absl::Status IsBusy(std::string_view name) {
  return absl::FailedPreconditionError(
      absl::StrCat(AbslView(name), ": another call uses the handle; one at a time may"));
}

absl::Status BadSize(std::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat(AbslView(name), ": struct_size is not set; begin with CBT_INIT"));
}

absl::Status TooNew(std::string_view name) {
  return absl::UnimplementedError(
      absl::StrCat(AbslView(name),
                   ": sets a member that this version of libcbt does not know; use a newer one"));
}

#ifdef CBT_C_CHECKED
namespace {

struct LiveHandles {
  std::mutex mutex;
  std::unordered_map<const Handle*, const char*> handles;
};

// Never destroyed: handles may be freed after the end of main().
LiveHandles& Live() {
  static auto* const live = new LiveHandles;
  return *live;
}

}  // namespace

Handle::Handle(const char* kind) {
  const std::lock_guard lock(Live().mutex);
  Live().handles.emplace(this, kind);
}

Handle::~Handle() {
  const std::lock_guard lock(Live().mutex);
  Live().handles.erase(this);
}

bool Handle::IsLive(const Handle* handle, const char* kind) {
  const std::lock_guard lock(Live().mutex);
  const auto found = Live().handles.find(handle);
  return found != Live().handles.end() && found->second == kind;
}
#endif

}  // namespace cbt::c

const char* cbt_code_name(cbt_code code) noexcept {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  return code >= CBT_OK && code <= CBT_UNAUTHENTICATED ? kNames[code] : "UNKNOWN";
}

cbt_error* cbt_error_new(cbt_code code, const char* message, uint64_t size) noexcept {
  const std::string_view text =
      message == nullptr ? std::string_view() : std::string_view(message, size);
  return cbt::c::MakeError(cbt::c::IsFailure(code) ? code : CBT_UNKNOWN, text);
}

cbt_code cbt_error_code(const cbt_error* error) noexcept {
  return error == nullptr ? CBT_OK : error->code;
}

const char* cbt_error_message_borrowed(const cbt_error* error) noexcept {
  return error == nullptr ? "" : error->message.c_str();
}

void cbt_error_free(cbt_error* error) noexcept {
  if (error != cbt::c::OutOfMemoryError()) delete error;
}
