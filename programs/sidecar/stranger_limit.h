// How much the API server is asked for callers that are not known.
#ifndef CBT_PROGRAMS_SIDECAR_STRANGER_LIMIT_H_
#define CBT_PROGRAMS_SIDECAR_STRANGER_LIMIT_H_

#include <chrono>
#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/fair_limit.h"
#include "base/fair_places.h"
#include "programs/cluster/answer_cache.h"

namespace cbt::kube::sidecar {

// Anybody who reaches the sidecar can present tokens that mean nothing. Each costs a question under
// the sidecar's identity, so such questions are limited in their number at once and a second, and
// addresses share both fairly. A token that was valid once, in the last hour, is not limited: who
// is known does not suffer from strangers, even from those at the same address. Thread safe.
class StrangerLimit {
 public:
  using Clock = std::chrono::steady_clock;
  // Questions at once, of which one address has half at most.
  static constexpr size_t kPlaces = 64;
  // A second, and at once after a pause.
  static constexpr double kRate = 50;
  static constexpr int kBurst = 100;
  static constexpr std::chrono::hours kRemembered{1};
  static constexpr size_t kMaxKnown = 4096;

  // The right to ask about the token with this key, held until the answer has come; empty if `peer`
  // has to wait.
  std::optional<FairPlaces::Place> Enter(const cluster::QuestionKey& token, const std::string& peer,
                                         Clock::time_point now = Clock::now());
  // The token is valid.
  void Recognise(const cluster::QuestionKey& token, Clock::time_point now = Clock::now());

 private:
  struct Known {
    cluster::QuestionKey token;
    Clock::time_point since;
  };

  bool IsKnown(const cluster::QuestionKey& token, Clock::time_point now);

  FairPlaces places_{kPlaces};
  FairLimit rate_{kRate, kBurst};
  std::mutex mutex_;
  std::list<Known> known_;  // the one that was recognised longest ago first
  std::map<cluster::QuestionKey, std::list<Known>::iterator> index_;
};

// Whether the text could be a bearer's token at all: printable ASCII without blanks, and of a
// length that headers carry. Nothing else is worth a question.
bool CouldBeToken(std::string_view text) noexcept;

}  // namespace cbt::kube::sidecar

#endif  // CBT_PROGRAMS_SIDECAR_STRANGER_LIMIT_H_
