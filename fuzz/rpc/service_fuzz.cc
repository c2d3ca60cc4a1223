// Untrusted requests through the core of the service, without the transport: decoding, checks,
// admission, the provider's cursor, shaping, messages. The result is an error with a code of the
// contract, or a stream that keeps every rule, reports what the volume holds from the starting
// offset on, and can be resumed wherever it is cut. The first four bytes choose the method, how
// ranges are reported, and where the stream is cut.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cbt/units.h"
#include "cbt/wire/checker.h"
#include "cbt/wire/message.h"
#include "fuzz/support/check.h"
#include "rpc/access/admission.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/contract.h"
#include "rpc/server/message_producer.h"
#include "rpc/transport/flat_message.h"
#include "rpc/transport/slice_pool.h"
#include "tests/support/cursors.h"

namespace {

using cbt::BlockMetadataType;
using cbt::reference::ByteSet;
using cbt::reference::Ranges;
using cbt::rpc::AdmittedRequest;
using cbt::rpc::Contract;
using cbt::rpc::MessageProducer;

constexpr uint64_t kCapacity = 20'011;
constexpr uint64_t kBlock = 16;

// A volume with runs and gaps of 1 to 12 bytes.
const ByteSet& Volume(bool delta) {
  static const auto make = [](uint64_t seed) {
    ByteSet set(kCapacity);
    for (size_t i = 0; i < set.size();) {
      seed = seed * 6364136223846793005 + 1442695040888963407;
      const size_t run = 1 + (seed >> 33) % 12;
      const size_t gap = 1 + (seed >> 43) % 12;
      for (size_t k = i; k < i + run && k < set.size(); ++k) set[k] = true;
      i += run + gap;
    }
    return set;
  };
  static const ByteSet allocated = make(1);
  static const ByteSet changed = make(2);
  return delta ? changed : allocated;
}

class Provider final : public cbt::SnapshotProvider {
 public:
  explicit Provider(bool blocks) : blocks_(blocks) {}

  absl::StatusOr<cbt::MetadataSource> OpenAllocated(std::string_view id,
                                                    const cbt::StreamContext&) override {
    return Open(id, false);
  }
  absl::StatusOr<cbt::MetadataSource> OpenDelta(std::string_view base, std::string_view target,
                                                const cbt::StreamContext&) override {
    CBT_FUZZ_CHECK(!base.empty());
    return Open(target, true);
  }

 private:
  absl::StatusOr<cbt::MetadataSource> Open(std::string_view id, bool delta) const {
    CBT_FUZZ_CHECK(!id.empty());
    if (id[0] == 'x') return absl::NotFoundError("no such snapshot");
    static const Ranges runs[] = {cbt::reference::RunsOf(Volume(false)),
                                  cbt::reference::RunsOf(Volume(true))};
    cbt::MetadataSource source;
    source.cursor = cbt::test::CursorOver(runs[delta ? 1 : 0], kCapacity);
    source.type = blocks_ ? BlockMetadataType::kFixedLength : BlockMetadataType::kVariableLength;
    source.block_size = blocks_ ? kBlock : 0;
    return source;
  }

