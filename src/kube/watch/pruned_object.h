// What a cache keeps of an object.
#ifndef CBT_KUBE_WATCH_PRUNED_OBJECT_H_
#define CBT_KUBE_WATCH_PRUNED_OBJECT_H_

#include <cstddef>

#include "cbt/kube/object.h"
#include "cbt/kube/watch.h"

namespace cbt::kube {

// Drops what `options` do not keep. False: what is left is larger than the cache keeps.
bool Prune(const CacheOptions& options, Object& object);

// Bytes of JSON; 0 if the options do not limit them.
size_t KeptBytes(const CacheOptions& options, const Object& object);

}  // namespace cbt::kube

#endif  // CBT_KUBE_WATCH_PRUNED_OBJECT_H_
