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
  for (const std::string& bucket : former) absl::StrAppend(&text, " -", bucket);
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
    const std::string_view word = text.substr(0, end);
    // No bucket's name begins so.
    if (word.starts_with('-')) {
      record.former.emplace(word.substr(1));
    } else if (!word.empty()) {
      record.buckets.emplace(word);
    }
    text.remove_prefix(end);
  }
  return record;
}

}  // namespace cbt::cosi
