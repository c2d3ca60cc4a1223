#include "cbt/rpc/client.h"

#include <grpcpp/channel.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/absl_view.h"
#include "rpc/contract.h"
#include "rpc/grpc_library.h"
#include "rpc/listen_address.h"
#include "rpc/remote_stream.h"

namespace cbt::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr milliseconds kFirstBackoff{100};
constexpr milliseconds kLastBackoff{5000};

// Servers that were not told otherwise hang up on clients that ping more often than every five
// minutes.
constexpr int kKeepaliveTimeMs = 6 * 60'000;
constexpr int kKeepaliveTimeoutMs = 20'000;

std::shared_ptr<grpc::ChannelCredentials> Credentials(const ClientTlsOptions& tls) {
  if (!tls.enabled) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = tls.ca,
                               .pem_private_key = tls.private_key,
                               .pem_cert_chain = tls.certificate});
}

std::shared_ptr<grpc::Channel> Connect(const Address& address, const ClientTlsOptions& tls) {
  grpc::ChannelArguments arguments;
  // Each attempt has a connection of its own: gRPC would keep a broken one back for longer than
  // the cursor's own waits. Streams are resumed by the cursor, which knows where.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  return grpc::CreateCustomChannel(address.GrpcTarget(), Credentials(tls), arguments);
}

// What is asked for, and how a stream of it is opened at an offset.
class Caller {
 public:
  Caller(ListRequest request, Address address)
      : request_(std::move(request)), address_(std::move(address)) {
    if (request_.timeout.has_value()) {
      // Far below what would overflow the clock.
      constexpr milliseconds kLongest = std::chrono::hours{24 * 365};
      deadline_ = system_clock::now() + std::min(*request_.timeout, kLongest);
    }
  }

  const ListRequest& request() const noexcept { return request_; }
  RemoteStream::Deadline deadline() const noexcept { return deadline_; }

  std::unique_ptr<RemoteStream> Call(uint64_t offset) const {
    const std::string* base =
        request_.base_snapshot_id.has_value() ? &*request_.base_snapshot_id : nullptr;
    const MethodContract& method = base != nullptr ? kCsiContract.delta : kCsiContract.allocated;
    return std::make_unique<RemoteStream>(Connect(address_, request_.tls), method.path,
                                          EncodeRequest(method, base, request_.snapshot_id, offset,
                                                        request_.max_results, request_.secrets),
                                          deadline_);
  }

  StreamChecker Checker(uint64_t offset) const {
    return StreamChecker(offset, static_cast<uint32_t>(request_.max_results));
  }

 private:
  const ListRequest request_;
  const Address address_;
  RemoteStream::Deadline deadline_;
};

absl::Status NoMessage() {
  return absl::DataLossError("metadata stream: it ended without any message");
}

// A block size that tuples of the message show, when they lie on its multiples: what Seek() may
// round down to without missing anything.
uint64_t GranularityOf(const MetadataMessage& message) {
  if (message.type != BlockMetadataType::kFixedLength || message.tuples.empty()) return 1;
  const Extent tuple = message.tuples.front();
  if (tuple.length > kMaxGranularity || tuple.offset % tuple.length != 0) return 1;
  return tuple.length;
}

class RemoteCursorImpl final : public RemoteCursor {
 public:
  // `first` is the first message of `stream`; `checker` has passed it.
  RemoteCursorImpl(Caller caller, std::unique_ptr<RemoteStream> stream,
                   const StreamChecker& checker, MetadataMessage first)
      : RemoteCursor(first.capacity, GranularityOf(first)),
        caller_(std::move(caller)),
        type_(first.type),
        floor_(caller_.request().starting_offset),
        stream_(std::move(stream)),
        checker_(checker) {
    Take(std::move(first.tuples));
  }

  BlockMetadataType type() const noexcept override { return type_; }
  int resumes() const noexcept override { return resumes_; }

