// One call without checks or resumption, for judging the raw answer.
#ifndef CBT_RPC_CONFORMANCE_PROBE_H_
#define CBT_RPC_CONFORMANCE_PROBE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "cbt/extent.h"
#include "cbt/wire/message.h"
#include "rpc/contract/contract.h"
#include "rpc/transport/client_call.h"

namespace cbt::rpc {

// A message of an answer; its tuples are [first, first + count) of the answer's.
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
  // The error of the first message that could not be decoded, if any.
  absl::Status decoding = absl::OkStatus();
  absl::Status status = absl::OkStatus();
  std::map<std::string, std::string> trailing = {};  // of the keys that are judged
  std::chrono::milliseconds elapsed{0};
  bool too_large = false;  // more tuples than the limit; the call was cancelled

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

// Sends `request` to `path`, a method of `contract`, and reads the answer to its end; one page for
// the paged contract.
ProbeAnswer Probe(Channel& channel, const Contract& contract, const std::string& path,
                  const std::string& request, const ProbeLimits& limits);

// Decodes a whole body, messages with their prefixes, as Probe() does.
ProbeAnswer DecodeBody(const Contract& contract, std::string_view body);

// The answer of a unary call outside of the contracts, as bytes.
struct UnaryAnswer {
  absl::Status status = absl::OkStatus();
  std::string bytes = {};
};
UnaryAnswer ProbeUnary(Channel& channel, const std::string& path, const std::string& request,
                       std::chrono::milliseconds timeout);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONFORMANCE_PROBE_H_