  const bool blocks_;
};

class Sink final : public cbt::rpc::MessageSink {
 public:
  Want Check() override { return Want::kMore; }
  Want Offer(cbt::rpc::OutMessage) override { return Want::kMore; }
  void Announce(cbt::rpc::Metadata) override { ++announced; }
  void Complete(absl::Status, cbt::rpc::Metadata, std::optional<cbt::rpc::OutMessage>) override {}
  int announced = 0;
};

struct Stream {
  absl::Status status;
  bool complete = false;
  Ranges tuples;
  uint64_t resume_at = 0;
};

// One stream, or its first `most` messages.
Stream Play(const Contract& contract, Provider& provider, const AdmittedRequest& request,
            const cbt::rpc::StreamOptions& options, size_t most) {
  static const auto pool = cbt::rpc::SlicePool::Create(4096, cbt::kMiB);
  AdmittedRequest copy{.base_snapshot_id = request.base_snapshot_id,
                       .target_snapshot_id = request.target_snapshot_id,
                       .starting_offset = request.starting_offset,
                       .max_results = request.max_results,
                       .secrets = request.secrets.Copy()};
  MessageProducer producer(contract, provider, std::move(copy), options, pool, std::nullopt);
  cbt::StreamChecker checker(request.starting_offset, request.max_results);
  cbt::StreamDigest digest;
  Sink sink;
  Stream stream;
  const auto never = MessageProducer::Clock::now() + std::chrono::hours(1);
  cbt::MetadataMessage message;
  for (size_t i = 0; i < most && !stream.complete; ++i) {
    // Not seen in the stream.
    if (i % 2 == 1) producer.Compact();
    std::optional<cbt::rpc::OutMessage> out;
    const auto outcome = producer.Run({}, never, sink, out);
    if (!outcome.ok()) {
      stream.status = outcome.status();
      CBT_FUZZ_CHECK(!out.has_value());
      return stream;
    }
    stream.complete = *outcome == MessageProducer::Outcome::kComplete;
    CBT_FUZZ_CHECK(out.has_value() || stream.complete);
    if (!out.has_value()) continue;
    cbt::rpc::FlatMessage message_bytes;
    const std::span<const uint8_t> flat = message_bytes.Of(out->bytes);
    CBT_FUZZ_CHECK(flat.size() <= options.message_bytes);
    CBT_FUZZ_CHECK(cbt::DecodeMetadataMessage(flat, message).ok());
    CBT_FUZZ_CHECK(cbt::rpc::TranslateType(contract, message).ok());
    CBT_FUZZ_CHECK(checker.Check(message).ok());
    CBT_FUZZ_CHECK(message.capacity == kCapacity && message.tuples.size() == out->tuples);
    digest.Add(message.tuples.offsets(), message.tuples.lengths());
    for (size_t k = 0; k < message.tuples.size(); ++k) {
      stream.tuples.emplace_back(message.tuples[k].offset, message.tuples[k].length);
    }
  }
  CBT_FUZZ_CHECK(sink.announced == 1);
  stream.resume_at = checker.resume_offset();
  if (stream.complete) {
    CBT_FUZZ_CHECK(checker.messages() > 0);
    const cbt::rpc::Metadata proof = producer.Trailing();
    std::string what;
    const auto look = [&proof](std::string_view key) -> std::optional<std::string_view> {
      for (const auto& [name, value] : proof) {
        if (name == key) return value;
      }
      return std::nullopt;
    };
    const cbt::rpc::StreamHeader header{message.type, kCapacity};
    CBT_FUZZ_CHECK(cbt::rpc::CheckProof(look, digest, request.starting_offset, header, what) ==
                   cbt::rpc::ProofVerdict::kHolds);
  }
  return stream;
}

// Everything that a volume reports.
const Ranges& Whole(bool delta, bool blocks, const cbt::rpc::StreamShape& shape) {
  static std::map<std::tuple<bool, bool, uint64_t, uint64_t>, Ranges> known;
  const auto [at, is_new] = known.try_emplace({delta, blocks, shape.alignment, shape.coalesce_gap});
  if (is_new) {
    ByteSet set = Volume(delta);
    if (shape.alignment > 1) set = cbt::reference::RoundedOutward(set, shape.alignment);
    if (shape.coalesce_gap > 0) set = cbt::reference::Bridged(set, shape.coalesce_gap);
    at->second = blocks ? cbt::reference::BlocksOf(set, kBlock) : cbt::reference::RunsOf(set);
  }
  return at->second;
}

// What a stream must report from `start` on.
Ranges Wanted(bool delta, bool blocks, const cbt::rpc::StreamShape& shape, uint64_t start) {
  const uint64_t unit = blocks ? kBlock : std::max<uint64_t>(shape.alignment, 1);
  if (start == kCapacity) return {};
  return cbt::reference::CutAt(Whole(delta, blocks, shape), start / unit * unit);
}

void Serve(const Contract& contract, const AdmittedRequest& request, bool blocks,
           const cbt::rpc::StreamOptions& options, size_t cut) {
  Provider provider(blocks);
  Stream stream = Play(contract, provider, request, options, 1 + cut);
  if (!stream.status.ok()) {
    const bool known = request.target_snapshot_id[0] != 'x';
    CBT_FUZZ_CHECK(stream.status.code() ==
                   (known ? absl::StatusCode::kOutOfRange : absl::StatusCode::kNotFound));
    CBT_FUZZ_CHECK(!known || request.starting_offset > kCapacity);
    return;
  }
  CBT_FUZZ_CHECK(request.starting_offset <= kCapacity);
  if (!stream.complete) {
    // Resume, like a client whose connection broke.
    AdmittedRequest rest{.base_snapshot_id = request.base_snapshot_id,
                         .target_snapshot_id = request.target_snapshot_id,
                         .starting_offset = stream.resume_at,
                         .max_results = 0,
                         .secrets = {}};
    CBT_FUZZ_CHECK(rest.starting_offset > request.starting_offset);
    if (rest.starting_offset <= kCapacity) {
      const Stream second = Play(contract, provider, rest, options, SIZE_MAX);
      CBT_FUZZ_CHECK(second.status.ok() && second.complete);
      stream.tuples.insert(stream.tuples.end(), second.tuples.begin(), second.tuples.end());
    }
  }
  CBT_FUZZ_CHECK(stream.tuples == Wanted(request.base_snapshot_id.has_value(), blocks,
                                         options.shape, request.starting_offset));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  static const Contract* const contracts[] = {
      &cbt::rpc::kCsiContract, &cbt::rpc::kKubernetesContract, &cbt::rpc::kSessionContract};
  const Contract& contract = *contracts[data[0] % 3];
  const auto& method = (data[0] & 64) != 0 ? contract.allocated : contract.delta;
  const bool blocks = (data[0] & 128) != 0;
  cbt::rpc::StreamOptions options;
  options.message_bytes = 4096;
  if ((data[1] & 1) != 0) options.shape.alignment = 1 + (data[1] >> 1) % 16;
  if ((data[2] & 1) != 0) options.shape.coalesce_gap = (data[2] >> 1) % 16;
  const size_t cut = data[3] % 16;

  auto request = cbt::rpc::DecodeRequest(method, {data + 4, size - 4});
  if (!request.ok()) {
    CBT_FUZZ_CHECK(request.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  if (const absl::Status status = cbt::rpc::CheckRequest(method, *request); !status.ok()) {
    CBT_FUZZ_CHECK(status.code() == absl::StatusCode::kInvalidArgument ||
                   status.code() == absl::StatusCode::kOutOfRange);
    return 0;
  }
  static const auto tokens = [] {
    std::vector<cbt::rpc::TokenGrant> grants;
    grants.push_back({cbt::Secret("token"), "bearer", {"ns"}});
    return cbt::rpc::MakeTokenAccess(std::move(grants));
  }();
  static const auto resolver = cbt::rpc::MakeDirectoryResolver();
  static const auto sessions = [] {
    auto store = cbt::rpc::MemorySessionStore::Create();
    cbt::rpc::Session session{
        "ns", {"s1", "s2", "x"}, std::chrono::system_clock::time_point::max()};
    CBT_FUZZ_CHECK(store->OpenWith(cbt::Secret(std::string(32, 't')), session).ok());
    return store;
  }();
  static const cbt::rpc::AccessControl access{tokens.get(), tokens.get(), resolver.get(), nullptr};
  static const std::unique_ptr<cbt::rpc::Admission> admissions[] = {
      cbt::rpc::MakeOpenAdmission(), cbt::rpc::MakeAccessAdmission(access, true),
      cbt::rpc::MakeSessionAdmission(*sessions, {})};
  const auto in_session = [](const std::string& id) {
    return id == "s1" || id == "s2" || id == "x";
  };
  bool may = true;
  if (data[0] % 3 == 1) may = request->token.Equals("token") && request->name_space == "ns";
  if (data[0] % 3 == 2) {
    may = request->token.Equals(std::string(32, 't')) && in_session(request->target_snapshot_id) &&
          in_session(request->base_snapshot_id.value_or("s1"));
  }
  int answers = 0;
  admissions[data[0] % 3]->Admit(
      *std::move(request), [&](absl::StatusOr<AdmittedRequest> admitted) {
        ++answers;
        if (!admitted.ok()) {
          CBT_FUZZ_CHECK(admitted.status().code() != absl::StatusCode::kInternal);
          return;
        }
        CBT_FUZZ_CHECK(may);
        Serve(contract, *admitted, blocks, options, cut);
      });
  CBT_FUZZ_CHECK(answers == 1);
  return 0;
}
