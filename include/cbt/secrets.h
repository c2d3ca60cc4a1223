// Values that must never reach a log, a metric or an error text.
#ifndef CBT_SECRETS_H_
#define CBT_SECRETS_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cbt/version.h"

namespace cbt {

// One secret text, a token for example. Can't be printed or compared by accident; the destructor
// wipes its bytes.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string_view value) : value_(value) {}
  ~Secret();
  Secret(Secret&& other) noexcept;
  Secret& operator=(Secret&& other) noexcept;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  bool empty() const noexcept { return value_.empty(); }
  // The text itself; valid as long as the object. The caller is responsible for where it goes.
  std::string_view Reveal() const noexcept { return value_; }
  // True if both are equal. The time taken depends on their lengths only.
  bool Equals(std::string_view other) const noexcept;
  Secret Copy() const { return Secret(value_); }

 private:
  std::string value_;
};

// The secrets of a request, by key. Can't be printed; the destructor wipes the values.
class Secrets {
 public:
  Secrets() = default;
  ~Secrets();
  Secrets(Secrets&&) noexcept = default;
  Secrets& operator=(Secrets&& other) noexcept;
  Secrets(const Secrets&) = delete;
  Secrets& operator=(const Secrets&) = delete;

  void Set(std::string key, std::string_view value);
  // The value is valid as long as the object, until the key is set again.
  std::optional<std::string_view> Get(const std::string& key) const;
  size_t size() const noexcept { return values_.size(); }
  // Calls `use(key, value)` for each secret in the order of keys, to forward them.
  template <typename Use>
  void ForEach(Use use) const {
    for (const auto& [key, value] : values_) use(key, value);
  }
  Secrets Copy() const;

 private:
  std::map<std::string, std::string> values_;
};

}  // namespace cbt

#endif  // CBT_SECRETS_H_
