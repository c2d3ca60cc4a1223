// ListSnapshotDeltas as changed blocks.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/kube/object.h"
#include "programs/revisions/http_sidecar/changed_blocks.h"
#include "rpc/client/unary_call.h"
#include "rpc/contract/contract.h"
#include "rpc/contract/resumption.h"
#include "wire/proto_reader.h"

namespace cbt::kube::http_sidecar {
namespace {

using aggregated::DataToken;
using wire::ProtoReader;
using wire::WireType;

// A plugin that always names a next page is given up after this many without a block.
constexpr int kMaxIdlePages = 20'000;
constexpr size_t kMaxTokenText = 8192;

struct PluginPage {
  uint64_t capacity = 0;
  std::string next_token;
  std::vector<ChangedExtent> extents;
};

absl::Status Senseless(absl::string_view why) {
  return absl::DataLossError(absl::StrCat("ListSnapshotDeltas: ", why));
}

// google.protobuf.Timestamp { int64 seconds = 1; int32 nanos = 2; }
absl::StatusOr<std::string> ReadTimestamp(std::span<const uint8_t> bytes) {
  int64_t seconds = 0;
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kVarint)) seconds = static_cast<int64_t>(reader.varint());
  }
  if (!reader.status().ok()) return reader.status();
  // Years 1 to 9999, as the type has them.
  if (seconds < -62'135'596'800 || seconds > 253'402'300'799) {
    return Senseless("a token's issuance_time is out of range");
  }
  return FormatTime(Time(std::chrono::seconds(seconds)));
}

absl::StatusOr<DataToken> ReadToken(std::span<const uint8_t> bytes) {
  DataToken token;
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kBytes)) {
      token.token = reader.text();
    } else if (reader.Is(2, WireType::kBytes)) {
      absl::StatusOr<std::string> time = ReadTimestamp(reader.bytes());
      if (!time.ok()) return time.status();
      token.issuance_time = *std::move(time);
    } else if (reader.Is(3, WireType::kVarint)) {
      token.ttl_seconds = static_cast<int32_t>(reader.varint());
    }
  }
  if (!reader.status().ok()) return reader.status();
  if (!IsUtf8(token.token) || token.token.size() > kMaxTokenText || token.ttl_seconds < 0) {
    return Senseless("a block's token can't be one");
  }
  return token;
}

absl::StatusOr<ChangedExtent> ReadBlock(std::span<const uint8_t> bytes) {
  ChangedExtent block;
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kVarint)) block.extent.offset = reader.varint();
    if (reader.Is(2, WireType::kVarint)) block.extent.length = reader.varint();
    if (reader.Is(3, WireType::kBytes)) {
      absl::StatusOr<DataToken> token = ReadToken(reader.bytes());
      if (!token.ok()) return token.status();
      block.token = *std::move(token);
    }
  }
  if (!reader.status().ok()) return reader.status();
  return block;
}

absl::Status ReadPage(std::span<const uint8_t> bytes, PluginPage& page) {
  ProtoReader reader(bytes);
  while (reader.Next()) {
    if (reader.Is(1, WireType::kVarint)) {
      page.capacity = reader.varint();
    } else if (reader.Is(2, WireType::kBytes)) {
      page.next_token = reader.text();
    } else if (reader.Is(3, WireType::kBytes)) {
      absl::StatusOr<ChangedExtent> block = ReadBlock(reader.bytes());
      if (!block.ok()) return block.status();
      page.extents.push_back(*std::move(block));
    }
  }
  return reader.status();
}

std::string KeyOfAnswer(const ChangedBlocksQuery& query) {
  // The length keeps "a" and "bc" from being "ab" and "c".
  const std::string& base = query.base.has_value() ? *query.base : "";
  return absl::StrCat(base.size(), ":", base, query.target);
}

class PagedBlocks final : public ChangedBlocks {
 public:
  PagedBlocks(std::shared_ptr<rpc::Channel> channel, const ChangedBlocksQuery& query,
              PageTokens& tokens)
      : channel_(std::move(channel)),
        deadline_(query.deadline),
        answer_(KeyOfAnswer(query)),
        from_(query.from),
        for_caller_(query.for_caller),
        tokens_(tokens) {
    request_.base_snapshot_id = query.base;
    request_.target_snapshot_id = query.target;
    request_.max_results = static_cast<int64_t>(
        std::min<uint64_t>(query.most_extents, std::numeric_limits<int32_t>::max()));
    request_.secrets = query.secrets.Copy();
  }

