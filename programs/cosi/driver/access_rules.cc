#include "programs/cosi/driver/access_rules.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/text.h"

namespace cbt::cosi {
namespace {

constexpr std::string_view kArn = "arn:aws:s3:::";
constexpr size_t kMaxPolicyText = 20 * 1024;  // a bucket's policy has no more

constexpr const char* kReadActions[] = {"s3:GetObject", "s3:GetObjectVersion"};
constexpr const char* kWriteActions[] = {"s3:PutObject", "s3:DeleteObject",
                                         "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"};
constexpr const char* kListActions[] = {"s3:ListBucket", "s3:ListBucketVersions"};
constexpr const char* kUploadActions[] = {"s3:ListBucketMultipartUploads"};

// With one of them an account could give itself or others more, or take the bucket from the driver.
constexpr const char* kGuarded[] = {
    "s3:putbucketpolicy", "s3:deletebucketpolicy", "s3:deletebucket",       "s3:putbuckettagging",
    "s3:putbucketacl",    "s3:putobjectacl",       "s3:putobjectversionacl"};

absl::Status Refused(std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("access policy: ", AbslView(why)));
}

// `pattern` with "*" and "?", in lower case.
bool Matches(std::string_view pattern, std::string_view text) {
  size_t at = 0;
  size_t i = 0;
  size_t star = std::string_view::npos;
  size_t from = 0;
  while (i < text.size()) {
    if (at < pattern.size() && (pattern[at] == '?' || pattern[at] == text[i])) {
      ++at;
      ++i;
    } else if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      from = i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++from;
    } else {
      return false;
    }
  }
  return std::all_of(pattern.begin() + static_cast<ptrdiff_t>(at), pattern.end(),
                     [](char c) { return c == '*'; });
}

template <size_t N>
void Add(std::vector<std::string>& actions, const char* const (&more)[N]) {
  actions.insert(actions.end(), std::begin(more), std::end(more));
}

// A text or a list of texts.
absl::StatusOr<std::vector<std::string>> Texts(const kube::Object& statement, const char* field) {
  const absl::StatusOr<std::optional<std::string>> one = statement.OptionalString({field});
  if (one.ok()) {
    return one->has_value() ? std::vector<std::string>{**one} : std::vector<std::string>();
  }
  absl::StatusOr<std::vector<std::string>> several = statement.Strings({field});
  if (!several.ok()) return Refused(absl::StrCat(field, ": expected a text or a list of texts"));
  return several;
}

absl::Status CheckActions(const AccessRule& rule) {
  if (rule.actions.empty()) return Refused("Action: expected at least one");
  for (const std::string& action : rule.actions) {
    const std::string lower = absl::AsciiStrToLower(action);
    if (lower != "*" && !lower.starts_with("s3:")) {
      return Refused("Action: expected actions of S3, s3:GetObject for example");
    }
    if (!rule.allow) continue;
    for (const char* const guarded : kGuarded) {
      if (Matches(lower, guarded)) {
        return Refused(absl::StrCat("Action: it includes ", guarded,
                                    ", which is the driver's alone; name the actions one by one"));
      }
    }
  }
  return absl::OkStatus();
}

// What stands behind the bucket's name in an ARN, added to `resources`. A "*" in the place of the
// name includes keys as well, whatever follows it: what is denied must not get less.
absl::Status AddBehindName(std::string_view arn, bool allow, std::vector<std::string>& resources) {
  const std::string_view place = arn.substr(kArn.size());
  if (place == "*") {
    resources.insert(resources.end(), {"", "/*"});
    return absl::OkStatus();
  }
  const size_t slash = std::min(place.find('/'), place.size());
  const std::string_view name = place.substr(0, slash);
  const std::string behind(place.substr(slash));
  if (name.find('?') != std::string_view::npos) {
    return Refused("Resource: a bucket's name has no '?', which would stand for keys too");
  }
  resources.push_back(behind);
  const size_t star = name.rfind('*');
  if (allow || star == std::string_view::npos) return absl::OkStatus();
  resources.push_back(absl::StrCat("/", AbslView(name.substr(star)), behind));
  return absl::OkStatus();
}

// What stands behind the bucket's name in ARNs.
absl::StatusOr<std::vector<std::string>> ResourcesOf(const kube::Object& statement, bool allow) {
  const absl::StatusOr<std::vector<std::string>> named = Texts(statement, "Resource");
  if (!named.ok()) return named.status();
  if (!statement.Has({"Resource"})) return std::vector<std::string>{"", "/*"};
  std::vector<std::string> resources;
  for (const std::string& name : *named) {
    if (name == "*") {
      resources.insert(resources.end(), {"", "/*"});
      continue;
    }
    if (!absl::StartsWith(name, AbslView(kArn))) {
      return Refused("Resource: expected arn:aws:s3:::BUCKET or arn:aws:s3:::BUCKET/KEY");
    }
    if (absl::Status added = AddBehindName(name, allow, resources); !added.ok()) return added;
  }
  if (resources.empty()) return Refused("Resource: expected at least one");
  return resources;
}

