#include "rpc/conformance/probe.h"

#include <condition_variable>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/cord.h"
#include "base/text.h"
#include "rpc/client/paged_inbound.h"
#include "rpc/client/unary_call.h"
#include "rpc/contract/completeness.h"
#include "rpc/http2/message_reader.h"
#include "rpc/transport/flat_message.h"

namespace cbt::rpc {
namespace {

// Passes messages one by one to a waiting thread; the transport reads no further until that thread
// asks for the next.
class Receiver final : public ClientCallHandler {
 public:
  bool OnMessage(absl::Cord message) override {
    const std::lock_guard lock(mutex_);
    message_ = std::move(message);
    changed_.notify_one();
    return false;
  }

  void OnEnd(const absl::Status& status) override {
    const std::lock_guard lock(mutex_);
    status_ = status;
    ended_ = true;
    // Under the lock: the waiting thread may destroy this at once.
    changed_.notify_one();
  }

  // The next message; empty at the end.
  std::optional<absl::Cord> Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return message_.has_value() || ended_; });
    return std::exchange(message_, std::nullopt);
  }

  absl::Status AwaitEnd() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    return status_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<absl::Cord> message_;
  absl::Status status_;
  bool ended_ = false;
};

// The call must not outlive its handler, even if memory runs out.
class CallEnd {
 public:
  CallEnd(ClientCall& call, Receiver& receiver) : call_(call), receiver_(receiver) {}
  ~CallEnd() {
    call_.Cancel();
    static_cast<void>(receiver_.AwaitEnd());
  }
  CallEnd(const CallEnd&) = delete;
  CallEnd& operator=(const CallEnd&) = delete;

 private:
  ClientCall& call_;
  Receiver& receiver_;
};

// The proof of completeness, and what must not be sent.
constexpr std::string_view kJudgedKeys[] = {
    kTupleCountKey, kReportedBytesKey, kStartingOffsetKey, kDigestKey,
    kCapacityKey,   kTypeKey,          kScopeKey,          "grpc-status-details-bin"};

absl::Status Decode(const Contract& contract, std::span<const uint8_t> bytes,
                    MetadataMessage& message, std::string& next_token) {
  if (contract.api != Api::kPaged) {
    absl::Status status = DecodeMetadataMessage(bytes, message);
    return status.ok() ? TranslateType(contract, message) : status;
  }
  SnapshotDeltaPage page;
  absl::Status status = DecodePage(bytes, page);
  message.type = BlockMetadataType::kVariableLength;
  message.capacity = page.capacity;
  message.tuples = std::move(page.tuples);
  next_token = std::move(page.next_token);
  return status;
}

// Adds a message to the answer, or records that it could not be decoded. `decoded`: reused memory.
bool Add(const Contract& contract, std::span<const uint8_t> bytes, MetadataMessage& decoded,
         ProbeAnswer& answer) {
  const absl::Status status = Decode(contract, bytes, decoded, answer.next_token);
  if (!status.ok()) {
    if (answer.decoding.ok()) answer.decoding = status;
    return false;
  }
  const size_t first = answer.tuples.size();
  const size_t count = decoded.tuples.size();
  answer.messages.push_back({.type = decoded.type,
                             .capacity = decoded.capacity,
                             .first = first,
                             .count = count,
                             .bytes = bytes.size()});
  answer.tuples.resize(first + count);
  for (size_t i = 0; i < count; ++i) answer.tuples.set(first + i, decoded.tuples[i]);
  return true;
}

}  // namespace

ProbeAnswer DecodeBody(const Contract& contract, std::string_view body) {
  ProbeAnswer answer;
  MetadataMessage decoded;
  http2::MessageReader reader(body.size());
  reader.Append(absl::Cord(AbslView(body)));
  absl::Cord message;
  while (reader.Next(message) == http2::MessageReader::Result::kMessage) {
    const absl::string_view bytes = message.Flatten();
    Add(contract, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, decoded, answer);
  }
  if (answer.decoding.ok() && !reader.AtBoundary()) {
    answer.decoding = absl::InvalidArgumentError("the body does not end with a message");
  }
  return answer;
}

ProbeAnswer Probe(Channel& channel, const Contract& contract, const std::string& path,
                  const std::string& request, const ProbeLimits& limits) {
  const auto began = std::chrono::steady_clock::now();
  ProbeAnswer answer;
  const std::unique_ptr<ClientCall> call =
      channel.NewCall(std::chrono::system_clock::now() + limits.timeout);
  Receiver receiver;
  call->Start(path, request, receiver);
  const CallEnd end(*call, receiver);
  FlatMessage flat;
  MetadataMessage decoded;
  while (const std::optional<absl::Cord> bytes = receiver.Take()) {
    // Not earlier: a transport may send nothing while no operation is pending.
    if (limits.stall.count() > 0 && answer.messages.empty()) {
      std::this_thread::sleep_for(limits.stall);
    }
    if (!Add(contract, flat.Of(*bytes), decoded, answer)) {
      call->ReadOn();
      continue;
    }
    answer.too_large = answer.tuples.size() > limits.max_tuples;
    if (answer.too_large ||
        (limits.cancel_after > 0 && answer.messages.size() >= limits.cancel_after)) {
      call->Cancel();
      break;
    }
    call->ReadOn();
  }
  answer.status = receiver.AwaitEnd();
  for (const std::string_view key : kJudgedKeys) {
    if (const auto value = call->Trailing(key)) answer.trailing.emplace(key, *value);
  }
  answer.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  return answer;
}

UnaryAnswer ProbeUnary(Channel& channel, const std::string& path, const std::string& request,
                       std::chrono::milliseconds timeout) {
  UnaryCall call(channel, std::chrono::system_clock::now() + timeout);
  const absl::StatusOr<absl::Cord> answer = call.Run(path, request);
  if (!answer.ok()) return {.status = answer.status()};
  return {.bytes = std::string(*answer)};
}

}  // namespace cbt::rpc
