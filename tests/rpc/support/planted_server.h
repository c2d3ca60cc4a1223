// A server that keeps the contract except for one fault that a test names.
#ifndef CBT_TESTS_RPC_SUPPORT_PLANTED_SERVER_H_
#define CBT_TESTS_RPC_SUPPORT_PLANTED_SERVER_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cbt/rpc/client.h"
#include "cbt/units.h"
#include "rpc/contract/completeness.h"
#include "rpc/contract/contract.h"
#include "rpc/contract/status.h"
#include "rpc/grpc/convert.h"
#include "tests/reference/volume.h"
#include "tests/rpc/support/fake_server.h"
#include "tests/rpc/support/raw_service.h"
#include "tests/support/temp_dir.h"
#include "wire/proto_reader.h"
#include "wire/proto_writer.h"

namespace cbt::test {

class PlantedServer {
 public:
  static constexpr uint64_t kCapacity = 1'000'000;

  PlantedServer(rpc::Api api, std::string fault)
      : service_(rpc::ContractOf(api), std::move(fault)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + (dir_ / "s"), grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(8 * kMiB);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~PlantedServer() { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return "unix://" + (dir_ / "s"); }

 private:
  struct Reply {
    std::vector<std::string> messages = {};
    grpc::Status status = grpc::Status::OK;
    rpc::Metadata trailing = {};
    bool slow = false;  // delay between messages
    bool hang = false;
  };

  class Service final : public RawService {
   public:
    Service(const rpc::Contract& contract, std::string fault)
        : contract_(contract), fault_(std::move(fault)) {
      if (contract.api == rpc::Api::kPaged) {
        AddUnary(contract.delta.path, [this](const std::string& bytes, std::string& response) {
          Reply reply = AnswerPage(bytes);
          if (reply.status.ok()) response = reply.messages.front();
          return reply.status;
        });
        return;
      }
      for (const bool delta : {false, true}) {
        AddStream((delta ? contract.delta : contract.allocated).path,
                  [this, delta](grpc::CallbackServerContext* context,
                                const grpc::ByteBuffer* bytes) -> WriteReactor* {
                    return new Reactor(*this, *context, Answer(delta, BytesOf(*bytes), *context));
                  });
      }
      const auto constant = [this](const char* path, std::string bytes, const char* fault_name) {
        AddUnary(path, [this, bytes = std::move(bytes), fault_name](const std::string&,
                                                                    std::string& response) {
          if (Has(fault_name)) return grpc::Status(grpc::StatusCode::INTERNAL, "no");
          response = bytes;
          return grpc::Status::OK;
        });
      };
      std::string info;
      wire::AppendBytesField(info, 1, Has("bad-name") ? "not a name!" : "planted.example.com");
      constant("/csi.v1.Identity/GetPluginInfo", info, "info-fails");
      constant("/csi.v1.Identity/GetPluginCapabilities", Capabilities(), "capabilities-fail");
      constant("/csi.v1.Identity/Probe", "", "probe-fails");
    }

    bool Has(const char* fault) const { return fault_ == fault; }

    std::atomic<int> cancelled = 0;
    std::atomic<int> open = 0;

   private:
    // Extents of all kinds: adjacent blocks, gaps, the first and the last byte.
    static reference::Ranges Truth(bool delta) {
      reference::Ranges ranges = {{0, 100}};
      for (uint64_t i = 1; i < 120; ++i) {
        ranges.emplace_back(i * 8000 + (delta ? 16 : 0), 1000 + i % 7 * 500);
      }
      ranges.emplace_back(kCapacity - 300, 300);
      return ranges;
    }

    // Several capabilities, as a larger plugin has: 4 is SNAPSHOT_METADATA_SERVICE of a service
    // (1); another is an empty volume expansion (2).
    std::string Capabilities() const {
      if (Has("no-capability")) return "";
      std::string list;
      wire::AppendVarintField(list, 9, 4);
      for (const auto& [kind, type] : {std::pair(1u, 1u), std::pair(2u, 4u),
                                       std::pair(1u, Has("other-capability") ? 5u : 4u)}) {
        std::string inner;
        wire::AppendVarintField(inner, 9, 4);
        wire::AppendVarintField(inner, 1, type);
        std::string capability;
        wire::AppendBytesField(capability, kind, inner);
        wire::AppendBytesField(list, 1, capability);
      }
      return list;
    }

    // A message with the contract's numbers for the types.
    std::string Encoded(csi::v1::BlockMetadataType type, uint64_t capacity,
                        const reference::Ranges& tuples) const {
      const auto number = rpc::TypeOnWire(contract_, static_cast<BlockMetadataType>(type));
      return Message(static_cast<csi::v1::BlockMetadataType>(number), capacity, tuples);
    }

    static grpc::Status Error(grpc::StatusCode code, const std::string& text) {
      return {code, text};
    }

    Reply Answer(bool delta, const std::string& bytes, grpc::CallbackServerContext& context) {
      using grpc::StatusCode;
      const rpc::MethodContract& method = delta ? contract_.delta : contract_.allocated;
      const std::span<const uint8_t> flat(reinterpret_cast<const uint8_t*>(bytes.data()),
                                          bytes.size());
      auto request = rpc::DecodeRequest(method, flat);
      if (!request.ok()) {
        if (Has("accepts-garbage")) return Good(delta, 0, 0);
        if (Has("garbage-is-the-end")) return {};
        return {.status = rpc::ToGrpcStatus(request.status())};
      }
      if (Has("refuses-unknown-fields")) {
        wire::ProtoReader reader(flat);
        while (reader.Next()) {
          if (reader.field() > 100) return {.status = Error(StatusCode::INVALID_ARGUMENT, "?")};
        }
      }
      if (Has("no-such-method") || (Has("delta-only") && !delta))
        return {.status = Error(StatusCode::UNIMPLEMENTED, "no")};
      if ((Has("one-at-a-time") || Has("stall-holds")) && open > 0) {
        return {.status = Error(StatusCode::UNAVAILABLE, "busy")};
      }
      if (absl::Status status = rpc::CheckRequest(method, *request); !status.ok()) {
        const std::string text(status.message());
        const auto about = [&text](const char* what) {
          return text.find(what) != std::string::npos;
        };
        const bool forgiven =
            (Has("negative-offset-ok") && about("starting_offset")) ||
            (Has("negative-max-ok") && about("max_results")) ||
            (Has("missing-id-ok") && (about("snapshot_id is") || about("target_snapshot_id"))) ||
            (Has("missing-base-ok") && about("base_snapshot_id")) ||
            (Has("token-optional") && about("security_token")) ||
            (Has("namespace-optional") && about("namespace"));
        if (Has("negative-max-spins") && about("max_results")) return {.hang = true};
        if (!forgiven) return {.status = rpc::ToGrpcStatus(status)};
        return Good(delta, 0, 0);
      }
      const bool known = request->target_snapshot_id == "target" ||
                         (Has("accepts-huge") && request->target_snapshot_id.size() > 1000);
      if (method.fields.token != 0 && !request->token.Equals("token") && !Has("any-token")) {
        if (Has("oracle") && !known) return {.status = Error(StatusCode::NOT_FOUND, "unknown")};
        return {.status = Error(StatusCode::UNAUTHENTICATED, "no")};
      }
      if (!known) {
        if (Has("unknown-empty")) return Empty();
        if (Has("answers-then-unknown")) return Empty(Error(StatusCode::NOT_FOUND, "unknown"));
        std::string text = "unknown";
        if (Has("echoes-secrets")) {
          text += std::string(request->secrets.Get("password").value_or(""));
        }
        if (Has("details")) return {.status = {StatusCode::NOT_FOUND, text, "details"}};
        return {.status = Error(StatusCode::NOT_FOUND, text)};
      }
      if (delta && *request->base_snapshot_id != "base") {
        if (*request->base_snapshot_id == request->target_snapshot_id) {
          if (Has("self-delta-full")) return Good(delta, 0, 0);
          const grpc::Status refusal = Error(StatusCode::INVALID_ARGUMENT, "the same");
          if (Has("self-delta-refused")) return {.status = refusal};
          return Has("self-delta-breaks") ? Empty(refusal) : Empty();
        }
        if (*request->base_snapshot_id == "foreign") {
          if (Has("foreign-base-full")) return Good(delta, 0, 0);
          return {.status = Error(StatusCode::INVALID_ARGUMENT, "another volume")};
        }
        if (Has("unknown-base-empty")) return Empty();
        return {.status = Error(StatusCode::NOT_FOUND, "unknown base")};
      }
      const auto offset = static_cast<uint64_t>(request->starting_offset);
      if (offset > kCapacity && !Has("past-ok")) {
        return {.status = Error(StatusCode::OUT_OF_RANGE, "past")};
      }
      if (offset == kCapacity && Has("at-capacity-error")) {
        return {.status = Error(StatusCode::OUT_OF_RANGE, "at")};
      }
      Reply reply = Good(delta, offset, static_cast<size_t>(request->max_results));
      if (Has("deadline-ok") &&
          context.deadline() < std::chrono::system_clock::now() + std::chrono::seconds(1)) {
        reply.messages.resize(1);
      }
      if (Has("cancel-breaks")) {
        if (cancelled > 0) reply.messages.resize(1);
        // Otherwise the answer is complete before the client can cancel it.
        reply.slow = request->max_results == 1;
      }
      // Keeps this stream open until the next one comes, on a busy machine, too.
      if (Has("one-at-a-time")) reply.slow = true;
      if (Has("random") && calls_++ % 2 == 1 && reply.messages.size() > 1) {
        reply.messages.pop_back();
      }
      return reply;
    }

    Reply Empty(const grpc::Status& status = grpc::Status::OK) const {
      return {.messages = {Encoded(csi::v1::VARIABLE_LENGTH, kCapacity, {})}, .status = status};
    }

    // The answer from `offset` on, with the fault.
    Reply Good(bool delta, uint64_t offset, size_t max_results) const {
      reference::Ranges tuples;
      reference::Ranges truth = Truth(delta);
      // The last block reaches past the capacity, so it ends past every valid offset.
      if (Has("good-blocks")) {
        for (auto& [at, length] : truth) length = 1000;
      }
      for (const auto& [at, length] : truth) {
        if (at + length > offset) tuples.emplace_back(at, length);
      }
      if (offset > 0 && !tuples.empty()) {
        const bool inside = tuples[0].first < offset;
        const bool at_end = std::any_of(truth.begin(), truth.end(), [&](const auto& tuple) {
          return tuple.first + tuple.second == offset;
        });
        if (Has("resume-loses-next") && at_end) tuples.erase(tuples.begin());
        if (Has("resume-skips-current") && inside) tuples.erase(tuples.begin());
        if (Has("gap-loses") && !inside && !at_end) tuples.erase(tuples.begin());
        if (Has("wrong-window") && inside && offset % 16 != 0) {
          tuples[0].first = offset + 8;
          tuples[0].second -= std::min<uint64_t>(tuples[0].second - 1, 8);
        }
        if (Has("repeats")) tuples.insert(tuples.begin(), truth.front());
      }
      if (Has("disorder") && !tuples.empty()) std::swap(tuples[0], tuples.back());
      if (Has("zero-size") && !tuples.empty()) tuples.back().second = 0;
      if (Has("past-capacity") && !tuples.empty()) tuples.back().second += 1;
      if (Has("fixed-varies") && !tuples.empty()) tuples.back().second -= 1;
      if (Has("outside") && !tuples.empty()) tuples.back().first = kCapacity;
      if (Has("two-past-capacity")) tuples = {{kCapacity - 200, 300}, {kCapacity - 100, 300}};
      if (offset == kCapacity) {
        if (Has("at-capacity-repeats")) tuples = {truth.back()};
        if (Has("at-capacity-other")) tuples = {truth.front()};
        if (Has("at-capacity-two")) tuples = {truth.front(), truth.back()};
      }
      size_t most = max_results == 0 ? 50 : std::min<size_t>(max_results, 50);
      if (Has("stall-holds")) most = std::min<size_t>(most, 10);
      if (Has("ignores-max")) most = 50;
      if (Has("max-caps-stream") && max_results > 0 && tuples.size() > max_results) {
        tuples.resize(max_results);
      }
      if (Has("splits-by-max") && max_results == 1 && !tuples.empty()) {
        const auto [at, length] = tuples[0];
        tuples[0].second = length / 2;
        tuples.insert(tuples.begin() + 1, {at + length / 2, length - length / 2});
      }
      uint64_t capacity = kCapacity;
      if (Has("present-capacity") && delta) capacity += 4096;
      if (Has("end-capacity-differs") && offset == kCapacity) capacity += 4096;
      if (Has("no-capacity")) capacity = 0;
      auto type = csi::v1::VARIABLE_LENGTH;
      if (Has("fixed-varies") || Has("good-blocks") || Has("two-past-capacity") ||
          (Has("end-type-differs") && offset == kCapacity)) {
        type = csi::v1::FIXED_LENGTH;
      }
      if (Has("unknown-type")) type = csi::v1::UNKNOWN;
      Reply reply;
      for (size_t at = 0; at < tuples.size() || reply.messages.empty(); at += most) {
        const size_t end = std::min(tuples.size(), at + most);
        reference::Ranges part(tuples.begin() + static_cast<ptrdiff_t>(at),
                               tuples.begin() + static_cast<ptrdiff_t>(end));
        if (Has("overlap-across") && at > 0 && !part.empty()) {
          part[0].first = tuples[at - 1].first + tuples[at - 1].second - 1;
        }
        const bool changes = !reply.messages.empty();
        reply.messages.push_back(
            Encoded(changes && Has("type-changes") ? csi::v1::FIXED_LENGTH : type,
                    changes && Has("capacity-changes") ? capacity + 1 : capacity, part));
        if (Has("idle-messages")) reply.messages.push_back(Encoded(type, capacity, {}));
      }
      if (Has("bad-bytes")) reply.messages.back().pop_back();
      if (Has("huge-message") && max_results > 1000) {
        wire::AppendBytesField(reply.messages.front(), 999, std::string(3'500'000, 'x'));
      }
      if (Has("refused-message") && max_results > 1000) {
        wire::AppendBytesField(reply.messages.front(), 999, std::string(5'000'000, 'x'));
      }
      // More than a stalled client can absorb.
      if (Has("stall-holds")) {
        for (size_t i = 1; i < reply.messages.size(); ++i) {
          wire::AppendBytesField(reply.messages[i], 999, std::string(2'500'000, 'x'));
        }
      }
      if (Has("no-first-message") || (Has("empty-without-message") && tuples.empty())) {
        reply.messages.clear();
      }
      StreamDigest digest;
      for (const auto& [at, length] : tuples) {
        digest.Add({&at, 1}, {&length, 1});
      }
      if (Has("wrong-proof")) {
        const uint64_t one = 1;
        digest.Add({&one, 1}, {&one, 1});
      }
      // The enums have the same numbers.
      rpc::StreamHeader header{static_cast<BlockMetadataType>(type), capacity};
      if (Has("proof-of-other-capacity")) header.capacity += 4096;
      if (Has("proof-of-other-type")) header.type = BlockMetadataType::kFixedLength;
      reply.trailing =
          rpc::ProofMetadata(digest, Has("resume-proof-wrong") ? 0 : offset,
                             Has("proof-without-header") ? std::nullopt : std::optional(header));
      return reply;
    }

    Reply AnswerPage(const std::string& bytes) {
      using grpc::StatusCode;
      const std::span<const uint8_t> flat(reinterpret_cast<const uint8_t*>(bytes.data()),
                                          bytes.size());
      auto request = rpc::DecodeRequest(contract_.delta, flat);
      if (!request.ok()) return {.status = rpc::ToGrpcStatus(request.status())};
      if (absl::Status status = rpc::CheckRequest(contract_.delta, *request); !status.ok()) {
        return {.status = rpc::ToGrpcStatus(status)};
      }
      const bool delta = request->base_snapshot_id.has_value();
      if (request->target_snapshot_id != "target" ||
          (delta && *request->base_snapshot_id != "base" &&
           *request->base_snapshot_id != "target")) {
        return {.status = Error(StatusCode::NOT_FOUND, "unknown")};
      }
      reference::Ranges tuples = Truth(delta);
      if (delta && *request->base_snapshot_id == "target") tuples.clear();
      size_t at = 0;
      if (!request->page_token.empty()) {
        const std::string& token = request->page_token;
        const bool known = token.starts_with("allocated:") || token.starts_with("delta:");
        const bool ours = token.starts_with(delta ? "delta:" : "allocated:");
        if (!known && !Has("any-page-token")) {
          return {.status = Error(StatusCode::ABORTED, "unknown token")};
        }
        if (known && !ours && !Has("foreign-token-ok")) {
          return {.status = Error(StatusCode::ABORTED, "foreign token")};
        }
        if (known) at = std::stoul(token.substr(token.find(':') + 1));
        const int uses = ++used_[token + "/" + std::to_string(request->max_results)];
        if ((Has("token-once") && uses > 1) || (Has("token-twice") && uses > 2)) {
          return {.status = Error(StatusCode::ABORTED, "used token")};
        }
        if (Has("token-forgets") && uses > 2) tuples.pop_back();
      }
      size_t most = request->max_results == 0 ? 40 : static_cast<size_t>(request->max_results);
      if (Has("ignores-max-entries")) most = 40;
      most = std::min<size_t>(most, 40);
      if (Has("pages-disorder") && at > 0) tuples[at].first = 0;
      const size_t end = std::min(tuples.size(), at + most);
      std::string page;
      uint64_t capacity = kCapacity;
      if (Has("pages-grow") && at > 0) capacity *= 2;
      if (Has("pages-tell-no-size")) capacity = 0;
      if (Has("short-pages-grow") && at > 0 && request->max_results > 0) capacity *= 2;
      wire::AppendVarintField(page, 1, capacity);
      bool last = end == tuples.size();
      if (Has("forgets-last-page") && most < 10 && end + most >= tuples.size()) last = true;
      const std::string next = delta ? "delta:" : "allocated:";
      if (Has("pages-stand") && at > 0) {
        wire::AppendBytesField(page, 2, request->page_token);
      } else if (!last) {
        wire::AppendBytesField(page, 2, next + std::to_string(end));
      } else if (Has("pages-circle")) {
        wire::AppendBytesField(page, 2, next + "0");
      } else if (Has("pages-alternate") ||
                 (Has("unlimited-pages-alternate") && request->max_results == 0)) {
        // Two empty pages after the last one, each naming the other as the next.
        wire::AppendBytesField(page, 2, next + std::to_string(end + (at <= end ? 1 : 0)));
      }
      for (size_t i = at; i < end; ++i) {
        std::string block;
        wire::AppendVarintField(block, 1, tuples[i].first);
        wire::AppendVarintField(block, 2, tuples[i].second);
        wire::AppendBytesFieldAlways(page, 3, block);
      }
      if (Has("bad-page") && at > 0) page.pop_back();
      return {.messages = {page}};
    }

    const rpc::Contract& contract_;
    const std::string fault_;
    std::atomic<int> calls_ = 0;
    std::map<std::string, int> used_;  // by token and the number of entries
  };

  class Reactor final : public RawService::WriteReactor {
   public:
    Reactor(Service& service, grpc::CallbackServerContext& context, Reply reply)
        : service_(service), context_(context), reply_(std::move(reply)) {
      ++service_.open;
      Step();
    }
    void OnWriteDone(bool ok) override { ok ? Step() : End(grpc::Status::CANCELLED); }
    void OnCancel() override {
      ++service_.cancelled;
      if (reply_.hang) End(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

   private:
    void Step() {
      if (next_ < reply_.messages.size()) {
        if (reply_.slow && next_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        buffer_ = BufferOf(reply_.messages[next_++]);
        StartWrite(&buffer_);
      } else if (!reply_.hang) {
        for (const auto& [key, value] : reply_.trailing) context_.AddTrailingMetadata(key, value);
        End(reply_.status);
      }
    }
    void End(const grpc::Status& status) {
      std::call_once(ended_, [&] {
        // Counted before the client learns of it and starts the next stream.
        --service_.open;
        Finish(status);
      });
    }

    Service& service_;
    grpc::CallbackServerContext& context_;
    const Reply reply_;
    size_t next_ = 0;
    grpc::ByteBuffer buffer_;
    std::once_flag ended_;
  };

  const TempDir dir_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
};

// A request that planted servers answer, without a base.
inline rpc::ListRequest PlantedRequest(rpc::Api api, const std::string& address) {
  rpc::ListRequest request;
  request.address = address;
  request.api = api;
  request.snapshot_id = std::string("target");
  request.token = Secret("token");
  request.name_space = std::string("namespace");
  return request;
}

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_PLANTED_SERVER_H_
