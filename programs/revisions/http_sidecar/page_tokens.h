// Where the pages of a plugin's answer begin.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PAGE_TOKENS_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PAGE_TOKENS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace cbt::kube::http_sidecar {

// Translates block offsets into the plugin's page tokens: the offset of a request is a number, that
// of the plugin's RPC a text that only the plugin understands. Keeps the newest. Thread safe.
class PageTokens {
 public:
  static constexpr size_t kMaxTokens = 4096;
  static constexpr size_t kMaxTokenBytes = 1024;

  // A page of the plugin that holds everything that ends after `position` (bytes).
  struct Place {
    uint64_t position = 0;
    std::string token = {};  // empty: the first page
  };

  // `answer` identifies base and target. The last place at or before `offset`.
  Place Find(const std::string& answer, uint64_t offset) {
    const std::lock_guard lock(mutex_);
    auto found = places_.upper_bound({answer, offset});
    if (found == places_.begin()) return {};
    --found;
    if (found->first.first != answer) return {};
    order_.splice(order_.end(), order_, found->second.place);
    return {.position = found->first.second, .token = found->second.token};
  }

  // A token that is too long is not kept: the pages before it are then read again.
  void Keep(const std::string& answer, const Place& place) {
    if (place.token.empty() || place.token.size() > kMaxTokenBytes) return;
    const std::lock_guard lock(mutex_);
    const Key key{answer, place.position};
    if (const auto found = places_.find(key); found != places_.end()) Remove(found);
    while (places_.size() >= kMaxTokens) Remove(places_.find(order_.front()));
    order_.push_back(key);
    places_.emplace(key, Entry{.token = place.token, .place = std::prev(order_.end())});
  }

  // The plugin does not know them any more.
  void Forget(const std::string& answer) {
    const std::lock_guard lock(mutex_);
    for (auto at = places_.lower_bound({answer, 0});
         at != places_.end() && at->first.first == answer;) {
      Remove(at++);
    }
  }

 private:
  using Key = std::pair<std::string, uint64_t>;
  struct Entry {
    std::string token;
    std::list<Key>::iterator place;
  };

  void Remove(std::map<Key, Entry>::iterator entry) {
    order_.erase(entry->second.place);
    places_.erase(entry);
  }

  std::mutex mutex_;
  std::map<Key, Entry> places_;
  std::list<Key> order_;  // the one used longest ago first
};

}  // namespace cbt::kube::http_sidecar

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SIDECAR_PAGE_TOKENS_H_
