#include <cstring>
#include <utility>

#include "cbt/provider.h"

namespace cbt {
namespace {

void Wipe(std::string& value) noexcept {
  // The barrier keeps the compiler from dropping a store that nobody reads.
  std::memset(value.data(), 0, value.size());
  asm volatile("" : : "r"(value.data()) : "memory");
}

}  // namespace

Secrets::~Secrets() {
  for (auto& [key, value] : values_) Wipe(value);
}

void Secrets::Set(std::string key, std::string_view value) {
  std::string& slot = values_[std::move(key)];
  Wipe(slot);
  slot.assign(value);
}

std::optional<std::string_view> Secrets::Get(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

}  // namespace cbt
