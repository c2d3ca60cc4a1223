#include "rpc/contract/delta_status.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_builder.h"

namespace cbt::rpc {

void DeltaStatus::Add(uint64_t index, const std::optional<Token>& token) {
  // A page has thousands of these: at once, which takes a third of the builder's time.
  absl::StrAppend(&blocks_, blocks_.empty() ? "" : ",", R"({"offset":)", index,
                  R"(,"blockSizeBytes":)", block_size_);
  if (token.has_value()) {
    JsonBuilder json(std::move(blocks_));
    json.Key("dataToken").BeginObject().Field("token", token->token);
    if (!token->issuance_time.empty()) json.Field("issuanceTime", token->issuance_time);
    // A duration as Go writes it: 3h0m0s.
    const int64_t seconds = token->ttl_seconds;
    json.Field("ttl", absl::StrCat(seconds / 3600, "h", seconds / 60 % 60, "m", seconds % 60, "s"));
    blocks_ = json.EndObject().Take();
  }
  blocks_ += '}';
}

void DeltaStatus::Finish(bool more, uint64_t next, JsonBuilder& json) const {
  const DeltaState state = more ? DeltaState::kContinue : DeltaState::kCompleted;
  json.BeginObject().Field("state", static_cast<int>(state)).Field("limit", limit_);
  json.Field("offset", offset_).Field("continue", next).Key("changedBlockDeltas").BeginArray();
  if (!blocks_.empty()) json.Raw(blocks_);
  json.EndArray().EndObject();
}

void DeltaStatus::Fail(const absl::Status& error, JsonBuilder& json) const {
  json.BeginObject().Field("state", static_cast<int>(DeltaState::kFailed));
  json.Field("error", absl::StrCat(absl::StatusCodeToString(error.code()), ": ", error.message()));
  json.Field("limit", limit_).Field("offset", offset_).Field("continue", offset_);
  json.Key("changedBlockDeltas").BeginArray().EndArray().EndObject();
}

}  // namespace cbt::rpc
