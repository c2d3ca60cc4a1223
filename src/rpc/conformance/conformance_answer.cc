// Rules that a single answer shows.
#include <algorithm>
#include <chrono>
#include <limits>

#include "base/text.h"
#include "rpc/conformance/conformance_checker.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/identity.h"
#include "wire/proto_reader.h"

namespace cbt::rpc {

absl::Status ConformanceChecker::Connect() const {
  const absl::Status status =
      channel_->Connect(std::chrono::system_clock::now() + options_.call_timeout);
  if (status.ok()) return status;
  return absl::UnavailableError(StrCat("no connection: ", status.message()));
}

void ConformanceChecker::CheckAnswer() {
  Rule("well-formed", "every message is a protobuf message of the contract",
       [&] { return full_.decoding.ok() ? Pass() : Fail(std::string(full_.decoding.message())); });
  Rule("order", "tuples ascend and never overlap, also across messages", [&] {
    if (const auto skip = WithoutMessages()) return *skip;
    return CheckOrder(full_);
  });
  Rule("sizes", "every tuple has a size above 0", [&] {
    if (const auto skip = WithoutMessages()) return *skip;
    for (size_t i = 0; i < full_.tuples.size(); ++i) {
      if (full_.tuples[i].length == 0)
        return Fail(StrCat("tuple ", i, ": ", Text(full_.tuples[i])));
    }
    return Pass();
  });
  Rule("inside", "tuples lie inside the capacity; the last of FIXED_LENGTH may reach past it", [&] {
    if (const auto skip = WithoutMessages()) return *skip;
    return CheckInside(full_);
  });
  if (contract_.api != Api::kPaged) {
    Rule("constant", "type and capacity are the same in every message of a stream", [&] {
      if (const auto skip = WithoutMessages()) return *skip;
      for (const ProbedMessage& message : full_.messages) {
        if (message.type != full_.messages.front().type ||
            message.capacity != full_.messages.front().capacity) {
          return Fail(StrCat("a message has ", AbslView(BlockMetadataTypeName(message.type)),
                             " and ", message.capacity, " after ",
                             AbslView(BlockMetadataTypeName(full_.messages.front().type)), " and ",
                             full_.messages.front().capacity));
        }
      }
      return Pass();
    });
    Rule("type", "the type is FIXED_LENGTH or VARIABLE_LENGTH", [&] {
      if (const auto skip = WithoutMessages()) return *skip;
      for (const ProbedMessage& message : full_.messages) {
        if (message.type == BlockMetadataType::kUnknown) return Fail("a message has type UNKNOWN");
      }
      return Pass();
    });
    Rule("capacity-above-zero", "every message has the volume's capacity, and it is not 0", [&] {
      if (const auto skip = WithoutMessages()) return *skip;
      for (const ProbedMessage& message : full_.messages) {
        if (message.capacity == 0)
          return Fail("a message has no volume_capacity_bytes, or it is 0");
      }
      return Pass();
    });
    Rule("fixed-size", "every tuple of a FIXED_LENGTH stream has the same size", [&] {
      if (full_.messages.empty() ||
          full_.messages.front().type != BlockMetadataType::kFixedLength) {
        return Skip("the stream is not FIXED_LENGTH");
      }
      for (size_t i = 1; i < full_.tuples.size(); ++i) {
        if (full_.tuples[i].length != full_.tuples[0].length) {
          return Fail(StrCat("tuple ", i, " is ", Text(full_.tuples[i]), ", the first has ",
                             full_.tuples[0].length, " bytes"));
        }
      }
      return Pass();
    });
    Rule("first-message", "a stream carries at least one message", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      return full_.messages.empty() ? Fail("OK without a message") : Pass();
    });
    Rule("proof", "a proof of completeness, if sent, matches the stream", [&] {
      if (const auto skip = WithoutAnswer()) return *skip;
      return CheckProofOf(full_, 0);
    });
  }
  Rule("capacity", "both methods report the target snapshot's capacity", [&] {
    if (!delta_) {
      if (full_.ok()) allocated_capacity_ = full_.capacity();
      return Skip("needs a delta to compare with");
    }
    if (const auto skip = WithoutAnswer()) return *skip;
    if (!allocated_capacity_.has_value()) return Skip("no answer about what is allocated");
    if (full_.capacity() == *allocated_capacity_) return Pass();
    return Fail(StrCat("allocated says ", *allocated_capacity_, ", the delta ", full_.capacity()));
  });
}

Finding ConformanceChecker::CheckOrder(const ProbeAnswer& answer) {
  for (size_t i = 1; i < answer.tuples.size(); ++i) {
    if (answer.tuples[i].offset < answer.tuples[i - 1].end()) {
      return Fail(
          StrCat("tuple ", i, " ", Text(answer.tuples[i]), " after ", Text(answer.tuples[i - 1])));
    }
  }
  return Pass();
}

Finding ConformanceChecker::CheckInside(const ProbeAnswer& answer) {
  const uint64_t capacity = answer.capacity();
  const bool fixed =
      !answer.messages.empty() && answer.messages.front().type == BlockMetadataType::kFixedLength;
  for (size_t i = 0; i < answer.tuples.size(); ++i) {
    const Extent tuple = answer.tuples[i];
    const bool last = i + 1 == answer.tuples.size();
    if (tuple.offset >= capacity || (tuple.end() > capacity && !(fixed && last))) {
      return Fail(StrCat("tuple ", i, " ", Text(tuple), ", capacity ", capacity));
    }
  }
  return Pass();
}

