#include "cbt/c/stream.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "c/handles.h"
#include "c/service_handle.h"
#include "cbt/rpc/options.h"
#include "cbt/units.h"
#include "cbt/version.h"
#include "rpc/access/admission.h"
#include "rpc/contract/contract.h"
#include "rpc/contract/identity.h"
#include "rpc/contract/status.h"
#include "rpc/server/message_producer.h"
#include "rpc/server/outbound_feed.h"

namespace cbt::c {
namespace {

using Clock = rpc::MessageProducer::Clock;

constexpr uint64_t kMinMessageBytes = 4 * kKiB;
constexpr uint64_t kDefaultMessageBytes = 128 * kKiB;
constexpr uint64_t kMaxSlice = 3'600'000'000;  // microseconds: an hour

absl::StatusOr<rpc::StreamOptions> StreamOptionsOf(const cbt_service_options& given) {
  rpc::StreamOptions options;
  const uint64_t bytes = given.message_bytes == 0 ? kDefaultMessageBytes : given.message_bytes;
  if (bytes < kMinMessageBytes || bytes > rpc::kMaxMessageBytes) {
    return absl::InvalidArgumentError("message_bytes: expected 4 KiB to 1 MiB - 1");
  }
  options.message_bytes = static_cast<size_t>(bytes);
  switch (given.type) {
    case 0:
      break;
    case CBT_FIXED_LENGTH:
      options.shape.type = BlockMetadataType::kFixedLength;
      break;
    case CBT_VARIABLE_LENGTH:
      options.shape.type = BlockMetadataType::kVariableLength;
      break;
    default:
      return absl::InvalidArgumentError("type: unknown");
  }
  if (given.block_size > kMaxGranularity || given.alignment > kMaxGranularity) {
    return absl::InvalidArgumentError("block_size and alignment: expected at most 2^62");
  }
  options.shape.block_size = given.block_size;
  options.shape.alignment = given.alignment;
  options.shape.coalesce_gap = given.coalesce_gap;
  options.shape.max_extent = given.max_extent;
  return options;
}

// Takes the initial metadata from the producer, which gives its messages otherwise.
class Announced final : public rpc::MessageSink {
 public:
  explicit Announced(rpc::Metadata& initial) noexcept : initial_(initial) {}
  Want Check() override { return Want::kMore; }
  Want Offer(rpc::OutMessage) override { return Want::kMore; }
  void Announce(rpc::Metadata initial) override { initial_ = std::move(initial); }
  void Complete(absl::Status, rpc::Metadata, std::optional<rpc::OutMessage>) override {}

 private:
  rpc::Metadata& initial_;
};

const rpc::MethodContract* MetadataMethod(std::string_view path) {
  for (const rpc::MethodContract* method :
       {&rpc::kCsiContract.allocated, &rpc::kCsiContract.delta}) {
    if (path == method->path) return method;
  }
  return nullptr;
}

absl::StatusOr<rpc::AdmittedRequest> Admit(const rpc::MethodContract& method,
                                           std::span<const uint8_t> bytes) {
  absl::StatusOr<rpc::MetadataRequest> request = rpc::DecodeRequest(method, bytes);
  if (!request.ok()) return request.status();
  if (absl::Status status = rpc::CheckRequest(method, *request); !status.ok()) return status;
  absl::StatusOr<rpc::AdmittedRequest> admitted = absl::InternalError("not admitted");
  // Answers during the call.
  rpc::MakeOpenAdmission()->Admit(
      *std::move(request),
      [&](absl::StatusOr<rpc::AdmittedRequest> answer) { admitted = std::move(answer); });
  return admitted;
}

absl::StatusOr<std::string> IdentityAnswer(const StreamService& service, std::string_view path,
                                           std::span<const uint8_t> request) {
  std::string answer;
  if (service.plugin_name.empty()) {
    return absl::UnimplementedError(absl::StrCat("unknown method ", AbslView(path)));
  }
  if (path == rpc::kGetPluginInfo) {
    answer = rpc::PluginInfo(service.plugin_name, service.vendor_version);
  } else if (path == rpc::kGetPluginCapabilities) {
    answer = rpc::PluginCapabilities();
  } else if (path == rpc::kProbe) {
    answer = rpc::PluginReady();
  } else {
    return absl::UnimplementedError(absl::StrCat("unknown method ", AbslView(path)));
  }
  if (absl::Status status = rpc::CheckIdentityRequest(request); !status.ok()) return status;
  return answer;
}

std::vector<cbt_metadata> Entries(const rpc::Metadata& metadata) {
  std::vector<cbt_metadata> entries;
  for (const auto& [key, value] : metadata) {
    entries.push_back({.key = key.c_str(), .value = value.c_str()});
  }
  return entries;
}

}  // namespace
}  // namespace cbt::c

