#include "programs/cosi/api/names.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/text.h"

namespace cbt::kube::cosi {
namespace {

constexpr size_t kMaxLabel = 63;

bool IsAlnum(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

// The finalizers of an object that came from a Client, so they have the right type.
std::vector<std::string> FinalizersOf(const Object& object) {
  return object.Strings({"metadata", "finalizers"}).value_or(std::vector<std::string>());
}

void SetFinalizers(Object& object, const std::vector<std::string>& finalizers) {
  if (finalizers.empty()) {
    object.Remove({"metadata", "finalizers"});
  } else {
    object.SetStrings({"metadata", "finalizers"}, finalizers);
  }
}

}  // namespace

std::string BucketNameOf(const BucketRequest& request) {
  return absl::StrCat(request.prefix.empty() ? "br" : request.prefix, "-", request.meta.uid);
}

std::string AccessNameOf(const BucketAccessRequest& request) {
  return absl::StrCat("ba-", request.meta.uid);
}

std::string LabelValue(std::string_view text) {
  std::string value(text.substr(0, kMaxLabel));
  for (char& c : value) {
    if (!IsAlnum(c) && c != '-' && c != '_' && c != '.') c = '-';
  }
  // Both ends are letters or digits.
  while (!value.empty() && !IsAlnum(value.back())) value.pop_back();
  const auto first = std::find_if(value.begin(), value.end(), IsAlnum);
  value.erase(value.begin(), first);
  return value;
}

std::string AccessorFinalizer(const ObjectMeta& access) {
  const size_t slash = kAccessorFinalizerPrefix.find('/') + 1;
  const bool fits = kAccessorFinalizerPrefix.size() - slash + access.name.size() <= kMaxLabel;
  return absl::StrCat(AbslView(kAccessorFinalizerPrefix), fits ? access.name : access.uid);
}

std::string PodFinalizer(std::string_view pod_uid) {
  return absl::StrCat(AbslView(kPodFinalizerPrefix), AbslView(pod_uid));
}

bool HasFinalizer(const ObjectMeta& meta, std::string_view finalizer) {
  return std::find(meta.finalizers.begin(), meta.finalizers.end(), finalizer) !=
         meta.finalizers.end();
}

bool HasAccessors(const ObjectMeta& bucket) {
  return std::any_of(
      bucket.finalizers.begin(), bucket.finalizers.end(),
      [](const std::string& one) { return one.starts_with(kAccessorFinalizerPrefix); });
}

bool AddFinalizer(Object& object, std::string_view finalizer) {
  std::vector<std::string> finalizers = FinalizersOf(object);
  if (std::find(finalizers.begin(), finalizers.end(), finalizer) != finalizers.end()) return false;
  finalizers.emplace_back(finalizer);
  SetFinalizers(object, finalizers);
  return true;
}

bool RemoveFinalizer(Object& object, std::string_view finalizer) {
  std::vector<std::string> finalizers = FinalizersOf(object);
  if (std::erase(finalizers, finalizer) == 0) return false;
  SetFinalizers(object, finalizers);
  return true;
}

bool RemoveAllFinalizers(Object& object) {
  if (FinalizersOf(object).empty()) return false;
  SetFinalizers(object, {});
  return true;
}

}  // namespace cbt::kube::cosi