  // Finds the first page that may hold what is wanted.
  absl::Status Start() {
    PageTokens::Place place = tokens_.Find(answer_, from_);
    request_.page_token = place.token;
    position_ = place.position;
    absl::Status status = Fetch();
    if (absl::IsAborted(status) && !place.token.empty()) {
      // The plugin has forgotten the token, since it was started anew for example.
      tokens_.Forget(answer_);
      request_.page_token.clear();
      position_ = 0;
      status = Fetch();
    }
    return status;
  }

  absl::StatusOr<bool> Next(ChangedExtent& extent) override {
    for (;;) {
      while (at_ < page_.extents.size()) {
        ChangedExtent& one = page_.extents[at_++];
        if (one.extent.end() <= from_) continue;
        extent = std::move(one);
        return true;
      }
      if (page_.next_token.empty()) return false;
      request_.page_token = page_.next_token;
      if (absl::Status status = Fetch(); !status.ok()) return status;
    }
  }

  absl::StatusOr<bool> MayHaveMore() override {
    return at_ < page_.extents.size() || !page_.next_token.empty();
  }

 private:
  absl::Status Fetch() {
    page_ = {};
    at_ = 0;
    rpc::UnaryCall call(*channel_, deadline_);
    absl::StatusOr<absl::Cord> answer = call.Run(
        rpc::kListSnapshotDeltas.path, rpc::EncodeRequest(rpc::kListSnapshotDeltas, request_));
    if (absl::IsUnimplemented(answer.status())) {
      return absl::UnimplementedError("the plugin does not have ListSnapshotDeltas");
    }
    if (!answer.ok()) return for_caller_(answer.status());
    const absl::string_view bytes = answer->Flatten();
    const absl::Status read =
        ReadPage({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, page_);
    if (!read.ok()) return Senseless(read.message());
    const std::string version(call.Initial(rpc::kSourceVersionKey).value_or(""));
    if (version == rpc::kGivenTwice) return Senseless(AbslView(rpc::kTwoVersions));
    return Check(version);
  }

  absl::Status Check(const std::string& version) {
    if (page_.capacity == 0 || page_.capacity > kMaxCapacity) {
      return Senseless("a page has no volume size, or one that can't be");
    }
    if (fetched_ && (page_.capacity != capacity_ || version != version_)) {
      return absl::AbortedError("the snapshot was replaced while its pages were read");
    }
    fetched_ = true;
    capacity_ = page_.capacity;
    version_ = version;
    for (const ChangedExtent& one : page_.extents) {
      const Extent& extent = one.extent;
      if (extent.length == 0 || extent.length > kMaxCapacity || extent.offset < position_ ||
          extent.offset >= capacity_) {
        return Senseless("its blocks are empty, do not ascend, or lie past the volume's end");
      }
      position_ = extent.end();
    }
    if (page_.next_token.empty()) return absl::OkStatus();
    if (page_.next_token == request_.page_token || ++pages_ > kMaxIdlePages) {
      return Senseless("there is always a next page");
    }
    if (!page_.extents.empty()) pages_ = 0;
    tokens_.Keep(answer_, {.position = position_, .token = page_.next_token});
    return absl::OkStatus();
  }

  const std::shared_ptr<rpc::Channel> channel_;
  const std::chrono::system_clock::time_point deadline_;
  const std::string answer_;
  const uint64_t from_;
  const std::function<absl::Status(const absl::Status&)> for_caller_;
  PageTokens& tokens_;
  rpc::MetadataRequest request_;
  PluginPage page_;
  size_t at_ = 0;
  uint64_t position_ = 0;  // the end of the last block
  int pages_ = 0;          // in a row without a block
  bool fetched_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChangedBlocks>> ListChangedBlocks(
    const std::shared_ptr<rpc::Channel>& channel, const ChangedBlocksQuery& query,
    PageTokens& tokens) {
  auto blocks = std::make_unique<PagedBlocks>(channel, query, tokens);
  if (absl::Status status = blocks->Start(); !status.ok()) return status;
  return blocks;
}

}  // namespace cbt::kube::http_sidecar
