// Rules of access: keys, what they allow and forbid, and revocation.

#include <algorithm>
#include <future>

#include "absl/strings/str_cat.h"
#include "programs/cosi/conform/checker.h"

namespace cbt::cosi {
namespace {

using absl::StatusCode;

bool SameKeys(const GrantAnswer& a, const GrantAnswer& b) {
  return a.account_id == b.account_id && a.keys.has_value() && b.keys.has_value() &&
         a.keys->access_key == b.keys->access_key &&
         a.keys->secret_key.Equals(b.keys->secret_key.Reveal());
}

std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

}  // namespace

void Checker::CheckGrants() {
  const absl::StatusOr<std::string> bucket_id = NewBucket();
  const std::string account = NewName("account");
  absl::StatusOr<GrantAnswer> first = absl::UnavailableError("no bucket");
  if (bucket_id.ok()) first = Grant(ToGrant(account, *bucket_id));
  const auto missing = [&] { return TextOf(bucket_id.ok() ? first.status() : bucket_id.status()); };
  Check("grant", "access is granted: an account, and all that a client of S3 needs", [&] {
    if (!bucket_id.ok()) return Skipped(missing());
    if (!first.ok()) return Expect(first.status(), {StatusCode::kOk});
    if (first->account_id.empty()) return Broken("the answer has no account ID");
    if (!first->keys.has_value() || first->keys->access_key.empty() ||
        first->keys->secret_key.empty()) {
      return Broken("the answer has no keys");
    }
    if (first->buckets.size() != 1 || !first->buckets.front().s3.has_value() ||
        first->buckets.front().s3->endpoint.empty()) {
      return Broken("the answer has no endpoint");
    }
    const BucketAnswer& bucket = first->buckets.front();
    if (Is(Revision::kV1alpha2) && (bucket.bucket_id != *bucket_id || bucket.s3->region.empty() ||
                                    (bucket.s3->addressing != Addressing::kPath &&
                                     bucket.s3->addressing != Addressing::kVirtual))) {
      return Broken("the answer lacks the bucket's ID, its region or its addressing style");
    }
    return Kept();
  });
  Check("grant-again", "the same request again has the same account and keys", [&] {
    if (!first.ok()) return Skipped(missing());
    const absl::StatusOr<GrantAnswer> again = Grant(ToGrant(account, *bucket_id));
    if (!again.ok()) return Expect(again.status(), {StatusCode::kOk});
    return SameKeys(*first, *again) ? Kept() : Broken("they are others");
  });
  Check("grant-other", "other access for the same account is ALREADY_EXISTS", [&] {
    if (!first.ok()) return Skipped(missing());
    if (Is(Revision::kV02)) return Skipped("requests of this revision have no mode");
    return Expect(Grant(ToGrant(account, *bucket_id, AccessMode::kReadOnly)).status(),
                  {StatusCode::kAlreadyExists});
  });
  Check("grant-at-once", "two requests at once have the same account and keys", [&] {
    if (!bucket_id.ok()) return Skipped(missing());
    const GrantRequest request = ToGrant(NewName("account"), *bucket_id);
    auto other = std::async(std::launch::async, [&] { return peer_.Grant(request); });
    absl::StatusOr<GrantAnswer> one = peer_.Grant(request);
    absl::StatusOr<GrantAnswer> two = other.get();
    if (absl::IsAborted(one.status())) one = Grant(request);
    if (absl::IsAborted(two.status())) two = Grant(request);
    for (const auto* answer : {&one, &two}) {
      if (!answer->ok()) return Expect(answer->status(), {StatusCode::kOk});
      grants_.emplace((*answer)->account_id, *bucket_id);
    }
    return SameKeys(*one, *two) ? Kept() : Broken("they are others");
  });
  Check("grant-63", "an account's name may have 63 characters", [&] {
    constexpr size_t kLongest = 63;
    if (!bucket_id.ok()) return Skipped(missing());
    return Expect(Grant(ToGrant(NewName("account", kLongest), *bucket_id)).status(),
                  {StatusCode::kOk});
  });
  Check("neighbour", "keys of one bucket do nothing with another", [&] {
    if (!first.ok()) return Skipped(missing());
    const absl::StatusOr<std::string> other_id = NewBucket();
    if (!other_id.ok()) return Skipped(TextOf(other_id.status()));
    const absl::StatusOr<GrantAnswer> others = Grant(ToGrant(NewName("account"), *other_id));
    if (!others.ok()) return Skipped(TextOf(others.status()));
    const absl::StatusOr<TriedKeys> owner = Keys(*others, *other_id);
    const absl::StatusOr<TriedKeys> stranger = Keys(*first, *other_id);
    for (const auto* keys : {&owner, &stranger}) {
      if (!keys->ok()) return Skipped(TextOf(keys->status()));
    }
    if (absl::Status wrote = owner->Writes(true, options_.settle_time); !wrote.ok()) {
      return Skipped(TextOf(wrote));
    }
    for (const absl::Status& refused : {stranger->Reads(false, options_.settle_time),
                                        stranger->Lists(false, options_.settle_time),
                                        stranger->Writes(false, options_.settle_time)}) {
      if (!refused.ok()) return Broken(TextOf(refused));
    }
    return Kept();
  });
  Check("several", "access to two buckets is granted by one request, or OUT_OF_RANGE", [&] {
    if (!Is(Revision::kV1alpha2)) return Skipped("requests of this revision have one bucket");
    const absl::StatusOr<std::string> second_id = NewBucket();
    if (!bucket_id.ok() || !second_id.ok()) return Skipped(missing());
    GrantRequest request = ToGrant(NewName("account"), *bucket_id);
    request.buckets.push_back({.bucket_id = *second_id, .mode = AccessMode::kReadWrite});
    const absl::StatusOr<GrantAnswer> answer = Grant(request);
    if (absl::IsOutOfRange(answer.status())) return Kept();
    if (!answer.ok()) return Expect(answer.status(), {StatusCode::kOk, StatusCode::kOutOfRange});
    if (answer->buckets.size() != 2) return Broken("the answer does not have two buckets");
    for (size_t i = 0; i < 2; ++i) {
      const absl::StatusOr<TriedKeys> keys = Keys(*answer, answer->buckets[i].bucket_id, i);
      if (!keys.ok()) return Broken(TextOf(keys.status()));
      const absl::Status wrote = keys->Writes(true, options_.settle_time);
      if (!wrote.ok()) return Broken(TextOf(wrote));
    }
    return Kept();
  });
}

void Checker::CheckModes() {
  const absl::StatusOr<std::string> bucket_id = NewBucket();
  // An owner's object is there to be read.
  std::optional<TriedKeys> owner;
  std::string why = bucket_id.ok() ? "" : TextOf(bucket_id.status());
  if (bucket_id.ok()) {
    const absl::StatusOr<GrantAnswer> answer = Grant(ToGrant(NewName("account"), *bucket_id));
    absl::StatusOr<TriedKeys> keys = KeysOf(answer, *bucket_id);
    if (keys.ok()) {
      owner.emplace(*std::move(keys));
    } else {
      why = TextOf(keys.status());
    }
  }
  const auto allowed = [&](absl::Status (TriedKeys::*what)(bool, std::chrono::milliseconds) const) {
    return Expect((*owner.*what)(true, options_.settle_time), {StatusCode::kOk});
  };
  Check("keys-write", "keys for reading and writing write",
        [&] { return owner.has_value() ? allowed(&TriedKeys::Writes) : Skipped(why); });
  Check("keys-read", "keys for reading and writing read what was written",
        [&] { return owner.has_value() ? allowed(&TriedKeys::Reads) : Skipped(why); });
  Check("keys-list", "keys for reading and writing list",
        [&] { return owner.has_value() ? allowed(&TriedKeys::Lists) : Skipped(why); });

  const auto check_mode = [&](AccessMode mode, const char* does, const char* does_rule,
                              const char* refuses, const char* refuses_rule) {
    std::optional<TriedKeys> keys;
    std::string without = why;
    if (Is(Revision::kV02)) {
      without = "requests of this revision have no mode";
    } else if (owner.has_value()) {
      const absl::StatusOr<GrantAnswer> answer =
          Grant(ToGrant(NewName("account"), *bucket_id, mode));
      absl::StatusOr<TriedKeys> opened = KeysOf(answer, *bucket_id);
      if (opened.ok()) {
        keys.emplace(*std::move(opened));
      } else {
        without = TextOf(opened.status());
      }
    }
    const bool reads = mode == AccessMode::kReadOnly;
    Check(does, does_rule, [&] {
      if (!keys.has_value()) return Skipped(without);
      return Expect(reads ? keys->Reads(true, options_.settle_time)
                          : keys->Writes(true, options_.settle_time),
                    {StatusCode::kOk});
    });
    Check(refuses, refuses_rule, [&] {
      if (!keys.has_value()) return Skipped(without);
      absl::Status one = reads ? keys->Writes(false, options_.settle_time)
                               : keys->Reads(false, options_.settle_time);
      if (!one.ok()) return Broken(TextOf(one));
      one = reads ? keys->Deletes(false, options_.settle_time)
                  : keys->Lists(false, options_.settle_time);
      return one.ok() ? Kept() : Broken(TextOf(one));
    });
  };
  check_mode(AccessMode::kReadOnly, "read-only-reads", "keys for reading read", "read-only-refuses",
             "keys for reading neither write nor delete");
  check_mode(AccessMode::kWriteOnly, "write-only-writes", "keys for writing write",
             "write-only-refuses", "keys for writing neither read nor list");
}

void Checker::CheckRevocation() {
  const absl::StatusOr<std::string> bucket_id = NewBucket();
  if (!bucket_id.ok()) {
    Check("revoke", "revoked keys do nothing", [&] { return Skipped(TextOf(bucket_id.status())); });
    return;
  }
  const std::string account = NewName("account");
  const absl::StatusOr<GrantAnswer> answer = Grant(ToGrant(account, *bucket_id));
  const absl::StatusOr<GrantAnswer> neighbour = Grant(ToGrant(NewName("account"), *bucket_id));
  const absl::StatusOr<TriedKeys> keys = KeysOf(answer, *bucket_id);
  const absl::StatusOr<TriedKeys> others = KeysOf(neighbour, *bucket_id);
  absl::Status ready = keys.status();
  ready.Update(others.status());
  if (ready.ok()) ready = keys->Writes(true, options_.settle_time);
  const std::string account_id = answer.ok() ? answer->account_id : account;
  Check("revoke", "revoked keys neither read, list nor write", [&] {
    if (!ready.ok()) return Skipped(TextOf(ready));
    if (absl::Status revoked = Revoke(account_id, *bucket_id); !revoked.ok()) {
      return Expect(revoked, {StatusCode::kOk});
    }
    for (const absl::Status& refused :
         {keys->Reads(false, options_.settle_time), keys->Lists(false, options_.settle_time),
          keys->Writes(false, options_.settle_time)}) {
      if (!refused.ok()) return Broken(TextOf(refused));
    }
    return Kept();
  });
  Check("revoke-neighbour", "another account's keys stay valid", [&] {
    if (!ready.ok()) return Skipped(TextOf(ready));
    return Expect(others->Writes(true, std::chrono::milliseconds(0)), {StatusCode::kOk});
  });
  Check("revoke-again", "access that was revoked is revoked again",
        [&] { return Expect(Revoke(account_id, *bucket_id), {StatusCode::kOk}); });
  Check("revoke-unknown", "access of an account that never was is revoked",
        [&] { return Expect(Revoke(NewName("never"), *bucket_id), {StatusCode::kOk}); });
  Check("grant-after", "access is granted again after it was revoked", [&] {
    if (!ready.ok()) return Skipped(TextOf(ready));
    const absl::StatusOr<GrantAnswer> again = Grant(ToGrant(account, *bucket_id));
    if (!again.ok()) return Expect(again.status(), {StatusCode::kOk});
    const absl::StatusOr<TriedKeys> fresh = Keys(*again, *bucket_id);
    if (!fresh.ok()) return Broken(TextOf(fresh.status()));
    return Expect(fresh->Writes(true, options_.settle_time), {StatusCode::kOk});
  });
}

}  // namespace cbt::cosi
