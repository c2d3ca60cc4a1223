#include "programs/cosi/controller/access_requests.h"

#include <chrono>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/kube/status.h"
#include "cbt/kube/typed_objects.h"

namespace cbt::kube::cosi {
namespace {

std::string KeyOfAccess(const std::string& name) {
  return Key{std::string(kBucketAccesses.kind), "", name}.ToString();
}

// Empty: an administrator has made it.
std::string DriverOf(const BucketAccess& access) {
  const auto label = access.meta.labels.find(std::string(kProvisionerLabel));
  return label == access.meta.labels.end() ? "" : label->second;
}

}  // namespace

bool AccessRequests::IsSettled(const Key& key) const {
  const auto request = tools_.watched.Seen<BucketAccessRequest>(key.name_space, key.name);
  if (!request.has_value() || request->meta.deletion_timestamp.has_value() ||
      request->access_name.empty()) {
    return false;
  }
  const auto access = tools_.watched.Seen<BucketAccess>("", request->access_name);
  if (!access.has_value() || access->meta.deletion_timestamp.has_value() ||
      access->request.uid != request->meta.uid || access->granted != request->granted) {
    return false;
  }
  if (access->granted || DriverOf(*access).empty()) return true;
  // Before it says that nothing happens, it asks.
  if (WaitedSince(access->meta.creation_timestamp) >= kDriverTime) return false;
  tools_.wake_later(key.ToString(), kDriverTime);
  return true;
}

absl::Status AccessRequests::Reconcile(const Key& key) {
  if (IsSettled(key)) return absl::OkStatus();
  const absl::StatusOr<Object> object =
      tools_.client.Get(kBucketAccessRequests, key.name_space, key.name);
  if (!object.ok()) return IfThere(object.status());
  const absl::StatusOr<BucketAccessRequest> request = BucketAccessRequest::Decode(*object);
  if (!request.ok()) return request.status();
  if (object->being_deleted()) return End(*request, *object);
  if (!request->access_name.empty()) return Follow(*request, *object, request->access_name);
  return Bind(*request, *object);
}

absl::StatusOr<BucketAccessClass> AccessRequests::ClassOf(
    const BucketAccessRequest& request) const {
  absl::StatusOr<BucketAccessClass> one = tools_.watched.FindAccessClass(request.class_name);
  if (absl::IsNotFound(one.status())) {
    return Wait(tools_.events, SubjectOf(kBucketAccessRequests, request.meta), "NoClass",
                absl::StrCat("BucketAccessClass ", request.class_name, " does not exist"));
  }
  return one;
}

absl::StatusOr<std::string> AccessRequests::PolicyOf(const BucketAccessRequest& request,
                                                     const BucketAccessClass& one) const {
  const absl::StatusOr<Object> map =
      tools_.client.Get(kConfigMaps, one.policy.name_space, one.policy.name);
  if (absl::IsNotFound(map.status())) {
    return Wait(tools_.events, SubjectOf(kBucketAccessRequests, request.meta), "NoPolicy",
                absl::StrCat("the policy of BucketAccessClass ", request.class_name, ", ConfigMap ",
                             one.policy.name_space, "/", one.policy.name, ", does not exist"));
  }
  if (!map.ok()) return map.status();
  const absl::StatusOr<std::map<std::string, std::string>> data = map->StringMap({"data"});
  if (!data.ok()) return data.status();
  if (data->size() == 1) return data->begin()->second;
  Object all;
  for (const auto& [name, text] : *data) all.SetString({name}, text);
  return all.ToJson();
}

absl::Status AccessRequests::Bind(const BucketAccessRequest& request, const Object& object) {
  const absl::StatusOr<Bucket> bucket = bucket_.Find(request);
  if (!bucket.ok()) return bucket.status();
  const absl::StatusOr<BucketAccessClass> one = ClassOf(request);
  if (!one.ok()) return one.status();
  const absl::StatusOr<std::string> policy = PolicyOf(request, *one);
  if (!policy.ok()) return policy.status();
  const absl::StatusOr<Object> held =
      Change(tools_.client, kBucketAccessRequests, object, Part::kObject, [&](Object& changed) {
        if (changed.being_deleted()) return false;
        bool edited = AddFinalizer(changed, kAccessRequestFinalizer);
        const std::string label = LabelValue(bucket->provisioner);
        if (!label.empty() && changed.label(kProvisionerLabel) != label) {
          changed.SetString({"metadata", "labels", kProvisionerLabel}, label);
          edited = true;
        }
        return edited;
      });
  if (!held.ok()) return IfThere(held.status());
  if (held->being_deleted()) return absl::UnavailableError("the request is being deleted");
  const absl::StatusOr<std::string> name = MakeAccess(request, *one, *policy, *bucket);
  if (!name.ok()) return name.status();
  if (absl::Status held_back = Protect(*name, *bucket); !held_back.ok()) return held_back;
  const absl::StatusOr<Object> bound =
      Change(tools_.client, kBucketAccessRequests, *held, Part::kStatus, [&](Object& changed) {
        if (changed.Has({"status", "bucketAccessName"})) return false;
        changed.SetString({"status", "bucketAccessName"}, *name);
        changed.SetBool({"status", "accessGranted"}, false);
        return true;
      });
  if (!bound.ok()) return bound.status();
  ++tools_.counters.accesses_bound;
  tools_.log.Write(rpc::LogLevel::kInfo, "access bound",
                   {{.key = "request", .value = request.meta.name_space + "/" + request.meta.name},
                    {.key = "access", .value = *name}});
  return Follow(request, *bound, *name);
}

absl::StatusOr<std::optional<std::string>> AccessRequests::AdoptAccess(
    const BucketAccessRequest& request, const Bucket& bucket) {
  for (const ObjectPtr& object : tools_.watched.AccessesFor(request.meta)) {
    const absl::StatusOr<BucketAccess> access = BucketAccess::Decode(*object);
    if (!access.ok() || object->being_deleted() || !access->request.uid.empty()) continue;
    if (access->bucket_name != bucket.meta.name) {
      return Wait(
          tools_.events, SubjectOf(kBucketAccessRequests, request.meta), "OtherBucket",
          absl::StrCat("BucketAccess ", access->meta.name, " is for this request and for Bucket ",
                       access->bucket_name, ", and this request is for Bucket ", bucket.meta.name));
    }
    const absl::StatusOr<Object> bound =
        Change(tools_.client, kBucketAccesses, *object, Part::kObject, [&](Object& changed) {
          if (changed.Has({"spec", "bucketAccessRequest", "uid"})) return false;
          changed.SetString({"spec", "bucketAccessRequest", "uid"}, request.meta.uid);
          AddFinalizer(changed, kAccessFinalizer);
          return true;
        });
    if (!bound.ok()) return bound.status();
    if (bound->String({"spec", "bucketAccessRequest", "uid"}).value_or("") == request.meta.uid) {
      return std::optional<std::string>(access->meta.name);
    }
  }
  return std::optional<std::string>();
}

absl::StatusOr<std::string> AccessRequests::MakeAccess(const BucketAccessRequest& request,
                                                       const BucketAccessClass& one,
                                                       const std::string& policy,
                                                       const Bucket& bucket) {
  // Of a former try.
  for (const ObjectPtr& object : tools_.watched.AccessesFor(request.meta)) {
    const absl::StatusOr<BucketAccess> access = BucketAccess::Decode(*object);
    if (access.ok() && access->request.uid == request.meta.uid &&
        access->bucket_name == bucket.meta.name) {
      return access->meta.name;
    }
  }
  const absl::StatusOr<std::optional<std::string>> adopted = AdoptAccess(request, bucket);
  if (!adopted.ok()) return adopted.status();
  if (adopted->has_value()) return **adopted;
  const Subject subject = SubjectOf(kBucketAccessRequests, request.meta);
  if (bucket.provisioner.empty()) {
    return Wait(tools_.events, subject, "NeedsAdministrator",
                absl::StrCat("Bucket ", bucket.meta.name,
                             " has no provisioner: an administrator makes a BucketAccess for it "
                             "whose spec.bucketAccessRequest names this request"));
  }
  BucketAccess access;
  access.meta.name = AccessNameOf(request);
  access.meta.labels[std::string(kProvisionerLabel)] = LabelValue(bucket.provisioner);
  access.meta.annotations[std::string(kBucketIdAnnotation)] = bucket.id();
  access.meta.finalizers = {std::string(kAccessFinalizer)};
  access.bucket_name = bucket.meta.name;
  access.request = {request.meta.name, request.meta.name_space, request.meta.uid};
  if (!request.service_account.empty()) {
    access.service_account = {request.service_account, request.meta.name_space, ""};
  }
  access.policy = policy;
  access.parameters = one.parameters;
  const absl::StatusOr<Object> made = tools_.client.Create(kBucketAccesses, access.Encode());
  if (made.ok()) return access.meta.name;
  if (!absl::IsAlreadyExists(made.status())) return made.status();
  const absl::StatusOr<BucketAccess> there = tools_.client.Get<BucketAccess>("", access.meta.name);
  if (!there.ok()) return there.status();
  if (there->request.uid != request.meta.uid || there->bucket_name != bucket.meta.name) {
    return Wait(
        tools_.events, subject, "NameTaken",
        absl::StrCat("BucketAccess ", access.meta.name, " exists, and is not of this request"));
  }
  return access.meta.name;
}

absl::Status AccessRequests::Protect(const std::string& access_name, const Bucket& bucket) {
  const absl::StatusOr<Object> access = tools_.client.Get(kBucketAccesses, "", access_name);
  if (!access.ok()) return access.status();
  const absl::StatusOr<ObjectMeta> meta = access->Meta();
  if (!meta.ok()) return meta.status();
  const absl::StatusOr<Object> object = tools_.client.Get(kBuckets, "", bucket.meta.name);
  if (!object.ok()) return object.status();
  if (object->uid() != bucket.meta.uid) return absl::AbortedError("the Bucket is another one now");
  // The API server refuses it for a Bucket that is being deleted.
  const absl::StatusOr<Object> held =
      Change(tools_.client, kBuckets, *object, Part::kObject,
             [&](Object& changed) { return AddFinalizer(changed, AccessorFinalizer(*meta)); });
  // An access without a driver has waited for it.
  if (held.ok()) tools_.wake_later(KeyOfAccess(access_name), std::chrono::milliseconds(0));
  return held.status();
}

absl::Status AccessRequests::Follow(const BucketAccessRequest& request, const Object& object,
                                    const std::string& access_name) {
  const absl::StatusOr<BucketAccess> access = tools_.client.Get<BucketAccess>("", access_name);
  if (!access.ok() && !absl::IsNotFound(access.status())) return access.status();
  const bool ours = access.ok() && access->request.uid == request.meta.uid &&
                    !access->meta.deletion_timestamp.has_value();
  if (!ours) {
    tools_.events.Warn(SubjectOf(kBucketAccessRequests, request.meta), "AccessLost",
                       absl::StrCat("BucketAccess ", access_name,
                                    " was deleted, and is not made again: delete this request"));
  }
  if (const std::string driver = ours ? DriverOf(*access) : "";
      !driver.empty() && !access->granted) {
    AwaitDriver(tools_, kBucketAccessRequests, request.meta, driver,
                access->meta.creation_timestamp,
                absl::StrCat("granted BucketAccess ", access_name));
  }
  const bool granted = ours && access->granted;
  return IfThere(
      Change(tools_.client, kBucketAccessRequests, object, Part::kStatus,
             [granted](Object& changed) {
               const absl::StatusOr<bool> now = changed.Bool({"status", "accessGranted"});
               if (now.ok() && *now == granted) return false;
               changed.SetBool({"status", "accessGranted"}, granted);
               return true;
             })
          .status());
}

absl::StatusOr<bool> AccessRequests::EndAccess(const BucketAccessRequest& request,
                                               const std::string& name) {
  const absl::StatusOr<BucketAccess> access = tools_.client.Get<BucketAccess>("", name);
  if (absl::IsNotFound(access.status())) return true;
  if (!access.ok()) return access.status();
  if (access->request.uid != request.meta.uid) return true;
  if (!access->meta.deletion_timestamp.has_value()) {
    DeleteOptions options;
    options.uid = access->meta.uid;
    const absl::Status deleted = tools_.client.Delete(kBucketAccesses, "", name, options);
    if (!deleted.ok() && !absl::IsNotFound(deleted) && !IsConflict(deleted)) return deleted;
  }
  // Its change wakes the request. Running Pods hold it longer, and not the request.
  if (!HasFinalizer(access->meta, kAccessFinalizer)) return true;
  if (const std::string driver = DriverOf(*access); !driver.empty()) {
    AwaitDriver(tools_, kBucketAccessRequests, request.meta, driver,
                access->meta.deletion_timestamp, absl::StrCat("revoked BucketAccess ", name));
  }
  return false;
}

absl::Status AccessRequests::End(const BucketAccessRequest& request, const Object& object) {
  if (!HasFinalizer(request.meta, kAccessRequestFinalizer) &&
      !HasFinalizer(request.meta, kAccessRequestFinalizerShort)) {
    return absl::OkStatus();
  }
  std::vector<std::string> names = {request.access_name};
  if (request.access_name.empty()) {
    names = {AccessNameOf(request)};
    // An administrator's may have been bound before the request could name it.
    for (const ObjectPtr& access : tools_.watched.AccessesFor(request.meta)) {
      if (access->name() != names.front()) names.emplace_back(access->name());
    }
  }
  bool over = true;
  for (const std::string& name : names) {
    const absl::StatusOr<bool> ended = EndAccess(request, name);
    if (!ended.ok()) return ended.status();
    over = over && *ended;
  }
  if (!over) return absl::OkStatus();
  const absl::StatusOr<Object> released =
      Change(tools_.client, kBucketAccessRequests, object, Part::kObject, [](Object& changed) {
        const bool longer = RemoveFinalizer(changed, kAccessRequestFinalizer);
        return RemoveFinalizer(changed, kAccessRequestFinalizerShort) || longer;
      });
  if (!released.ok()) return IfThere(released.status());
  ++tools_.counters.accesses_released;
  return absl::OkStatus();
}

}  // namespace cbt::kube::cosi
