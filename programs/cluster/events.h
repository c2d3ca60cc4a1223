// Events: what users see with `kubectl describe`.
#ifndef CBT_PROGRAMS_CLUSTER_EVENTS_H_
#define CBT_PROGRAMS_CLUSTER_EVENTS_H_

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "cbt/kube/client.h"
#include "ops/event_log.h"

namespace cbt::kube::cluster {

// What an Event is about.
struct Subject {
  Resource resource = {};
  std::string name_space = {};
  std::string name = {};
  std::string uid = {};
};
Subject SubjectOf(const Resource& resource, const ObjectMeta& meta);

// Says why something has to wait (S16). The same words about the same object are sent again after
// kAgain only, and count up in one Event. Thread safe. Texts must hold no secret.
class Events {
 public:
  static constexpr std::chrono::minutes kAgain{5};
  static constexpr size_t kMaxRemembered = 10'000;

  // `component`: who says it.
  Events(Client& client, std::string component, ops::EventLog& log)
      : client_(client), component_(std::move(component)), log_(log) {}

  void Warn(const Subject& subject, std::string_view reason, std::string_view text) {
    Send(subject, "Warning", reason, text);
  }
  void Note(const Subject& subject, std::string_view reason, std::string_view text) {
    Send(subject, "Normal", reason, text);
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Does not wait for the API server, and does not fail: an Event that is lost comes again.
  void Send(const Subject& subject, std::string_view type, std::string_view reason,
            std::string_view text);
  bool IsDue(const std::string& name);

  Client& client_;
  const std::string component_;
  ops::EventLog& log_;
  std::mutex mutex_;
  std::map<std::string, Clock::time_point> sent_;
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_EVENTS_H_
