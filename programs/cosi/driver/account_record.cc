#include "programs/cosi/driver/account_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::cosi {
namespace {

std::string RecordHead(std::string_view driver) {
  return absl::StrCat("COSI account of ", AbslView(driver), " for");
}

}  // namespace

std::string AccountRecord::ToDisplayName(std::string_view driver) const {
  std::string text = RecordHead(driver);
  for (const std::string& bucket : buckets) absl::StrAppend(&text, " ", bucket);
  return text;
}

std::optional<AccountRecord> AccountRecord::FromDisplayName(std::string_view text,
                                                            std::string_view driver) {
  const std::string head = RecordHead(driver);
  if (!text.starts_with(head)) return std::nullopt;
  text.remove_prefix(head.size());
  if (!text.empty() && text.front() != ' ') return std::nullopt;
  AccountRecord record;
  while (!text.empty()) {
    text.remove_prefix(1);
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) record.buckets.emplace(text.substr(0, end));
    text.remove_prefix(end);
  }
  return record;
}

}  // namespace cbt::cosi
