#include "programs/revisions/aggregated/api/delta_page.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_builder.h"
#include "base/text.h"
#include "cbt/extent.h"
#include "cbt/kube/object.h"
#include "kube/object/field_reader.h"
#include "programs/revisions/aggregated/api/driver_discovery.h"
#include "programs/revisions/aggregated/api/strict_fields.h"

namespace cbt::kube::aggregated {
namespace {

absl::Status Broken(std::string_view why) {
  return absl::DataLossError(absl::StrCat("the driver's page is broken: ", AbslView(why)));
}

}  // namespace

absl::StatusOr<DeltaPageRequest> DeltaPageRequest::Parse(std::string_view json) {
  const absl::StatusOr<Object> object = Object::ParseRequest(json);
  if (!object.ok()) return object.status();
  absl::Status known = CheckFields(*object, {},
                                   {"base_snapshot_id", "target_snapshot_id", "block_size_bytes",
                                    "starting_block", "max_blocks", "secret"});
  known.Update(CheckFields(*object, {"secret"}, {"namespace", "name"}));
  if (!known.ok()) return known;
  DeltaPageRequest request;
  FieldReader reader(*object);
  reader.Read(object->String({"target_snapshot_id"}), request.target_snapshot_id);
  absl::StatusOr<std::optional<std::string>> base = object->OptionalString({"base_snapshot_id"});
  reader.Read(Unsigned(*object, {"block_size_bytes"}), request.block_size);
  reader.Read(Unsigned(*object, {"starting_block"}), request.starting_block);
  reader.Read(Unsigned(*object, {"max_blocks"}), request.max_blocks);
  reader.Text({"secret", "namespace"}, request.secret_namespace);
  reader.Text({"secret", "name"}, request.secret_name);
  if (!reader.ok()) return reader.status();
  if (!base.ok()) return base.status();
  request.base_snapshot_id = *std::move(base);
  if (request.target_snapshot_id.empty()) return WrongField("target_snapshot_id", "it is empty");
  if (request.base_snapshot_id.has_value() && request.base_snapshot_id->empty()) {
    return WrongField("base_snapshot_id", "it is empty");
  }
  if (absl::Status status = CheckBlockSize(request.block_size); !status.ok()) {
    return WrongField("block_size_bytes", "expected a power of two from 512 to 64 MiB");
  }
  if (request.max_blocks == 0 || request.max_blocks > kMaxPageBlocks) {
    return WrongField("max_blocks", absl::StrCat("expected 1 to ", kMaxPageBlocks));
  }
  if (request.secret_namespace.empty() != request.secret_name.empty()) {
    return WrongField("secret", "expected a namespace and a name");
  }
  return request;
}

std::string DeltaPageRequest::ToJson() const {
  JsonBuilder json;
  json.BeginObject().Field("target_snapshot_id", target_snapshot_id);
  if (base_snapshot_id.has_value()) json.Field("base_snapshot_id", *base_snapshot_id);
  json.Field("block_size_bytes", block_size).Field("starting_block", starting_block);
  json.Field("max_blocks", max_blocks);
  if (!secret_name.empty()) {
    json.Key("secret").BeginObject().Field("namespace", secret_namespace);
    json.Field("name", secret_name).EndObject();
  }
  return json.EndObject().Take();
}

std::string PageHead::ToJson() const {
  JsonBuilder json;
  json.BeginObject().Field("block_size_bytes", block_size);
  if (volume_size.has_value()) json.Field("volume_size_bytes", *volume_size);
  if (!source_version.empty()) json.Field("source_version", source_version);
  return json.EndObject().Take();
}

std::string PageBlock::ToJson() const {
  // A page has thousands of these.
  if (!token.has_value()) return absl::StrCat(R"({"block":)", index, "}");
  JsonBuilder json;
  json.BeginObject().Field("block", index).Key("data_token").BeginObject();
  json.Field("token", token->token).Field("issuance_time", token->issuance_time);
  return json.Field("ttl_seconds", token->ttl_seconds).EndObject().EndObject().Take();
}

std::string PageEnd::ToJson() const {
  JsonBuilder json;
  json.BeginObject().Field("complete", true).Field("blocks", blocks);
  return json.Field("next_block", next_block).Field("more", more).EndObject().Take();
}

absl::StatusOr<const PageBlock*> PageReader::Take(std::string_view line) {
  if (!failure_.ok()) return failure_;
  bool is_block = false;
  failure_ = has_head_ ? TakeLine(line, is_block) : TakeHead(line);
  if (!failure_.ok()) return failure_;
  return is_block ? &block_ : nullptr;
}

absl::Status PageReader::TakeHead(std::string_view line) {
  const absl::StatusOr<Object> object = Object::Parse(line);
  if (!object.ok()) return Broken("its first line is not JSON");
  FieldReader reader(*object);
  reader.Read(Unsigned(*object, {"block_size_bytes"}), head_.block_size);
  if (object->Has({"volume_size_bytes"})) {
    reader.Read(Unsigned(*object, {"volume_size_bytes"}), head_.volume_size.emplace());
  }
  reader.Text({"source_version"}, head_.source_version);
  if (!reader.ok() || !object->Has({"block_size_bytes"})) {
    return Broken("its first line lacks the sizes");
  }
  if (head_.block_size != block_size_) return Broken("its blocks have another size");
  if (head_.volume_size.has_value() &&
      starting_block_ > BlockCount(*head_.volume_size, block_size_)) {
    return Broken("it starts past the volume's end");
  }
  has_head_ = true;
  return absl::OkStatus();
}

absl::Status PageReader::TakeLine(std::string_view line, bool& is_block) {
  if (ended_) return Broken("it goes on after its last line");
  const absl::StatusOr<Object> object = Object::Parse(line);
  if (!object.ok()) return Broken("a line is not JSON");
  FieldReader reader(*object);
  if (object->Has({"block"})) {
    block_ = {};
    reader.Read(Unsigned(*object, {"block"}), block_.index);
    if (object->Has({"data_token"})) {
      DataToken token;
      reader.Text({"data_token", "token"}, token.token);
      reader.Text({"data_token", "issuance_time"}, token.issuance_time);
      reader.Read(object->OptionalInt({"data_token", "ttl_seconds"}), token.ttl_seconds);
      block_.token = std::move(token);
    }
    if (!reader.ok()) return Broken("a block can't be read");
    if (block_.index < next_) return Broken("its blocks do not ascend");
    if (!head_.volume_size.has_value()) return Broken("it has blocks of a volume without a size");
    if (block_.index >= BlockCount(*head_.volume_size, block_size_)) {
      return Broken("a block lies past the volume's end");
    }
    if (++count_ > max_blocks_) return Broken("it has more blocks than were asked for");
    next_ = block_.index + 1;
    is_block = true;
    return absl::OkStatus();
  }
  bool complete = false;
  reader.Read(object->Bool({"complete"}), complete);
  reader.Read(Unsigned(*object, {"blocks"}), end_.blocks);
  reader.Read(Unsigned(*object, {"next_block"}), end_.next_block);
  reader.Read(object->Bool({"more"}), end_.more);
  if (!reader.ok() || !complete || !object->Has({"blocks"}) || !object->Has({"next_block"}) ||
      !object->Has({"more"})) {
    return Broken("a line is neither a block nor the end");
  }
  if (end_.blocks != count_) return Broken("blocks are missing");
  // A next page that began further on would leave blocks out.
  if (end_.next_block != next_) return Broken("the next page starts elsewhere than this one ends");
  // Otherwise a client would ask for the same page again and again.
  if (end_.more && count_ == 0) return Broken("it is empty, and not the last");
  ended_ = true;
  return absl::OkStatus();
}

absl::Status PageReader::Finish() const {
  if (!failure_.ok()) return failure_;
  if (!ended_) return Broken("it ends without its last line");
  return absl::OkStatus();
}

}  // namespace cbt::kube::aggregated
