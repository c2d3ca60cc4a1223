#include "cbt/secrets.h"

#include <utility>

#include "base/wipe.h"

namespace cbt {

Secret::~Secret() { Wipe(value_); }

Secret::Secret(Secret&& other) noexcept { *this = std::move(other); }

Secret& Secret::operator=(Secret&& other) noexcept {
  if (this == &other) return *this;
  Wipe(value_);
  std::string().swap(value_);
  // Allocates nothing. A short string is stored in the object itself, and moving leaves the bytes
  // in the source.
  value_.swap(other.value_);
  WipeWhole(other.value_);
  return *this;
}

bool Secret::Equals(std::string_view other) const noexcept {
  if (value_.size() != other.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < other.size(); ++i) {
    difference |= static_cast<unsigned>(static_cast<unsigned char>(value_[i]) ^
                                        static_cast<unsigned char>(other[i]));
  }
  // Keeps the compiler from adding an early exit to the loop.
  asm volatile("" : "+r"(difference));
  return difference == 0;
}

Secrets::~Secrets() {
  for (auto& [key, value] : values_) Wipe(value);
}

Secrets& Secrets::operator=(Secrets&& other) noexcept {
  if (this == &other) return *this;
  for (auto& [key, value] : values_) Wipe(value);
  values_ = std::move(other.values_);
  other.values_.clear();
  return *this;
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

Secrets Secrets::Copy() const {
  Secrets copy;
  for (const auto& [key, value] : values_) copy.Set(key, value);
  return copy;
}

}  // namespace cbt
