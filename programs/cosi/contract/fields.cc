#include "programs/cosi/contract/fields.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::cosi {

using wire::ProtoReader;
using wire::WireType;

absl::Status TakeText(const ProtoReader& reader, uint32_t field, std::string& value) {
  if (!reader.Is(field, WireType::kBytes)) return absl::OkStatus();
  if (!IsUtf8(reader.text())) {
    return absl::InvalidArgumentError(absl::StrCat("field ", field, ": is not UTF-8"));
  }
  value = reader.text();
  return absl::OkStatus();
}

absl::Status TakeEntry(const ProtoReader& reader, uint32_t field, Parameters& values) {
  if (!reader.Is(field, WireType::kBytes)) return absl::OkStatus();
  std::string key;
  std::string value;
  absl::Status read = ForEachField(reader.bytes(), [&](const ProtoReader& entry) {
    if (absl::Status taken = TakeText(entry, 1, key); !taken.ok()) return taken;
    return TakeText(entry, 2, value);
  });
  if (!read.ok()) return read;
  // Of a key that comes twice, the last one counts.
  values.insert_or_assign(std::move(key), std::move(value));
  return absl::OkStatus();
}

void AppendParameters(std::string& out, uint32_t field, const Parameters& values) {
  for (const auto& [key, value] : values) {
    std::string entry;
    wire::AppendBytesField(entry, 1, key);
    wire::AppendBytesField(entry, 2, value);
    wire::AppendBytesFieldAlways(out, field, entry);
  }
}

}  // namespace cbt::cosi
