// Rules of names, buckets and requests that must be refused.

#include <algorithm>
#include <future>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "programs/cosi/conform/checker.h"

namespace cbt::cosi {
namespace {

using absl::StatusCode;

bool IsLetterOrDigit(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); }

// Letters, digits, '-' and '.'.
bool IsIdentifier(std::string_view text, size_t most) {
  return !text.empty() && text.size() <= most && std::all_of(text.begin(), text.end(), [](char c) {
    return IsLetterOrDigit(c) || c == '-' || c == '.';
  });
}

}  // namespace

void Checker::CheckInfo() {
  Check("name", "the driver has a name of 1 to 63 letters, digits, '-' and '.'", [&] {
    constexpr size_t kMost = 63;
    const absl::StatusOr<DriverInfo> info = peer_.Info();
    if (!info.ok()) return Expect(info.status(), {StatusCode::kOk});
    const std::string& name = info->name;
    if (!IsIdentifier(name, kMost) || !IsLetterOrDigit(name.front()) ||
        !IsLetterOrDigit(name.back())) {
      return Broken("its name is \"" + name + "\"");
    }
    return Kept();
  });
  Check("protocols", "the driver says which protocols it has, S3 among them", [&] {
    if (!Is(Revision::kV1alpha2)) return Skipped("this revision does not say it");
    const absl::StatusOr<DriverInfo> info = peer_.Info();
    if (!info.ok()) return Expect(info.status(), {StatusCode::kOk});
    const std::vector<Protocol>& all = info->protocols;
    if (all.empty()) return Broken("it says none");
    if (std::find(all.begin(), all.end(), Protocol::kS3) == all.end()) {
      return Skipped("it has no S3, which alone is checked");
    }
    return Kept();
  });
}

void Checker::CheckCreation() {
  const std::string name = NewName("create");
  absl::StatusOr<BucketAnswer> first = peer_.Create(ToCreate(name));
  if (first.ok()) buckets_.insert(first->bucket_id);
  Check("create", "a bucket is created, and its ID has letters, digits, '-' and '.'", [&] {
    constexpr size_t kMost = 2048;
    if (!first.ok()) return Expect(first.status(), {StatusCode::kOk});
    if (!IsIdentifier(first->bucket_id, kMost)) return Broken("its ID is no such text");
    if (Is(Revision::kV1alpha2) && !first->s3.has_value()) {
      return Broken("the answer does not say that the bucket has S3");
    }
    return Kept();
  });
  Check("create-again", "the same request again is OK, and has the same ID", [&] {
    if (!first.ok()) return Skipped("no bucket was created");
    const absl::StatusOr<BucketAnswer> again = peer_.Create(ToCreate(name));
    if (!again.ok()) return Expect(again.status(), {StatusCode::kOk});
    if (again->bucket_id != first->bucket_id) {
      return Broken(absl::StrCat("first ", first->bucket_id, ", then ", again->bucket_id));
    }
    return Kept();
  });
  Check("create-other", "the same name with other parameters is ALREADY_EXISTS", [&] {
    if (!first.ok()) return Skipped("no bucket was created");
    CreateRequest request = ToCreate(name);
    request.parameters["cbtctl-conform"] = "other";
    const absl::StatusOr<BucketAnswer> other = peer_.Create(request);
    if (absl::IsInvalidArgument(other.status())) {
      return Skipped("the driver refuses unknown parameters first");
    }
    return Expect(other.status(), {StatusCode::kAlreadyExists});
  });
  Check("create-63", "a bucket's name may have 63 characters", [&] {
    constexpr size_t kLongest = 63;
    const absl::StatusOr<BucketAnswer> made = peer_.Create(ToCreate(NewName("long", kLongest)));
    if (made.ok()) buckets_.insert(made->bucket_id);
    return Expect(made.status(), {StatusCode::kOk});
  });
  Check("create-at-once", "two requests at once make one bucket", [&] {
    const CreateRequest request = ToCreate(NewName("twice"));
    auto other = std::async(std::launch::async, [&] { return peer_.Create(request); });
    absl::StatusOr<BucketAnswer> one = peer_.Create(request);
    absl::StatusOr<BucketAnswer> two = other.get();
    // One of them may be put off.
    if (absl::IsAborted(one.status())) one = peer_.Create(request);
    if (absl::IsAborted(two.status())) two = peer_.Create(request);
    if (one.ok()) buckets_.insert(one->bucket_id);
    if (two.ok()) buckets_.insert(two->bucket_id);
    if (!one.ok()) return Expect(one.status(), {StatusCode::kOk});
    if (!two.ok()) return Expect(two.status(), {StatusCode::kOk});
    if (one->bucket_id != two->bucket_id) {
      return Broken(absl::StrCat("they have the IDs ", one->bucket_id, " and ", two->bucket_id));
    }
    return Kept();
  });
  Check("find", "a bucket that exists is found", [&] {
    if (!Is(Revision::kV1alpha2)) return Skipped("this revision has no such method");
    if (!first.ok()) return Skipped("no bucket was created");
    const absl::StatusOr<BucketAnswer> found =
        peer_.Find({.bucket_id = first->bucket_id,
                    .protocols = {Protocol::kS3},
                    .parameters = options_.bucket_parameters});
    if (!found.ok()) return Expect(found.status(), {StatusCode::kOk});
    if (found->bucket_id != first->bucket_id) return Broken("the answer has another ID");
    return Kept();
  });
}

