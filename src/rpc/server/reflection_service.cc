#include "rpc/server/reflection_service.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "rpc/contract/status.h"
#include "rpc/transport/flat_message.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::rpc {
namespace {

using wire::ProtoReader;
using wire::WireType;

constexpr unsigned char kDescriptorSet[] = {
#include "cbt_descriptors.inc"
};

// Fields of descriptor.proto.
constexpr uint32_t kSetFile = 1;
constexpr uint32_t kFileName = 1;
constexpr uint32_t kFilePackage = 2;
constexpr uint32_t kFileDependency = 3;
constexpr uint32_t kFileMessage = 4;
constexpr uint32_t kFileEnum = 5;
constexpr uint32_t kFileService = 6;
constexpr uint32_t kName = 1;  // of a message, an enum, a service

// Fields of reflection.proto.
constexpr uint32_t kRequestHost = 1;
constexpr uint32_t kRequestFileByName = 3;
constexpr uint32_t kRequestFileBySymbol = 4;
constexpr uint32_t kRequestListServices = 7;
constexpr uint32_t kResponseHost = 1;
constexpr uint32_t kResponseRequest = 2;
constexpr uint32_t kResponseFiles = 4;
constexpr uint32_t kResponseServices = 6;
constexpr uint32_t kResponseError = 7;

std::string NameOf(std::span<const uint8_t> declaration) {
  std::string name;
  ProtoReader reader(declaration);
  while (reader.Next()) {
    if (reader.Is(kName, WireType::kBytes)) name = reader.text();
  }
  return name;
}

}  // namespace

Descriptors::Descriptors() {
  ProtoReader set{std::span<const uint8_t>(kDescriptorSet)};
  while (set.Next()) {
    if (!set.Is(kSetFile, WireType::kBytes)) continue;
    File file{.bytes = set.text(), .imports = {}};
    std::string name;
    std::string package;
    std::vector<std::string> declared;
    ProtoReader reader(set.bytes());
    while (reader.Next()) {
      if (reader.wire_type() != WireType::kBytes) continue;
      switch (reader.field()) {
        case kFileName:
          name = reader.text();
          break;
        case kFilePackage:
          package = reader.text();
          break;
        case kFileDependency:
          file.imports.emplace_back(reader.text());
          break;
        case kFileMessage:
        case kFileEnum:
        case kFileService:
          declared.push_back(NameOf(reader.bytes()));
          break;
        default:
          break;
      }
    }
    for (const std::string& symbol : declared) {
      std::string full = package;
      full.append(package.empty() ? "" : ".").append(symbol);
      symbols_[full] = name;
    }
    files_[name] = std::move(file);
  }
}

void Descriptors::Collect(const std::string& name, std::vector<std::string>& names) const {
  const auto found = files_.find(name);
  if (found == files_.end() || std::find(names.begin(), names.end(), name) != names.end()) return;
  names.push_back(name);
  for (const std::string& import : found->second.imports) Collect(import, names);
}

std::vector<std::string_view> Descriptors::ByName(const std::string& name) const {
  std::vector<std::string> names;
  Collect(name, names);
  std::vector<std::string_view> files;
  files.reserve(names.size());
  for (const std::string& each : names) files.push_back(files_.at(each).bytes);
  return files;
}

std::vector<std::string_view> Descriptors::BySymbol(std::string_view symbol) const {
  // A nested symbol is in the file of its parent.
  while (!symbol.empty()) {
    if (const auto found = symbols_.find(symbol); found != symbols_.end()) {
      return ByName(found->second);
    }
    const size_t dot = symbol.rfind('.');
    symbol = symbol.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
  return {};
}

// Answers each request with one message. Lives until the transport has released it.
class ReflectionService::Call final : public CallHandler, public ServedCall {
 public:
  // `call` is valid until OnDone(); the service must outlive this.
  Call(ReflectionService& service, ServerCall& call, FairPlaces::Place place)
      : service_(service), place_(std::move(place)), call_(call) {}

  // Of the first message too, once the registry holds the call.
  void OnReadDone(bool ok, absl::Cord message) override {
    if (!ok) {
      Close(absl::OkStatus());
      return;
    }
    absl::Cord answer;
    try {
      if (message.size() > kMaxQuestionBytes) {
        Close(
            absl::InvalidArgumentError(absl::StrCat("reflection: the request has ", message.size(),
                                                    " bytes; the limit is ", kMaxQuestionBytes)));
        return;
      }
      answer = absl::Cord(service_.Answer(FlatMessage().Of(message)));
    } catch (const std::bad_alloc&) {
      Close(OutOfMemory());
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      if (closed_) return;
      writing_ = true;
      since_ = Clock::now();
    }
    call_.Write(std::move(answer));
  }

  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      since_ = Clock::now();
    }
    if (ok) {
      call_.StartRead();
    } else {
      Close(absl::CancelledError());
    }
  }

  void OnDone() override {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    service_.calls_.Remove(this);  // may destroy this
  }

  void End(absl::Status status) override {
    if (!Close(std::move(status))) Abort();
  }

  void Abort() override {
    const std::lock_guard lock(mutex_);
    NoteCancelled();
    if (!done_) call_.Cancel();
  }

  void CheckTimes(std::chrono::milliseconds stall, std::chrono::milliseconds) override {
    {
      const std::lock_guard lock(mutex_);
      if (Clock::now() - since_ <= stall) return;
      if (closed_ || writing_) {
        NoteCancelled();
        if (!done_) call_.Cancel();
        return;
      }
      closed_ = true;
      since_ = Clock::now();
    }
    call_.Finish(MakeStatusNoThrow(absl::StatusCode::kDeadlineExceeded,
                                   "reflection: no request arrived in time"));
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Ends the call, once, and not while a message is in flight.
  bool Close(absl::Status status) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || writing_) return false;
      closed_ = true;
      since_ = Clock::now();
    }
    call_.Finish(std::move(status));
    return true;
  }

  ReflectionService& service_;
  const FairPlaces::Place place_;
  ServerCall& call_;
  std::mutex mutex_;
  Clock::time_point since_ = Clock::now();  // when the last step was taken
  bool writing_ = false;
  bool closed_ = false;  // the transport has the status
  bool done_ = false;    // call_ is no longer valid
};

