// Remembers the answers of remote reviews for seconds.
#ifndef CBT_PROGRAMS_CLUSTER_ANSWER_CACHE_H_
#define CBT_PROGRAMS_CLUSTER_ANSWER_CACHE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cbt::kube::cluster {

// A hash of a question: what is kept reveals no token.
using QuestionKey = std::array<uint8_t, 32>;

// SHA-256 of the parts, each with its length. Throws std::bad_alloc.
QuestionKey KeyOf(std::span<const std::string_view> parts);

// Asks each question once at a time: later callers wait for the same answer. A yes is kept for
// `yes_time`, a no for `no_time`, and what is neither (UNAVAILABLE) for `unknown_time`, all counted
// from the moment of the question. At most `max_entries` are kept, the newest. Thread safe.
//
// Answer is copyable. A no is an error with another code than UNAVAILABLE.
template <typename Answer>
class AnswerCache {
 public:
  using Clock = std::chrono::steady_clock;
  using Done = std::function<void(const absl::StatusOr<Answer>&)>;

  struct Limits {
    std::chrono::milliseconds yes_time;
    std::chrono::milliseconds no_time;
    size_t max_entries;
    std::chrono::milliseconds unknown_time = {};
  };

  explicit AnswerCache(const Limits& limits) : state_(std::make_shared<State>(limits)) {}

  // Calls `done` once: with what is kept, or with the answer of `ask`, which calls its argument
  // once, during the call or later, from any thread. The cache may be gone by then.
  void Ask(const QuestionKey& key, Done done, const std::function<void(Done answer)>& ask) {
    std::optional<absl::StatusOr<Answer>> kept;
    const Clock::time_point now = Clock::now();
    {
      const std::lock_guard lock(state_->mutex);
      kept = state_->Find(key, now);
      if (!kept.has_value()) {
        std::vector<Done>& waiting = state_->asking[key];
        waiting.push_back(std::move(done));
        if (waiting.size() > 1) return;
      }
    }
    if (kept.has_value()) return done(*kept);
    try {
      ask([state = state_, key, now](const absl::StatusOr<Answer>& answer) {
        state->Answered(key, now, answer);
      });
    } catch (...) {
      // Those who wait for the same answer must get one.
      state_->Answered(key, now, absl::UnavailableError("the question could not be asked"));
    }
  }

 private:
  struct Entry {
    QuestionKey key;
    absl::StatusOr<Answer> answer;
    Clock::time_point until;
  };

  struct State {
    explicit State(const Limits& limits) : limits(limits) {}

    std::optional<absl::StatusOr<Answer>> Find(const QuestionKey& key, Clock::time_point now) {
      const auto found = index.find(key);
      if (found == index.end()) return std::nullopt;
      if (found->second->until > now) return found->second->answer;
      entries.erase(found->second);
      index.erase(found);
      return std::nullopt;
    }

    void Answered(const QuestionKey& key, Clock::time_point asked,
                  const absl::StatusOr<Answer>& answer) {
      std::vector<Done> waiting;
      {
        const std::lock_guard lock(mutex);
        const auto found = asking.find(key);
        if (found == asking.end()) return;
        waiting = std::move(found->second);
        asking.erase(found);
        Keep(key, asked, answer);
      }
      for (const Done& one : waiting) one(answer);
    }

    void Keep(const QuestionKey& key, Clock::time_point asked,
              const absl::StatusOr<Answer>& answer) {
      const bool known = !absl::IsUnavailable(answer.status());
      if (!known && limits.unknown_time.count() == 0) return;
      const auto until = asked + (answer.ok() ? limits.yes_time
                                  : known     ? limits.no_time
                                              : limits.unknown_time);
      if (const auto found = index.find(key); found != index.end()) {
        entries.erase(found->second);
        index.erase(found);
      }
      if (entries.size() >= limits.max_entries) {
        index.erase(entries.front().key);
        entries.pop_front();
      }
      entries.push_back({.key = key, .answer = answer, .until = until});
      index.emplace(key, std::prev(entries.end()));
    }

    const Limits limits;
    std::mutex mutex;
    std::list<Entry> entries;  // the oldest first
    std::map<QuestionKey, typename std::list<Entry>::iterator> index;
    std::map<QuestionKey, std::vector<Done>> asking;
  };

  const std::shared_ptr<State> state_;
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_ANSWER_CACHE_H_