absl::StatusOr<AccessRule> RuleOf(const kube::Object& statement) {
  const absl::StatusOr<std::vector<std::string>> names = statement.FieldNames({});
  if (!names.ok()) return Refused("expected statements");
  for (const std::string& name : *names) {
    if (name != "Sid" && name != "Effect" && name != "Action" && name != "Resource" &&
        name != "Condition") {
      return Refused(
          absl::StrCat("a statement has Effect, Action, Resource and Condition; the driver sets "
                       "the principal"));
    }
  }
  AccessRule rule;
  const absl::StatusOr<std::string> effect = statement.String({"Effect"});
  if (!effect.ok() || (*effect != "Allow" && *effect != "Deny")) {
    return Refused("Effect: expected Allow or Deny");
  }
  rule.allow = *effect == "Allow";
  absl::StatusOr<std::vector<std::string>> actions = Texts(statement, "Action");
  if (!actions.ok()) return actions.status();
  rule.actions = *std::move(actions);
  if (absl::Status valid = CheckActions(rule); !valid.ok()) return valid;
  absl::StatusOr<std::vector<std::string>> resources = ResourcesOf(statement, rule.allow);
  if (!resources.ok()) return resources.status();
  rule.resources = *std::move(resources);
  if (statement.Has({"Condition"})) {
    absl::StatusOr<kube::Object> condition = statement.Child({"Condition"});
    if (!condition.ok()) return Refused("Condition: expected an object");
    rule.condition = *std::move(condition);
  }
  return rule;
}

// `nested`: the text is a value of a map of texts.
absl::StatusOr<AccessRules> RulesIn(std::string_view text, bool nested) {
  const std::string_view trimmed = [&] {
    const absl::string_view all = absl::StripAsciiWhitespace(AbslView(text));
    return std::string_view(all.data(), all.size());
  }();
  const std::string json = trimmed.starts_with('[')
                               ? absl::StrCat("{\"Statement\":", AbslView(trimmed), "}")
                               : std::string(trimmed);
  const absl::StatusOr<kube::Object> parsed = kube::Object::ParseRequest(json);
  if (!parsed.ok()) return Refused("expected JSON, with plain quotes, of a statement or a list");
  AccessRules rules;
  if (parsed->Has({"Effect"})) {
    absl::StatusOr<AccessRule> rule = RuleOf(*parsed);
    if (!rule.ok()) return rule.status();
    rules.push_back(*std::move(rule));
    return rules;
  }
  if (parsed->Has({"Statement"})) {
    const absl::StatusOr<std::vector<std::string>> names = parsed->FieldNames({});
    if (!names.ok()) return names.status();
    for (const std::string& name : *names) {
      if (name != "Statement" && name != "Version" && name != "Id") {
        return Refused("a policy has Version, Id and Statement");
      }
    }
    absl::StatusOr<std::vector<kube::Object>> statements = parsed->Children({"Statement"});
    if (!statements.ok()) {
      absl::StatusOr<kube::Object> one = parsed->Child({"Statement"});
      if (!one.ok()) return Refused("Statement: expected statements");
      statements = std::vector<kube::Object>{*std::move(one)};
    }
    for (const kube::Object& statement : *statements) {
      absl::StatusOr<AccessRule> rule = RuleOf(statement);
      if (!rule.ok()) return rule.status();
      rules.push_back(*std::move(rule));
    }
  } else if (!nested) {
    // The data of a ConfigMap.
    const absl::StatusOr<std::map<std::string, std::string>> texts = parsed->StringMap({});
    if (!texts.ok()) return Refused("expected a statement, a list of them, or texts of these");
    for (const auto& [name, value] : *texts) {
      absl::StatusOr<AccessRules> more = RulesIn(value, true);
      if (!more.ok()) return more.status();
      rules.insert(rules.end(), more->begin(), more->end());
    }
  }
  if (rules.empty()) return Refused("expected at least one statement");
  return rules;
}

}  // namespace

bool MayRead(const AccessRule& rule) {
  return std::any_of(rule.actions.begin(), rule.actions.end(), [](const std::string& action) {
    return Matches(absl::AsciiStrToLower(action), "s3:getobject");
  });
}

absl::StatusOr<AccessRules> RulesOfMode(AccessMode mode) {
  AccessRule rule{.resources = {"", "/*"}};
  const bool reads = mode == AccessMode::kReadWrite || mode == AccessMode::kReadOnly;
  const bool writes = mode == AccessMode::kReadWrite || mode == AccessMode::kWriteOnly;
  if (!reads && !writes) {
    return absl::InvalidArgumentError(
        "access mode: expected ReadWrite, ReadOnly or WriteOnly of every bucket");
  }
  if (reads) {
    Add(rule.actions, kReadActions);
    Add(rule.actions, kListActions);
  }
  if (writes) {
    Add(rule.actions, kWriteActions);
    Add(rule.actions, kUploadActions);
  }
  return AccessRules{std::move(rule)};
}

absl::StatusOr<AccessRules> RulesOfText(std::string_view text) {
  if (text.empty()) return Refused("required");
  if (text.size() > kMaxPolicyText) return Refused("it is longer than the 20 KB of a bucket");
  return RulesIn(text, false);
}

}  // namespace cbt::cosi