  // Waits until the server has ended a stream of which nothing is left to be handed on.
  absl::Status AwaitEnd() {
    while (!ended_) {
      if (absl::Status status = Receive(); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status DoSeek(uint64_t offset) override;
  absl::StatusOr<uint64_t> DoNext(ExtentBatch& batch) override;

  absl::Status Receive();
  absl::Status Resume(absl::Status reason);
  absl::Status Reopen();
  absl::Status CutAtFloor(Extent& first) const;
  void Take(TupleList tuples);

  const Caller caller_;
  const BlockMetadataType type_;

  // Where the stream goes on if it has to be opened again: where it was opened or sought to, then
  // the end of the last tuple.
  uint64_t floor_;
  bool floor_is_tuple_end_ = false;
  // What reaches below the floor is not passed on. Off only for a stream's very first tuple, which
  // a server may round down as it likes.
  bool floor_holds_ = false;

  std::unique_ptr<RemoteStream> stream_;
  std::optional<StreamChecker> checker_;
  TupleList tuples_;    // of the last message that had some
  size_t taken_ = 0;    // how many of them were handed on
  bool ended_ = false;  // the server said OK
  int resumes_ = 0;
  int resumes_in_a_row_ = 0;
};

void RemoteCursorImpl::Take(TupleList tuples) {
  if (tuples.empty()) return;
  tuples_ = std::move(tuples);
  taken_ = 0;
  floor_ = std::min(tuples_.back().end(), capacity());
  floor_is_tuple_end_ = true;
  floor_holds_ = true;
  resumes_in_a_row_ = 0;
}

// `first` is the first tuple of a stream that was opened at the floor; it ends after it.
absl::Status RemoteCursorImpl::CutAtFloor(Extent& first) const {
  if (!floor_holds_ || first.offset >= floor_) return absl::OkStatus();
  if (type_ == BlockMetadataType::kFixedLength && floor_is_tuple_end_) {
    return absl::DataLossError(absl::StrCat("metadata stream: resumed at ", floor_,
                                            ", the end of a block, it goes on with one at ",
                                            first.offset));
  }
  first = {floor_, first.end() - floor_};
  return absl::OkStatus();
}

// Takes one message, or the end of the stream. A stream that breaks is resumed.
absl::Status RemoteCursorImpl::Receive() {
  absl::StatusOr<std::optional<MetadataMessage>> message = stream_->Next();
  if (!message.ok()) return Resume(message.status());
  if (!message->has_value()) {
    ended_ = true;
    return absl::OkStatus();
  }
  if (absl::Status status = checker_->Check(**message); !status.ok()) return status;
  Take(std::move((*message)->tuples));
  return absl::OkStatus();
}

// Opens the stream again at the floor and takes its first message.
absl::Status RemoteCursorImpl::Reopen() {
  stream_.reset();
  stream_ = caller_.Call(floor_);
  checker_.emplace(caller_.Checker(floor_));
  absl::StatusOr<std::optional<MetadataMessage>> message = stream_->Next();
  if (!message.ok()) return message.status();
  if (!message->has_value()) {
    // Servers that have nothing to say at the very end are not always aware that they should.
    if (floor_ != capacity()) return NoMessage();
    ended_ = true;
    return absl::OkStatus();
  }
  MetadataMessage& first = **message;
  if (absl::Status status = checker_->Check(first); !status.ok()) return status;
  if (first.type != type_ || first.capacity != capacity()) {
    return absl::DataLossError(absl::StrCat(
        "metadata stream: opened again at ", floor_,
        " it is another one: ", AbslView(BlockMetadataTypeName(first.type)), " and capacity ",
        first.capacity, " after ", AbslView(BlockMetadataTypeName(type_)), " and ", capacity()));
  }
  if (!first.tuples.empty()) {
    Extent tuple = first.tuples.front();
    if (absl::Status status = CutAtFloor(tuple); !status.ok()) return status;
    first.tuples.set(0, tuple);
  }
  Take(std::move(first.tuples));
  return absl::OkStatus();
}

absl::Status RemoteCursorImpl::Resume(absl::Status reason) {
  bool lost = reason.code() == absl::StatusCode::kUnavailable;
  while (lost && resumes_in_a_row_ < caller_.request().max_resumes) {
    if (caller_.request().on_resume) caller_.request().on_resume(floor_, reason);
    const milliseconds wait =
        std::min(kFirstBackoff * (1 << std::min(resumes_in_a_row_, 10)), kLastBackoff);
    const RemoteStream::Deadline deadline = caller_.deadline();
    if (deadline.has_value() && system_clock::now() + wait >= *deadline) {
      return absl::DeadlineExceededError(absl::StrCat("metadata stream: no time left to resume at ",
                                                      floor_, " after: ", reason.message()));
    }
    std::this_thread::sleep_for(wait);
    ++resumes_in_a_row_;
    ++resumes_;
    reason = Reopen();
    // A server that shuts down cancels calls that it has not looked at yet; we cancel none.
    lost = reason.code() == absl::StatusCode::kUnavailable ||
           reason.code() == absl::StatusCode::kCancelled;
  }
  return reason;
}

absl::Status RemoteCursorImpl::DoSeek(uint64_t offset) {
  floor_ = offset;
  floor_is_tuple_end_ = false;
  floor_holds_ = true;
  tuples_.clear();
  taken_ = 0;
  ended_ = false;
  resumes_in_a_row_ = 0;
  return Reopen();
}

absl::StatusOr<uint64_t> RemoteCursorImpl::DoNext(ExtentBatch& batch) {
  // A tuple that reaches the capacity would complete the cursor; it waits for the server's OK.
  const auto held_back = [this] {
    return !ended_ && taken_ < tuples_.size() && tuples_.back().end() >= capacity();
  };
  if (!ended_ && (taken_ == tuples_.size() || held_back())) {
    if (absl::Status status = Receive(); !status.ok()) return status;
  }
  if (held_back()) return covered();
  const size_t count = std::min(batch.room(), tuples_.size() - taken_);
  for (size_t i = 0; i < count; ++i) batch.push_back(tuples_[taken_++]);
  if (ended_ && taken_ == tuples_.size()) return capacity();
  return batch.empty() ? covered() : batch.back().end();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteCursor>> RemoteCursor::Open(const ListRequest& request) {
  absl::StatusOr<Address> address = ParseAddress(request.address);
  if (!address.ok()) return address.status();
  if (request.starting_offset > kMaxCapacity) {
    return absl::OutOfRangeError(
        absl::StrCat("starting_offset ", request.starting_offset, " is past any capacity"));
  }
  KeepGrpcRunning();
  Caller caller(request, *std::move(address));
  StreamChecker checker = caller.Checker(request.starting_offset);
  std::unique_ptr<RemoteStream> stream = caller.Call(request.starting_offset);
  absl::StatusOr<std::optional<MetadataMessage>> first = stream->Next();
  if (!first.ok()) return first.status();
  if (!first->has_value()) return NoMessage();
  if (absl::Status status = checker.Check(**first); !status.ok()) return status;
  auto cursor = std::make_unique<RemoteCursorImpl>(std::move(caller), std::move(stream), checker,
                                                   **std::move(first));
  if (cursor->capacity() == 0) {
    // Complete before the first Next(), which then has no occasion to see how the stream ends.
    if (absl::Status status = cursor->AwaitEnd(); !status.ok()) return status;
  }
  return cursor;
}

}  // namespace cbt::rpc