struct cbt_stream : cbt::c::Exclusive {
  explicit cbt_stream(std::shared_ptr<cbt::c::StreamService> of)
      : Exclusive(&kKind<cbt_stream>), service(std::move(of)) {}

  // First: everything else may use the provider.
  const std::shared_ptr<cbt::c::StreamService> service;
  std::stop_source stop;
  std::chrono::microseconds slice{0};  // 0: no limit

  // A stream of metadata, or the only message of another answer.
  std::unique_ptr<cbt::rpc::MessageProducer> producer;
  std::optional<std::string> answer;

  // What is sent beside messages; the entries point to it.
  cbt::rpc::Metadata initial;
  cbt::rpc::Metadata trailing;
  std::optional<std::vector<cbt_metadata>> initial_entries;   // once known
  std::optional<std::vector<cbt_metadata>> trailing_entries;  // once known

  std::optional<absl::Cord> last;  // the message that was returned last
  bool complete = false;
  absl::Status failure;
};

namespace cbt::c {
namespace {

void Deliver(cbt_stream& stream, rpc::OutMessage made, cbt_message& message) {
  stream.last = std::move(made.bytes);
  const absl::string_view bytes = stream.last->Flatten();
  message.data = reinterpret_cast<const uint8_t*>(bytes.data());
  message.size = bytes.size();
  message.tuples = made.tuples;
  message.reported_bytes = made.reported;
  message.state = CBT_STREAM_MESSAGE;
  if (!stream.initial_entries.has_value()) stream.initial_entries = Entries(stream.initial);
}

absl::Status Advance(cbt_stream& stream, cbt_message& message) {
  if (stream.complete) {
    if (!stream.trailing_entries.has_value()) stream.trailing_entries = Entries(stream.trailing);
    message.state = CBT_STREAM_END;
    return absl::OkStatus();
  }
  if (stream.stop.stop_requested()) return absl::CancelledError("the stream was cancelled");
  if (stream.answer.has_value()) {
    stream.complete = true;
    Deliver(stream, {.bytes = absl::Cord(*stream.answer)}, message);
    return absl::OkStatus();
  }
  const Clock::time_point yield_at =
      stream.slice.count() == 0 ? Clock::time_point::max() : Clock::now() + stream.slice;
  Announced sink(stream.initial);
  std::optional<rpc::OutMessage> made;
  absl::StatusOr<rpc::MessageProducer::Outcome> outcome =
      stream.producer->Run(stream.stop.get_token(), yield_at, sink, made);
  if (!outcome.ok()) return outcome.status();
  if (*outcome == rpc::MessageProducer::Outcome::kYield) {
    message.state = CBT_STREAM_YIELD;
    return absl::OkStatus();
  }
  if (*outcome == rpc::MessageProducer::Outcome::kComplete) {
    stream.trailing = stream.producer->Trailing();
    stream.complete = true;
    // The source is no longer needed; the client may take its time.
    stream.producer.reset();
    if (!made.has_value()) return Advance(stream, message);
  }
  Deliver(stream, *std::move(made), message);
  return absl::OkStatus();
}

}  // namespace
}  // namespace cbt::c

const char* cbt_request_base_borrowed(const cbt_request* request, uint64_t* size) noexcept {
  const bool has = cbt::c::Usable(request) && request->base.has_value();
  if (size != nullptr) *size = has ? request->base->size() : 0;
  return has ? request->base->c_str() : nullptr;
}

const char* cbt_request_target_borrowed(const cbt_request* request, uint64_t* size) noexcept {
  const bool has = cbt::c::Usable(request);
  if (size != nullptr) *size = has ? request->target.size() : 0;
  return has ? request->target.c_str() : nullptr;
}

const char* cbt_request_secret_borrowed(const cbt_request* request, const char* key,
                                        uint64_t* size) noexcept {
  const char* value = nullptr;
  if (size != nullptr) *size = 0;
  cbt::c::AtBorder(nullptr, [&]() -> absl::Status {
    if (!cbt::c::Usable(request) || key == nullptr) return absl::OkStatus();
    const std::optional<std::string_view> found = request->context->secrets.Get(key);
    if (!found.has_value()) return absl::OkStatus();
    // Of a std::string, so a NUL follows.
    value = found->data();
    if (size != nullptr) *size = found->size();
    return absl::OkStatus();
  });
  return value;
}

