// When a snapshot and its content are bound: every field that may be missing or wrong, one by one.
#include "programs/cluster/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/status.h"

namespace cbt::kube::cluster {
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
  pair.snapshot.status.emplace();
  pair.snapshot.status->ready_to_use = true;
  pair.snapshot.status->bound_content = "content";
  pair.content.meta.name = "content";
  pair.content.snapshot_namespace = "ns";
  pair.content.snapshot_name = "snap";
  pair.content.snapshot_uid = "uid";
  pair.content.driver = "driver";
  pair.content.source_volume_handle = "volume";
  pair.content.status.emplace();
  pair.content.status->ready_to_use = true;
  pair.content.status->snapshot_handle = "handle";
  pair.content.status->creation_time = 5;
  return pair;
}

StatusCode CodeAfter(const std::function<void(Pair&)>& change) {
  Pair pair = Bound();
  change(pair);
  return Bind(pair.snapshot, pair.content, "driver").status().code();
}

TEST(Binding, BothMustAgree) {
  const Pair pair = Bound();
  const auto bound = Bind(pair.snapshot, pair.content, "driver");
  ASSERT_OK(bound);
  EXPECT_EQ(bound->handle, "handle");
  EXPECT_EQ(bound->volume_handle, "volume");
  EXPECT_EQ(bound->content, "content");
  EXPECT_EQ(bound->creation_time, 5);
  EXPECT_EQ(bound->restore_size, std::nullopt);
}

TEST(Binding, FAASizeOfNothingIsUnknown) {
  Pair pair = Bound();
  for (const int64_t size : {int64_t{0}, int64_t{-1}, int64_t{4096}}) {
    pair.content.status->restore_size = size;
    const auto bound = Bind(pair.snapshot, pair.content, "driver");
    ASSERT_OK(bound);
    EXPECT_EQ(bound->restore_size, size > 0 ? std::optional<uint64_t>(size) : std::nullopt);
  }
}

TEST(Binding, WhatIsMissingIsNotReady) {
  const std::vector<std::function<void(Pair&)>> changes = {
      [](Pair& p) { p.snapshot.status.reset(); },
      [](Pair& p) { p.snapshot.status->ready_to_use.reset(); },
      [](Pair& p) { p.snapshot.status->ready_to_use = false; },
      [](Pair& p) { p.snapshot.status->bound_content.reset(); },
      [](Pair& p) { p.snapshot.status->bound_content = ""; },
      [](Pair& p) { p.snapshot.status->bound_content = "another"; },
      [](Pair& p) { p.snapshot.meta.uid.clear(); },
      [](Pair& p) {
        p.snapshot.meta.uid.clear();
        p.content.snapshot_uid.clear();
      },
      [](Pair& p) { p.content.snapshot_uid.clear(); },
      [](Pair& p) { p.content.snapshot_uid = "another"; },
      [](Pair& p) { p.content.snapshot_name = "another"; },
      [](Pair& p) { p.content.snapshot_namespace = "another"; },
      // What belongs to another snapshot does not even say whose driver's it is.
      [](Pair& p) {
        p.content.snapshot_namespace = "another";
        p.content.driver = "another";
      },
      [](Pair& p) { p.content.status.reset(); },
      [](Pair& p) { p.content.status->ready_to_use.reset(); },
      [](Pair& p) { p.content.status->ready_to_use = false; },
      [](Pair& p) { p.content.status->snapshot_handle.reset(); },
      [](Pair& p) { p.content.status->snapshot_handle = ""; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    EXPECT_EQ(CodeAfter(changes[i]), StatusCode::kUnavailable) << i;
  }
  EXPECT_EQ(CodeAfter([](Pair& p) { p.content.driver = "another"; }), StatusCode::kInvalidArgument);
}

TEST(Binding, PairsAreOfOneVolumeAndInOrder) {
  const auto check = [](const std::function<void(BoundSnapshot&, BoundSnapshot&)>& change) {
    const Pair pair = Bound();
    BoundSnapshot base = *Bind(pair.snapshot, pair.content, "driver");
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
}  // namespace cbt::kube::cluster
