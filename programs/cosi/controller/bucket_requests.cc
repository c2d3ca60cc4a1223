#include "programs/cosi/controller/bucket_requests.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cbt::kube::cosi {

bool BucketRequests::IsSettled(const Key& key) const {
  const auto request = tools_.watched.Seen<BucketRequest>(key.name_space, key.name);
  if (!request.has_value() || request->meta.deletion_timestamp.has_value() ||
      request->bucket_name.empty()) {
    return false;
  }
  const auto bucket = tools_.watched.Seen<Bucket>("", request->bucket_name);
  if (!bucket.has_value() || bucket->meta.deletion_timestamp.has_value() ||
      bucket->request.uid != request->meta.uid || bucket->available != request->available) {
    return false;
  }
  if (!bucket->bucket_id.empty() || bucket->provisioner.empty()) return true;
  // Before it says that nothing happens, it asks.
  if (WaitedSince(bucket->meta.creation_timestamp) >= kDriverTime) return false;
  tools_.wake_later(key.ToString(), kDriverTime);
  return true;
}

absl::Status BucketRequests::Reconcile(const Key& key) {
  if (IsSettled(key)) return absl::OkStatus();
  const absl::StatusOr<Object> object =
      tools_.client.Get(kBucketRequests, key.name_space, key.name);
  if (!object.ok()) return IfThere(object.status());
  const absl::StatusOr<BucketRequest> request = BucketRequest::Decode(*object);
  if (!request.ok()) return request.status();
  if (object->being_deleted()) return deletion_.Run(*request, *object);
  if (!request->bucket_name.empty()) return Follow(*request, *object, request->bucket_name);
  return Bind(*request, *object);
}

absl::StatusOr<BucketClass> BucketRequests::DefaultClass() const {
  std::vector<BucketClass> found;
  for (const ObjectPtr& object : tools_.watched.BucketClasses()) {
    absl::StatusOr<BucketClass> one = BucketClass::Decode(*object);
    if (one.ok() && one->is_default()) found.push_back(*std::move(one));
  }
  if (found.empty()) {
    return absl::NotFoundError("spec.bucketClassName is empty, and there is no default class");
  }
  if (found.size() > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("spec.bucketClassName is empty, and there are several default classes: ",
                     found[0].meta.name, ", ", found[1].meta.name));
  }
  return std::move(found.front());
}

absl::StatusOr<BucketClass> BucketRequests::ClassOf(const BucketRequest& request) const {
  const Subject subject = SubjectOf(kBucketRequests, request.meta);
  absl::StatusOr<BucketClass> one = request.class_name.empty()
                                        ? DefaultClass()
                                        : tools_.watched.FindBucketClass(request.class_name);
  if (absl::IsNotFound(one.status()) && !request.class_name.empty()) {
    return Wait(tools_.events, subject, "NoClass",
                absl::StrCat("BucketClass ", request.class_name, " does not exist"));
  }
  if (absl::IsNotFound(one.status()) || absl::IsFailedPrecondition(one.status())) {
    return Wait(tools_.events, subject, "NoClass", std::string(one.status().message()));
  }
  if (!one.ok()) return one;
  if (!one->Allows(request.meta.name_space)) {
    return Wait(tools_.events, subject, "NamespaceNotAllowed",
                absl::StrCat("BucketClass ", one->meta.name, " does not allow namespace ",
                             request.meta.name_space));
  }
  return one;
}

absl::Status BucketRequests::Bind(const BucketRequest& request, const Object& object) {
  const absl::StatusOr<BucketClass> one = ClassOf(request);
  if (!one.ok()) return one.status();
  const absl::StatusOr<Object> held =
      Change(tools_.client, kBucketRequests, object, Part::kObject, [&](Object& changed) {
        if (changed.being_deleted()) return false;
        bool edited = AddFinalizer(changed, kRequestFinalizer);
        const std::string label = LabelValue(one->provisioner);
        if (!label.empty() && changed.label(kProvisionerLabel) != label) {
          changed.SetString({"metadata", "labels", kProvisionerLabel}, label);
          edited = true;
        }
        return edited;
      });
  if (!held.ok()) return IfThere(held.status());
  if (held->being_deleted()) return absl::UnavailableError("the request is being deleted");
  const absl::StatusOr<std::string> name =
      one->provisioner.empty() ? AdoptBucket(request, *one) : MakeBucket(request, *one);
  if (!name.ok()) return name.status();
  const absl::StatusOr<Object> bound =
      Change(tools_.client, kBucketRequests, *held, Part::kStatus, [&](Object& changed) {
        if (changed.Has({"status", "bucketName"})) return false;
        changed.SetString({"status", "bucketName"}, *name);
        changed.SetBool({"status", "bucketAvailable"}, false);
        return true;
      });
  if (!bound.ok()) return bound.status();
  ++tools_.counters.buckets_bound;
  tools_.log.Write(rpc::LogLevel::kInfo, "bucket bound",
                   {{.key = "request", .value = request.meta.name_space + "/" + request.meta.name},
                    {.key = "bucket", .value = *name}});
  return Follow(request, *bound, *name);
}