ReflectionService::ReflectionService(std::vector<std::string> services,
                                     std::chrono::milliseconds wait_limit)
    : services_(std::move(services)),
      places_(kMaxCalls),
      calls_(kMaxCalls, wait_limit, std::chrono::milliseconds{0}) {
  for (const char* common : {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                             "grpc.reflection.v1alpha.ServerReflection"}) {
    services_.emplace_back(common);
  }
  const auto open = [this](ServerCall& call, absl::Cord request) {
    return Open(call, std::move(request));
  };
  AddMethod("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", open);
  AddMethod("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", open);
}

absl::StatusOr<CallHandler*> ReflectionService::Open(ServerCall& call, absl::Cord request) {
  std::optional<FairPlaces::Place> place = places_.Take(call.peer());
  if (!place.has_value()) {
    return MakeStatusNoThrow(absl::StatusCode::kResourceExhausted,
                             "reflection: too many calls are open from this address");
  }
  const auto opened = std::make_shared<Call>(*this, call, *std::move(place));
  if (absl::Status status = calls_.Add(opened); !status.ok()) return status;
  opened->OnReadDone(true, std::move(request));
  // The registry keeps it until OnDone(), which comes only after this has returned.
  return opened.get();
}

std::string ReflectionService::Answer(std::span<const uint8_t> request) const {
  std::string host;
  uint32_t asked = 0;
  std::string argument;
  ProtoReader reader(request);
  while (reader.Next()) {
    if (reader.wire_type() != WireType::kBytes) continue;
    if (reader.field() == kRequestHost) {
      host = reader.text();
    } else if (reader.field() >= kRequestFileByName && reader.field() <= kRequestListServices) {
      asked = reader.field();
      argument = reader.text();
    }
  }
  std::string response;
  wire::AppendBytesField(response, kResponseHost, host);
  wire::AppendBytesFieldAlways(response, kResponseRequest,
                               {reinterpret_cast<const char*>(request.data()), request.size()});
  const auto fail = [&response](absl::StatusCode code, std::string_view text) {
    std::string error;
    wire::AppendVarintField(error, 1, static_cast<uint64_t>(code));
    wire::AppendBytesField(error, 2, text);
    wire::AppendBytesFieldAlways(response, kResponseError, error);
  };
  if (!reader.status().ok()) {
    fail(absl::StatusCode::kInvalidArgument, "not a request of the reflection service");
  } else if (asked == kRequestListServices) {
    std::string list;
    for (const std::string& name : services_) {
      std::string service;
      wire::AppendBytesField(service, 1, name);
      wire::AppendBytesFieldAlways(list, 1, service);
    }
    wire::AppendBytesFieldAlways(response, kResponseServices, list);
  } else if (asked == kRequestFileByName || asked == kRequestFileBySymbol) {
    const std::vector<std::string_view> files = asked == kRequestFileByName
                                                    ? descriptors_.ByName(argument)
                                                    : descriptors_.BySymbol(argument);
    std::string list;
    for (const std::string_view file : files) wire::AppendBytesFieldAlways(list, 1, file);
    if (files.empty()) {
      fail(absl::StatusCode::kNotFound, "unknown file or symbol");
    } else {
      wire::AppendBytesFieldAlways(response, kResponseFiles, list);
    }
  } else {
    fail(absl::StatusCode::kUnimplemented, "proto3 has no extensions");
  }
  return response;
}

}  // namespace cbt::rpc
