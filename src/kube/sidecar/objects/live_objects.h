// Objects as the API server has them now.
#ifndef CBT_KUBE_SIDECAR_OBJECTS_LIVE_OBJECTS_H_
#define CBT_KUBE_SIDECAR_OBJECTS_LIVE_OBJECTS_H_

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cbt/kube/client.h"
#include "kube/sidecar/objects/objects.h"
#include "ops/event_log.h"

namespace cbt::kube::sidecar {

// Asks the API server for each object. Searches list page by page and keep what they look for, so
// their memory is bounded; at most kMostSearches run at a time.
class LiveObjects final : public Objects {
 public:
  static constexpr int kMostSearches = 8;

  // The object must live until the client's end.
  LiveObjects(Client& client, std::chrono::milliseconds timeout, ops::EventLog& log)
      : client_(client), timeout_(timeout), log_(log) {}

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
  template <typename T>
  struct Search;

  template <typename T>
  void Get(const std::string& name_space, const std::string& name, Found<T> found);
  template <typename T>
  void Find(std::function<bool(const T&)> wanted, Found<std::vector<T>> found);
  template <typename T>
  void NextPage(std::shared_ptr<Search<T>> search);

  // The error for the caller; logs what is not simply absent.
  absl::Status Failed(const char* what, const absl::Status& error);

  Client& client_;
  const std::chrono::milliseconds timeout_;
  ops::EventLog& log_;
  std::atomic<int> searches_ = 0;
};

}  // namespace cbt::kube::sidecar

#endif  // CBT_KUBE_SIDECAR_OBJECTS_LIVE_OBJECTS_H_