int32_t cbt_request_cancelled(const cbt_request* request) noexcept {
  return cbt::c::Usable(request) && request->context->stop.stop_requested() ? 1 : 0;
}

cbt_code cbt_answer_set_cursor(cbt_answer* answer, cbt_cursor* cursor, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    cbt::c::Proofs proofs;
    absl::StatusOr<std::unique_ptr<cbt::ExtentCursor>> taken =
        cbt::c::Consume(cursor, "cursor", proofs);
    if (!taken.ok()) return taken.status();
    if (absl::Status status = cbt::c::Check(answer, "answer"); !status.ok()) return status;
    answer->source.cursor = *std::move(taken);
    answer->source.proven = nullptr;
    if (!proofs.empty()) {
      answer->source.proven = [proofs = std::move(proofs)] {
        return std::all_of(proofs.begin(), proofs.end(), [](const auto& proof) { return proof(); });
      };
    }
    return absl::OkStatus();
  });
}

cbt_code cbt_answer_set_blocks(cbt_answer* answer, uint64_t block_size,
                               cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(answer, "answer"); !status.ok()) return status;
    if (block_size == 0 || block_size > cbt::kMaxGranularity) {
      return absl::InvalidArgumentError("block_size: expected 1 to 2^62");
    }
    answer->source.type = cbt::BlockMetadataType::kFixedLength;
    answer->source.block_size = block_size;
    return absl::OkStatus();
  });
}

cbt_code cbt_answer_set_version(cbt_answer* answer, const char* version, uint64_t size,
                                int32_t may_change, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (absl::Status status = cbt::c::Check(answer, "answer"); !status.ok()) return status;
    if (version == nullptr && size != 0) return cbt::c::IsNull("version");
    answer->source.version = size == 0 ? std::string() : std::string(version, size);
    answer->source.may_change_unseen = may_change != 0;
    return absl::OkStatus();
  });
}

cbt_code cbt_service_new(const cbt_provider* provider, const cbt_service_options* options,
                         cbt_service** service, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (service == nullptr) return cbt::c::IsNull("service");
    *service = nullptr;
    if (provider == nullptr) return cbt::c::IsNull("provider");
    cbt_provider callbacks;
    if (absl::Status status = cbt::c::ReadOptions(provider, "provider", callbacks); !status.ok()) {
      return status;
    }
    if (callbacks.open == nullptr) return cbt::c::IsNull("provider: open");
    cbt_service_options copy;
    if (absl::Status status = cbt::c::ReadOptions(options, "options", copy); !status.ok()) {
      return status;
    }
    if (copy.reserved != 0) return cbt::c::TooNew("options");
    const absl::StatusOr<cbt::rpc::StreamOptions> stream = cbt::c::StreamOptionsOf(copy);
    if (!stream.ok()) return stream.status();
    auto made = std::make_shared<cbt::c::StreamService>(callbacks, *stream);
    if (copy.plugin_name != nullptr) {
      if (absl::Status status = cbt::rpc::CheckPluginName(copy.plugin_name); !status.ok()) {
        return status;
      }
      made->plugin_name = copy.plugin_name;
      made->vendor_version = copy.vendor_version == nullptr ? cbt::kVersion : copy.vendor_version;
      for (const char* const method :
           {cbt::rpc::kGetPluginInfo, cbt::rpc::kGetPluginCapabilities, cbt::rpc::kProbe}) {
        made->methods.push_back(method);
      }
    }
    *service = new cbt_service(made);
    made->provider.Own();
    return absl::OkStatus();
  });
}

const char* cbt_service_method_borrowed(const cbt_service* service, uint64_t index) noexcept {
  if (!cbt::c::Usable(service) || index >= service->service->methods.size()) return nullptr;
  return service->service->methods[index];
}

void cbt_service_free(cbt_service* service) noexcept { cbt::c::Free(service); }