Finding ConformanceChecker::CheckProofOf(const ProbeAnswer& answer, uint64_t offset) {
  StreamDigest digest;
  digest.Add(answer.tuples.offsets(), answer.tuples.lengths());
  std::optional<StreamHeader> header;
  if (!answer.messages.empty()) header = {answer.messages.front().type, answer.capacity()};
  std::string what;
  switch (CheckProof(
      [&answer](std::string_view key) -> std::optional<std::string_view> {
        const auto found = answer.trailing.find(std::string(key));
        if (found == answer.trailing.end()) return std::nullopt;
        return found->second;
      },
      digest, offset, header, what)) {
    case ProofVerdict::kAbsent:
      return Skip("the server sends no proof");
    case ProofVerdict::kDiffers:
      return Fail(what);
    case ProofVerdict::kHolds:
    case ProofVerdict::kHoldsForPlace:
    case ProofVerdict::kHoldsFromRelay:
      break;
  }
  return Pass();
}

void ConformanceChecker::CheckMessages() {
  Rule("max-results", "max_results limits the tuples of each message, not those of the stream",
       [&] {
         if (const auto skip = WithoutAnswer()) return *skip;
         const auto count = static_cast<int64_t>(full_.tuples.size());
         for (const int64_t most : {int64_t{1}, int64_t{2}, int64_t{7}, std::max<int64_t>(count, 1),
                                    count + 1, int64_t{std::numeric_limits<int32_t>::max()}}) {
           const ProbeAnswer answer = AskFrom(0, most);
           if (!answer.ok()) return Fail(StrCat("max_results ", most, ": ", Text(answer)));
           for (const ProbedMessage& message : answer.messages) {
             if (message.count > static_cast<uint64_t>(most)) {
               return Fail(StrCat("max_results ", most, ": a message of ", message.count));
             }
           }
           if (const auto difference = Difference(Coverage(full_.tuples, 0, full_.capacity()),
                                                  Coverage(answer.tuples, 0, full_.capacity()))) {
             return Fail(StrCat("max_results ", most, ": ", *difference));
           }
         }
         return Pass();
       });
  Rule("max-results-same-tuples", "max_results changes where messages end, not the tuples", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    const ProbeAnswer answer = AskFrom(0, 1);
    if (!answer.ok()) return Fail(Text(answer));
    if (SameTuples(answer.tuples, full_.tuples)) return Pass();
    return Fail(StrCat("max_results 1 gives ", answer.tuples.size(), " tuples, 0 gives ",
                       full_.tuples.size()));
  });
  Rule("message-bytes", "every message is smaller than the 4 MiB that clients refuse", [&] {
    for (const int64_t most : {int64_t{0}, int64_t{std::numeric_limits<int32_t>::max()}}) {
      const ProbeAnswer answer = most == 0 ? full_ : AskFrom(0, most);
      if (answer.status.code() == StatusCode::kResourceExhausted) {
        return Fail(StrCat("max_results ", most, ": ", Text(answer)));
      }
      for (const ProbedMessage& message : answer.messages) {
        if (message.bytes > kClientMessageLimit * 3 / 4) {
          return Fail(StrCat("max_results ", most, ": a message of ", message.bytes, " bytes"));
        }
      }
    }
    return Pass();
  });
  Rule("no-idle-messages", "messages without tuples are sent only if the stream has none", [&] {
    if (const auto skip = WithoutAnswer()) return *skip;
    if (full_.tuples.empty()) return Skip("the stream has no tuples");
    for (const ProbedMessage& message : full_.messages) {
      if (message.count == 0) return Skip("the server sends empty messages, which is allowed");
    }
    return Pass();
  });
}

void ConformanceChecker::CheckIdentity() {
  method_ = "service";
  const auto call = [this](const char* path) {
    return ProbeUnary(*channel_, path, "", options_.call_timeout);
  };
  const auto bytes_of = [](const UnaryAnswer& answer) {
    return std::span<const uint8_t>(reinterpret_cast<const uint8_t*>(answer.bytes.data()),
                                    answer.bytes.size());
  };
  Rule("plugin-name", "GetPluginInfo returns a domain name of at most 63 characters", [&] {
    const UnaryAnswer answer = call("/csi.v1.Identity/GetPluginInfo");
    if (!answer.status.ok()) return Fail(Text(answer.status));
    std::string name;
    wire::ProtoReader reader(bytes_of(answer));
    while (reader.Next()) {
      if (reader.Is(1, wire::WireType::kBytes)) {
        name = reader.text();
      }
    }
    const absl::Status status = CheckPluginName(name);
    return status.ok() ? Pass() : Fail(StrCat("'", name, "': ", status.message()));
  });
  Rule("capability", "GetPluginCapabilities lists SNAPSHOT_METADATA_SERVICE", [&] {
    const UnaryAnswer answer = call("/csi.v1.Identity/GetPluginCapabilities");
    if (!answer.status.ok()) return Fail(Text(answer.status));
    wire::ProtoReader list(bytes_of(answer));
    while (list.Next()) {
      if (!list.Is(1, wire::WireType::kBytes)) continue;
      wire::ProtoReader capability(list.bytes());
      while (capability.Next()) {
        if (!capability.Is(1, wire::WireType::kBytes)) continue;
        wire::ProtoReader service(capability.bytes());
        while (service.Next()) {
          if (service.Is(1, wire::WireType::kVarint) && service.varint() == 4) return Pass();
        }
      }
    }
    return Fail("SNAPSHOT_METADATA_SERVICE is not listed");
  });
  Rule("probe", "Probe is OK", [&] {
    const UnaryAnswer answer = call("/csi.v1.Identity/Probe");
    return answer.status.ok() ? Pass() : Fail(Text(answer.status));
  });
}

}  // namespace cbt::rpc
