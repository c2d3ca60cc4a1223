// One call as it is, without checks and without resuming: what came, byte for byte.
#ifndef CBT_RPC_CONFORMANCE_PROBE_H_
#define CBT_RPC_CONFORMANCE_PROBE_H_

#include <grpcpp/channel.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cbt/metadata_type.h"
#include "cbt/wire/message.h"
#include "rpc/contract/contract.h"

namespace cbt::rpc {

// A message of an answer; its tuples lie at [first, first + count) of the answer's.
struct ProbedMessage {
  BlockMetadataType type = BlockMetadataType::kUnknown;
  uint64_t capacity = 0;
  size_t first = 0;
  size_t count = 0;
  size_t bytes = 0;
};

struct ProbeAnswer {
  std::vector<ProbedMessage> messages = {};
  TupleList tuples = {};
  std::string next_token = {};  // of a page
  // The first message that could not be read, if any.
  absl::Status decoding = absl::OkStatus();
  absl::Status status = absl::OkStatus();
  std::map<std::string, std::string> trailing = {};
  std::chrono::milliseconds elapsed{0};
  bool too_large = false;  // more tuples than asked for; the call was cancelled

  bool ok() const noexcept { return status.ok() && decoding.ok(); }
  uint64_t capacity() const noexcept { return messages.empty() ? 0 : messages.front().capacity; }
};

struct ProbeLimits {
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  size_t max_tuples = 4'000'000;
  // Cancels after this many messages; 0: never.
  size_t cancel_after = 0;
  // Waits this long after the first message.
  std::chrono::milliseconds stall{0};
};

// Sends `request` to `path`, which is a method of `contract`, and reads the answer to its end. For
// the paged contract one page.
ProbeAnswer Probe(const std::shared_ptr<grpc::Channel>& channel, const Contract& contract,
                  const std::string& path, const std::string& request, const ProbeLimits& limits);

// A unary call that is none of the contracts': the bytes of the response.
struct UnaryAnswer {
  absl::Status status = absl::OkStatus();
  std::string bytes = {};
};
UnaryAnswer ProbeUnary(const std::shared_ptr<grpc::Channel>& channel, const std::string& path,
                       const std::string& request, std::chrono::milliseconds timeout);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONFORMANCE_PROBE_H_