void Checker::CheckRefusals() {
  Check("create-nameless", "a bucket without a name is INVALID_ARGUMENT", [&] {
    return Expect(peer_.Create(ToCreate("")).status(), {StatusCode::kInvalidArgument});
  });
  Check("create-protocol", "a protocol that the driver has not is INVALID_ARGUMENT", [&] {
    if (Is(Revision::kV02)) return Skipped("requests of this revision have no protocol");
    std::vector<Protocol> had = {Protocol::kS3};
    if (const absl::StatusOr<DriverInfo> info = peer_.Info(); info.ok()) {
      had.insert(had.end(), info->protocols.begin(), info->protocols.end());
    }
    const bool azure = std::find(had.begin(), had.end(), Protocol::kAzure) != had.end();
    CreateRequest request = ToCreate(NewName("protocol"));
    request.protocols = {azure ? Protocol::kGcs : Protocol::kAzure};
    if (std::find(had.begin(), had.end(), request.protocols.front()) != had.end()) {
      return Skipped("it has all of them");
    }
    const absl::StatusOr<BucketAnswer> made = peer_.Create(request);
    if (made.ok()) buckets_.insert(made->bucket_id);
    return Expect(made.status(), {StatusCode::kInvalidArgument});
  });
  Check("find-missing", "a bucket that does not exist is NOT_FOUND", [&] {
    if (!Is(Revision::kV1alpha2)) return Skipped("this revision has no such method");
    return Expect(peer_
                      .Find({.bucket_id = NewName("never"),
                             .protocols = {Protocol::kS3},
                             .parameters = options_.bucket_parameters})
                      .status(),
                  {StatusCode::kNotFound});
  });
  Check("grant-missing", "access to a bucket that does not exist is refused", [&] {
    const GrantRequest request = ToGrant(NewName("account"), NewName("never"));
    const absl::StatusOr<GrantAnswer> answer = Grant(request);
    if (answer.ok()) return Broken("it was granted");
    return Expect(answer.status(), {StatusCode::kNotFound, StatusCode::kFailedPrecondition,
                                    StatusCode::kInvalidArgument});
  });
  Check("grant-authentication", "an unknown kind of authentication is INVALID_ARGUMENT", [&] {
    if (Is(Revision::kProposal)) return Skipped("requests of this revision have none");
    const absl::StatusOr<std::string> bucket_id = NewBucket();
    if (!bucket_id.ok()) return Skipped(std::string(bucket_id.status().message()));
    GrantRequest request = ToGrant(NewName("account"), *bucket_id);
    request.authentication = Authentication::kUnknown;
    return Expect(Grant(request).status(), {StatusCode::kInvalidArgument});
  });
}

void Checker::CheckDeletion() {
  Check("delete", "a bucket is deleted, with what is in it: its keys reach nothing", [&] {
    const absl::StatusOr<std::string> bucket_id = NewBucket();
    if (!bucket_id.ok()) return Skipped(std::string(bucket_id.status().message()));
    const absl::StatusOr<GrantAnswer> answer = Grant(ToGrant(NewName("account"), *bucket_id));
    if (!answer.ok()) return Skipped("no access was granted");
    const absl::StatusOr<TriedKeys> keys = Keys(*answer, *bucket_id);
    if (!keys.ok()) return Skipped(std::string(keys.status().message()));
    if (absl::Status wrote = keys->Writes(true, options_.settle_time); !wrote.ok()) {
      return Skipped(std::string(wrote.message()));
    }
    if (absl::Status deleted = Delete(*bucket_id); !deleted.ok()) {
      return Expect(deleted, {StatusCode::kOk});
    }
    return Expect(keys->Reads(false, options_.settle_time), {StatusCode::kOk});
  });
  Check("delete-again", "a bucket that is gone is deleted again", [&] {
    const absl::StatusOr<std::string> bucket_id = NewBucket();
    if (!bucket_id.ok()) return Skipped(std::string(bucket_id.status().message()));
    if (absl::Status once = Delete(*bucket_id); !once.ok()) return Expect(once, {StatusCode::kOk});
    return Expect(Delete(*bucket_id), {StatusCode::kOk});
  });
  Check("delete-unknown", "a bucket that never was is deleted",
        [&] { return Expect(Delete(NewName("never")), {StatusCode::kOk}); });
}

}  // namespace cbt::cosi
