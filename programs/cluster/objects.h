// The objects of the API server that a sidecar reads.
#ifndef CBT_PROGRAMS_CLUSTER_OBJECTS_H_
#define CBT_PROGRAMS_CLUSTER_OBJECTS_H_

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/kube/typed_objects.h"

namespace cbt::kube::cluster {

template <typename Result>
using Found = std::function<void(absl::StatusOr<Result>)>;

// Waits for what `ask` passes to its argument, once. Not in a callback of a client.
template <typename Answer>
Answer Await(const std::function<void(std::function<void(Answer)>)>& ask) {
  const auto promise = std::make_shared<std::promise<Answer>>();
  std::future<Answer> answer = promise->get_future();
  ask([promise](Answer one) { promise->set_value(std::move(one)); });
  return answer.get();
}

// Each function calls `found` once, during the call or later, from any thread: with the object, or
// NOT_FOUND, or UNAVAILABLE if that can't be known now. Thread safe.
class Objects {
 public:
  virtual ~Objects() = default;

  virtual void GetSnapshot(const std::string& name_space, const std::string& name,
                           Found<VolumeSnapshot> found) = 0;
  virtual void GetContent(const std::string& name, Found<VolumeSnapshotContent> found) = 0;
  // Those of `driver` that have `handle`, whatever namespace their snapshot is in; often none.
  // `name_space`: who asks, for limits.
  virtual void FindContents(const std::string& driver, const std::string& handle,
                            const std::string& name_space,
                            Found<std::vector<VolumeSnapshotContent>> found) = 0;
  virtual void GetClass(const std::string& name, Found<VolumeSnapshotClass> found) = 0;
  // The default classes of `driver`; one, as a rule.
  virtual void FindDefaultClasses(const std::string& driver,
                                  Found<std::vector<VolumeSnapshotClass>> found) = 0;
  virtual void GetService(const std::string& name, Found<SnapshotMetadataService> found) = 0;
};

// Whether FindContents() and FindDefaultClasses() return the object.
bool IsContentOf(const VolumeSnapshotContent& content, const std::string& driver,
                 const std::string& handle);
bool IsDefaultFor(const VolumeSnapshotClass& one, const std::string& driver);

}  // namespace cbt::kube::cluster

#endif  // CBT_PROGRAMS_CLUSTER_OBJECTS_H_