cbt_code cbt_stream_open(cbt_service* service, const char* method, const void* request,
                         uint64_t size, const cbt_stream_options* options, cbt_stream** stream,
                         cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (stream == nullptr) return cbt::c::IsNull("stream");
    *stream = nullptr;
    if (absl::Status status = cbt::c::Check(service, "service"); !status.ok()) return status;
    if (method == nullptr) return cbt::c::IsNull("method");
    if (request == nullptr && size != 0) return cbt::c::IsNull("request");
    cbt_stream_options copy;
    if (absl::Status status = cbt::c::ReadOptions(options, "options", copy); !status.ok()) {
      return status;
    }
    const std::span<const uint8_t> bytes(static_cast<const uint8_t*>(request),
                                         static_cast<size_t>(size));
    auto made = std::make_unique<cbt_stream>(service->service);
    made->slice = std::chrono::microseconds(std::min(copy.slice_us, cbt::c::kMaxSlice));
    const cbt::rpc::MethodContract* const metadata = cbt::c::MetadataMethod(method);
    if (metadata == nullptr) {
      absl::StatusOr<std::string> answer = cbt::c::IdentityAnswer(*service->service, method, bytes);
      if (!answer.ok()) return answer.status();
      made->answer = *std::move(answer);
    } else {
      absl::StatusOr<cbt::rpc::AdmittedRequest> admitted = cbt::c::Admit(*metadata, bytes);
      if (!admitted.ok()) return cbt::rpc::StatusForWire(admitted.status());
      std::optional<std::chrono::system_clock::time_point> deadline;
      if (copy.deadline_ns != 0) {
        deadline.emplace(std::chrono::duration_cast<std::chrono::system_clock::duration>(
            std::chrono::nanoseconds(copy.deadline_ns)));
      }
      made->producer = std::make_unique<cbt::rpc::MessageProducer>(
          cbt::rpc::kCsiContract, service->service->provider, *std::move(admitted),
          service->service->stream, service->service->pool, deadline);
    }
    *stream = made.release();
    return absl::OkStatus();
  });
}

cbt_code cbt_stream_next(cbt_stream* stream, cbt_message* message, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (message == nullptr) return cbt::c::IsNull("message");
    *message = cbt_message{};
    if (absl::Status status = cbt::c::Check(stream, "stream"); !status.ok()) return status;
    const cbt::c::Exclusive::Use use(*stream);
    if (!use) return cbt::c::IsBusy("stream");
    stream->last.reset();
    if (!stream->failure.ok()) return stream->failure;
    // In case something throws: what was lost then is not known.
    stream->failure = cbt::rpc::OutOfMemory();
    stream->failure = cbt::rpc::StatusForWire(cbt::c::Advance(*stream, *message));
    if (!stream->failure.ok()) *message = cbt_message{};
    return stream->failure;
  });
}

cbt_code cbt_stream_keep(cbt_stream* stream, cbt_bytes** bytes, cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (bytes == nullptr) return cbt::c::IsNull("bytes");
    *bytes = nullptr;
    if (absl::Status status = cbt::c::Check(stream, "stream"); !status.ok()) return status;
    const cbt::c::Exclusive::Use use(*stream);
    if (!use) return cbt::c::IsBusy("stream");
    if (!stream->last.has_value()) {
      return absl::FailedPreconditionError("stream: the last call returned no message");
    }
    // A copy of the cord shares its memory.
    const auto kept = std::make_shared<absl::Cord>(*stream->last);
    const absl::string_view view = kept->Flatten();
    *bytes = new cbt_bytes(
        cbt::SharedBytes(kept, {reinterpret_cast<const uint8_t*>(view.data()), view.size()}));
    return absl::OkStatus();
  });
}

cbt_code cbt_stream_metadata_borrowed(cbt_stream* stream, int32_t which,
                                      const cbt_metadata** entries, uint64_t* count,
                                      cbt_error** error) noexcept {
  return cbt::c::AtBorder(error, [&]() -> absl::Status {
    if (entries == nullptr || count == nullptr) return cbt::c::IsNull("entries and count");
    *entries = nullptr;
    *count = 0;
    if (absl::Status status = cbt::c::Check(stream, "stream"); !status.ok()) return status;
    if (which != CBT_INITIAL && which != CBT_TRAILING) {
      return absl::InvalidArgumentError("which: expected CBT_INITIAL or CBT_TRAILING");
    }
    const cbt::c::Exclusive::Use use(*stream);
    if (!use) return cbt::c::IsBusy("stream");
    const auto& known = which == CBT_INITIAL ? stream->initial_entries : stream->trailing_entries;
    if (!known.has_value()) {
      return absl::FailedPreconditionError(
          which == CBT_INITIAL ? "stream: no message was returned yet" : "stream: has not ended");
    }
    *entries = known->data();
    *count = known->size();
    return absl::OkStatus();
  });
}

void cbt_stream_cancel(cbt_stream* stream) noexcept {
  if (cbt::c::Usable(stream)) stream->stop.request_stop();
}

void cbt_stream_free(cbt_stream* stream) noexcept { cbt::c::Free(stream); }
