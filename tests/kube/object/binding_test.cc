// When a snapshot and its content are bound: every field that may be missing or wrong, one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cbt/kube/typed_objects.h"
#include "tests/support/status.h"

namespace cbt::kube {
namespace binding_test {

using absl::StatusCode;

struct Pair {
  VolumeSnapshot snapshot;
  VolumeSnapshotContent content;
};

Pair Bound() {
  Pair pair;
  pair.snapshot.meta.name = "snap";
  pair.snapshot.meta.name_space = "ns";
  pair.snapshot.meta.uid = "uid";
  pair.snapshot.status = VolumeSnapshot::Status{};
  pair.snapshot.status->ready_to_use = true;
  pair.snapshot.status->bound_content = "content";
  pair.content.meta.name = "content";
  pair.content.meta.uid = "content-uid";
  pair.content.snapshot_namespace = "ns";
  pair.content.snapshot_name = "snap";
  pair.content.snapshot_uid = "uid";
  pair.content.driver = "driver";
  pair.content.source_volume_handle = "volume";
  pair.content.status = VolumeSnapshotContent::Status{};
  pair.content.status->ready_to_use = true;
  pair.content.status->snapshot_handle = "handle";
  pair.content.status->creation_time = 5;
  return pair;
}

absl::StatusOr<BoundSnapshot> BindPair(const Pair& pair) {
  return Bind(pair.snapshot, pair.content, BindingPolicy::kReadable, "driver");
}

StatusCode CodeAfter(const std::function<void(Pair&)>& change,
                     BindingPolicy policy = BindingPolicy::kReadable) {
  Pair pair = Bound();
  change(pair);
  return Bind(pair.snapshot, pair.content, policy, "driver").status().code();
}

TEST(Binding, BothMustAgree) {
  const Pair pair = Bound();
  const auto bound = BindPair(pair);
  ASSERT_OK(bound);
  EXPECT_EQ(bound->handle, "handle");
  EXPECT_EQ(bound->volume_handle, "volume");
  EXPECT_EQ(bound->name_space, "ns");
  EXPECT_EQ(bound->name, "snap");
  EXPECT_EQ(bound->uid, "uid");
  EXPECT_EQ(bound->content, "content");
  EXPECT_EQ(bound->content_uid, "content-uid");
  EXPECT_EQ(bound->driver, "driver");
  EXPECT_EQ(bound->creation_time, 5);
  EXPECT_EQ(bound->restore_size, std::nullopt);
}

TEST(Binding, FAASizeOfNothingIsUnknown) {
  Pair pair = Bound();
  for (const int64_t size : {int64_t{0}, int64_t{-1}, int64_t{4096}}) {
    pair.content.status->restore_size = size;
    const auto bound = BindPair(pair);
    ASSERT_OK(bound);
    EXPECT_EQ(bound->restore_size, size > 0 ? std::optional<uint64_t>(size) : std::nullopt);
  }
}

using Changes = std::vector<std::function<void(Pair&)>>;

// What is not ready may still belong to the snapshot.
TEST(Binding, WhatIsMissingIsNotReady) {
  const Changes changes = {
      [](Pair& p) { p.snapshot.status->ready_to_use.reset(); },
      [](Pair& p) { p.snapshot.status->ready_to_use = false; },
      [](Pair& p) { p.content.status.reset(); },
      [](Pair& p) { p.content.status->ready_to_use.reset(); },
      [](Pair& p) { p.content.status->ready_to_use = false; },
      [](Pair& p) { p.content.status->snapshot_handle.reset(); },
      [](Pair& p) { p.content.status->snapshot_handle = ""; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_EQ(CodeAfter(changes[i]), StatusCode::kUnavailable) << i;
    EXPECT_EQ(CodeAfter(changes[i], BindingPolicy::kOwner), StatusCode::kOk) << i;
  }
}

TEST(Binding, WhatIsNotBoundYetBelongsToNone) {
  const Changes changes = {
      [](Pair& p) { p.snapshot.status.reset(); },
      [](Pair& p) { p.snapshot.status->bound_content.reset(); },
      [](Pair& p) { p.snapshot.status->bound_content = ""; },
      [](Pair& p) { p.snapshot.meta.uid.clear(); },
      [](Pair& p) { p.content.snapshot_uid.clear(); },
      [](Pair& p) {
        p.snapshot.meta.uid.clear();
        p.content.snapshot_uid.clear();
      },
  };
  for (const BindingPolicy policy : {BindingPolicy::kOwner, BindingPolicy::kReadable}) {
    for (size_t i = 0; i < changes.size(); ++i) {
      EXPECT_EQ(CodeAfter(changes[i], policy), StatusCode::kUnavailable) << i;
    }
  }
}

TEST(Binding, AContentOfAnotherSnapshotIsRefused) {
  const Changes changes = {
      [](Pair& p) { p.snapshot.status->bound_content = "another"; },
      [](Pair& p) { p.content.snapshot_uid = "another"; },
      [](Pair& p) { p.content.snapshot_name = "another"; },
      [](Pair& p) { p.content.snapshot_namespace = "another"; },
      // It does not even say that it is not ready, or whose driver's it is.
      [](Pair& p) {
        p.content.snapshot_namespace = "another";
        p.content.snapshot_uid.clear();
        p.content.driver = "another";
        p.content.status.reset();
      },
  };
  for (const BindingPolicy policy : {BindingPolicy::kOwner, BindingPolicy::kReadable}) {
    for (size_t i = 0; i < changes.size(); ++i) {
      EXPECT_EQ(CodeAfter(changes[i], policy), StatusCode::kFailedPrecondition) << i;
    }
  }
}

TEST(Binding, TheDriverIsCheckedIfItIsKnown) {
  Pair pair = Bound();
  pair.content.driver = "another";
  // Before the rest of what the content says.
  pair.content.status.reset();
  EXPECT_EQ(BindPair(pair).status().code(), StatusCode::kInvalidArgument);
  // An empty name is a name, too.
  EXPECT_EQ(Bind(pair.snapshot, pair.content, BindingPolicy::kOwner, "").status().code(),
            StatusCode::kInvalidArgument);
  ASSERT_OK_AND_ASSIGN(const BoundSnapshot bound,
                       Bind(pair.snapshot, pair.content, BindingPolicy::kOwner));
  EXPECT_EQ(bound.driver, "another");
  EXPECT_EQ(bound.handle, "");
}

TEST(Binding, PairsAreOfOneVolumeAndInOrder) {
  const auto check = [](const std::function<void(BoundSnapshot&, BoundSnapshot&)>& change) {
    const Pair pair = Bound();
    BoundSnapshot base = *BindPair(pair);
    BoundSnapshot target = base;
    change(base, target);
    return CheckPair(base, target).code();
  };
  using S = BoundSnapshot;
  EXPECT_EQ(check([](S&, S&) {}), StatusCode::kOk);
  EXPECT_EQ(check([](S& base, S&) { base.creation_time = 4; }), StatusCode::kOk);
  EXPECT_EQ(check([](S& base, S&) { base.creation_time = 6; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(check([](S& base, S&) { base.volume_handle = "other"; }), StatusCode::kInvalidArgument);
  // What is unknown is for the plugin to judge.
  EXPECT_EQ(check([](S& base, S&) { base.volume_handle.reset(); }), StatusCode::kOk);
  EXPECT_EQ(check([](S&, S& target) {
              target.volume_handle.reset();
              target.creation_time.reset();
            }),
            StatusCode::kOk);
}

}  // namespace binding_test
}  // namespace cbt::kube