absl::StatusOr<std::string> BucketRequests::MakeBucket(const BucketRequest& request,
                                                       const BucketClass& one) {
  Bucket bucket;
  bucket.meta.name = BucketNameOf(request);
  bucket.meta.labels[std::string(kProvisionerLabel)] = LabelValue(one.provisioner);
  if (!request.prefix.empty()) {
    bucket.meta.labels[std::string(kPrefixLabel)] = LabelValue(request.prefix);
  }
  bucket.meta.finalizers = {std::string(kBucketFinalizer)};
  bucket.provisioner = one.provisioner;
  bucket.deletion_policy = one.deletion_policy;
  bucket.class_name = one.meta.name;
  bucket.request = {request.meta.name, request.meta.name_space, request.meta.uid};
  bucket.protocol = one.protocol;
  bucket.parameters = one.parameters;
  const absl::StatusOr<Object> made = tools_.client.Create(kBuckets, bucket.Encode());
  if (made.ok()) return bucket.meta.name;
  if (!absl::IsAlreadyExists(made.status())) return made.status();
  // Of a former try, or somebody else's.
  const absl::StatusOr<Bucket> there = tools_.client.Get<Bucket>("", bucket.meta.name);
  if (!there.ok()) return there.status();
  if (there->request.uid != request.meta.uid) {
    return Wait(tools_.events, SubjectOf(kBucketRequests, request.meta), "NameTaken",
                absl::StrCat("Bucket ", bucket.meta.name, " exists, and is not of this request"));
  }
  return bucket.meta.name;
}

absl::StatusOr<std::string> BucketRequests::AdoptBucket(const BucketRequest& request,
                                                        const BucketClass& one) {
  const Subject subject = SubjectOf(kBucketRequests, request.meta);
  std::vector<ObjectPtr> fitting;
  for (const ObjectPtr& object : tools_.watched.BucketsFor(request.meta)) {
    const absl::StatusOr<Bucket> bucket = Bucket::Decode(*object);
    if (bucket.ok() && bucket->provisioner.empty() && !object->being_deleted() &&
        (bucket->request.uid.empty() || bucket->request.uid == request.meta.uid)) {
      fitting.push_back(object);
    }
  }
  if (fitting.empty()) {
    return Wait(tools_.events, subject, "NeedsAdministrator",
                absl::StrCat("BucketClass ", one.meta.name,
                             " has no provisioner: an administrator makes a Bucket whose "
                             "spec.bucketRequest names this request"));
  }
  if (fitting.size() > 1) {
    return Wait(tools_.events, subject, "SeveralBuckets",
                absl::StrCat("several Buckets name this request: ", std::string(fitting[0]->name()),
                             ", ", std::string(fitting[1]->name())));
  }
  const absl::StatusOr<Object> bound =
      Change(tools_.client, kBuckets, *fitting.front(), Part::kObject, [&](Object& changed) {
        if (changed.Has({"spec", "bucketRequest", "uid"})) return false;
        changed.SetString({"spec", "bucketRequest", "uid"}, request.meta.uid);
        return true;
      });
  if (!bound.ok()) return bound.status();
  return std::string(fitting.front()->name());
}

absl::Status BucketRequests::Follow(const BucketRequest& request, const Object& object,
                                    const std::string& bucket_name) {
  const absl::StatusOr<Bucket> bucket = tools_.client.Get<Bucket>("", bucket_name);
  if (!bucket.ok() && !absl::IsNotFound(bucket.status())) return bucket.status();
  const bool ours = bucket.ok() && bucket->request.uid == request.meta.uid;
  if (!ours) {
    tools_.events.Warn(SubjectOf(kBucketRequests, request.meta), "BucketLost",
                       absl::StrCat("Bucket ", bucket_name,
                                    " is gone, and is not made again: delete this request"));
  }
  if (ours && bucket->bucket_id.empty() && !bucket->provisioner.empty()) {
    AwaitDriver(tools_, kBucketRequests, request.meta, bucket->provisioner,
                bucket->meta.creation_timestamp, absl::StrCat("made Bucket ", bucket_name));
  }
  const bool available = ours && bucket->available && !bucket->meta.deletion_timestamp.has_value();
  return IfThere(
      Change(tools_.client, kBucketRequests, object, Part::kStatus, [available](Object& changed) {
        const absl::StatusOr<bool> now = changed.Bool({"status", "bucketAvailable"});
        if (now.ok() && *now == available) return false;
        changed.SetBool({"status", "bucketAvailable"}, available);
        return true;
      }).status());
}

}  // namespace cbt::kube::cosi
