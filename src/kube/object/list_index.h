// Keys of a path that are numbers.
#ifndef CBT_KUBE_OBJECT_LIST_INDEX_H_
#define CBT_KUBE_OBJECT_LIST_INDEX_H_

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "kube/object/json.h"

namespace cbt::kube {

inline bool IsNumber(std::string_view key) noexcept {
  return !key.empty() && key.find_first_not_of("0123456789") == std::string_view::npos;
}

// The element of `list` that `key` is the number of, if there is one.
inline std::optional<rapidjson::SizeType> IndexOf(std::string_view key,
                                                  const json::Value& list) noexcept {
  rapidjson::SizeType index = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
  if (error != std::errc() || end != key.data() + key.size()) return std::nullopt;
  if (index >= list.Size()) return std::nullopt;
  return index;
}

}  // namespace cbt::kube

#endif  // CBT_KUBE_OBJECT_LIST_INDEX_H_
