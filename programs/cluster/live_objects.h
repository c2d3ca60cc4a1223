// Objects as the API server has them now.
#ifndef CBT_PROGRAMS_CLUSTER_LIVE_OBJECTS_H_
#define CBT_PROGRAMS_CLUSTER_LIVE_OBJECTS_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/fair_limit.h"
#include "base/fair_places.h"
#include "cbt/kube/client.h"
#include "ops/event_log.h"
#include "programs/cluster/answer_cache.h"
#include "programs/cluster/objects.h"

namespace cbt::kube::cluster {

// Asks the API server for each object. Searches for objects of one type share lists: one list is
// under way at a time, and the next one answers all that have asked since it began. So what is
// asked of the API server does not grow with the number of searches, and no searches keep others
// out. Lists are read page by page, and only what is searched for is kept.
//
// A search for contents that found none is not repeated within a second. The number of searches a
// second, and that of snapshots asked for by name at once, are shared fairly by namespaces: beyond
// that, UNAVAILABLE. Lists of contents, which have all those of the cluster, wait for a rate of
// their own. So names and handles that a tenant invents cost the API server and other tenants
// little.
class LiveObjects final : public Objects {
 public:
  // Searches for contents a second, and at once after a pause.
  static constexpr double kSearchRate = 20;
  static constexpr int kSearchBurst = 40;
  // Lists of contents a second, and at once after a pause.
  static constexpr double kListRate = 1;
  static constexpr int kListBurst = 10;
  // Snapshots that are asked for by name and not answered yet. A client takes as many calls.
  static constexpr size_t kMaxLookups = 1024;
  static constexpr std::chrono::seconds kKeepAbsent{1};
  static constexpr size_t kMaxKept = 4096;

  // The object must live until the client's end, and Stop() must come before that. Throws
  // std::system_error if the thread that paces lists can't be started.
  LiveObjects(Client& client, std::chrono::milliseconds timeout, ops::EventLog& log)
      : client_(client),
        timeout_(timeout),
        log_(log),
        absent_({.yes_time = {}, .no_time = kKeepAbsent, .max_entries = kMaxKept}),
        pacer_([this] { Pace(); }) {}
  ~LiveObjects() { Stop(); }

  // No list waits for its turn from now on.
  void Stop();

  void GetSnapshot(const std::string& name_space, const std::string& name,
                   Found<VolumeSnapshot> found) override;
  void GetContent(const std::string& name, Found<VolumeSnapshotContent> found) override;
  void FindContents(const std::string& driver, const std::string& handle,
                    const std::string& name_space,
                    Found<std::vector<VolumeSnapshotContent>> found) override;
  void GetClass(const std::string& name, Found<VolumeSnapshotClass> found) override;
  void FindDefaultClasses(const std::string& driver,
                          Found<std::vector<VolumeSnapshotClass>> found) override;
  void GetService(const std::string& name, Found<SnapshotMetadataService> found) override;

 private:
  // One search, by what SearchKeyOf() returns for objects that may match.
  template <typename T>
  struct Search {
    std::function<bool(const T&)> wanted;
    Found<std::vector<T>> found;
    std::vector<T> matches;
    bool too_many = false;
  };
  template <typename T>
  using Searches = std::multimap<std::string, Search<T>>;

  // Those that wait for the next list.
  template <typename T>
  struct Queue {
    std::mutex mutex;
    bool listing = false;
    Searches<T> waiting;
  };
  // One list, and the searches that it answers. At its end, however it comes, the next one begins.
  template <typename T>
  struct List;

  template <typename T>
  void Get(const std::string& name_space, const std::string& name, Found<T> found);
  template <typename T>
  void Find(Queue<T>& queue, const std::string& key, std::function<bool(const T&)> wanted,
            Found<std::vector<T>> found);
  template <typename T>
  void StartList(Queue<T>& queue) noexcept;
  // Whether the next list of contents has to wait; Pace() begins it then.
  bool MustWait();
  void Pace();
  template <typename T>
  void BeginList(Queue<T>& queue) noexcept;
  template <typename T>
  void NextPage(std::shared_ptr<List<T>> list);

  // The error for the caller; logs what is not simply absent.
  absl::Status Failed(const char* what, const absl::Status& error);

  Client& client_;
  const std::chrono::milliseconds timeout_;
  ops::EventLog& log_;
  Queue<VolumeSnapshotContent> contents_;
  Queue<VolumeSnapshotClass> classes_;
  AnswerCache<std::vector<VolumeSnapshotContent>> absent_;  // NOT_FOUND for none
  FairLimit search_rate_{kSearchRate, kSearchBurst};
  FairPlaces lookups_{kMaxLookups};
  FairLimit list_rate_{kListRate, kListBurst};  // of one user: this process
  std::mutex pace_mutex_;
  std::condition_variable paced_;
  std::optional<FairLimit::Clock::time_point> due_;  // of a list that waits
  bool stopped_ = false;
  std::thread pacer_;  // the last member: it uses the others
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_LIVE_OBJECTS_H_
