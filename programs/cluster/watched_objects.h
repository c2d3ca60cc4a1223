// Objects as watches have last seen them.
#ifndef CBT_PROGRAMS_CLUSTER_WATCHED_OBJECTS_H_
#define CBT_PROGRAMS_CLUSTER_WATCHED_OBJECTS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "programs/cluster/fresh_cache.h"
#include "programs/cluster/objects.h"

namespace cbt::kube::cluster {

// What is watched: a program may not have the right to see services.
enum class Watches : unsigned char { kSnapshots, kAll };

// Answers during the call, and without a request. UNAVAILABLE as long as a watch is not current: it
// has not listed yet, may not list, or has been interrupted for more than two seconds. What it
// finds may be a moment old, and what it does not find may exist by now: ask LiveObjects before
// saying no.
class WatchedObjects final : public Objects {
 public:
  // Starts the watches. The client must live until Stop(). Errors: those of ObjectCache::Create().
  static absl::StatusOr<std::unique_ptr<WatchedObjects>> Create(Client& client, Watches watches);

  // Ends the watches; from now on, everything is UNAVAILABLE. Must not run in a callback of the
  // client.
  void Stop();

  // The first lists are under way, and none has failed so far: until they are complete, each answer
  // costs requests.
  bool filling() const;

  // Why each answer costs requests, and will: the first watch's FreshCache::trouble().
  absl::Status trouble() const;

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
  WatchedObjects() = default;

  std::unique_ptr<FreshCache> snapshots_;
  std::unique_ptr<FreshCache> contents_;
  std::unique_ptr<FreshCache> classes_;
  std::unique_ptr<FreshCache> services_;  // null: not watched
};

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_WATCHED_OBJECTS_H_
