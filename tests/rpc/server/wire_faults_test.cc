// Streams whose wire breaks after every byte, or alters bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/rpc/support/fault_world.h"
#include "tests/rpc/support/fixture.h"
#include "tests/support/figures.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace wire_faults_test {

using absl::StatusCode;
using std::chrono::milliseconds;
using Kind = WireFault::Kind;

// Small, so that every byte of the wire can be tried: a few messages, gaps, a partial last block.
Truth Small(uint64_t block) {
  std::mt19937_64 random(7);
  return Truth::Random(random, 1700, block, block == 0 ? 40 : 160);
}

constexpr int32_t kPerMessage = 4;

// Reads a stream that the wire may break, and resumes it from the client's position. Returns what
// went wrong; empty if nothing did.
std::string ReadThroughTheFault(FaultWorld& world, milliseconds retry_for, bool& broke) {
  Collector client(world, 0);
  broke = false;
  // A relay needs a moment to reconnect to its plugin.
  std::string wrong;
  const bool came = Eventually(
      [&] {
        rpc::ListRequest request = world.Request(client.at(), kPerMessage);
        request.retry_for = retry_for;
        absl::Status status = client.Open(request);
        absl::StatusOr<bool> complete = false;
        if (status.ok()) {
          complete = client.Read(SIZE_MAX, 16);
          status = complete.status();
        }
        if (!client.HoldsAPrefix()) {
          wrong = "what was received is no beginning of the answer";
          return true;
        }
        if (status.ok()) {
          if (!client.HoldsAll()) wrong = "OK without the whole answer";
          if (!client.proven()) wrong = "OK without a proof";
          return true;
        }
        broke = true;
        if (status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kCancelled) {
          return false;
        }
        wrong = status.ToString();
        return true;
      },
      std::chrono::seconds(60));
  if (!came) wrong = "does not come to its end";
  return wrong;
}

struct Cuts {
  uint64_t tried = 0;
  uint64_t broke = 0;
  uint64_t wrong = 0;
};

// Breaks `wire` after every `step`-th byte of a stream, in each direction.
void CutEverywhere(FaultWorld& world, FaultProxy& wire, uint64_t step, milliseconds retry_for,
                   Cuts& cuts) {
  bool broke = false;
  // Measures the bytes of one stream; a relay's first stream also opens its connection. A stream
  // may still meet a connection that an earlier fault broke.
  for (int attempt = 0; attempt == 0 || (broke && attempt < 10); ++attempt) {
    wire.Arm(std::nullopt);
    ASSERT_EQ(ReadThroughTheFault(world, {}, broke), "");
  }
  ASSERT_FALSE(broke);
  const uint64_t lengths[] = {wire.counted(false), wire.counted(true)};
  constexpr Kind kKinds[] = {Kind::kHalfClose, Kind::kReset, Kind::kClose};
  size_t kind = 0;
  for (const bool upward : {false, true}) {
    const uint64_t bytes = lengths[upward ? 1 : 0];
    // Few bytes, because headers of repeated requests are compressed.
    ASSERT_GT(bytes, 20u);
    for (uint64_t after = 0; after <= bytes; after += step) {
      const int before = wire.fired();
      wire.Arm(WireFault{.kind = kKinds[kind++ % 3], .after = after, .upward = upward});
      const std::string wrong = ReadThroughTheFault(world, retry_for, broke);
      wire.Arm(std::nullopt);
      if (wire.fired() == before) continue;  // this stream was shorter on the wire
      ++cuts.tried;
      if (broke) ++cuts.broke;
      if (wrong.empty()) continue;
      ++cuts.wrong;
      ADD_FAILURE() << "cut after byte " << after << (upward ? " up" : " down") << ": " << wrong;
    }
  }
}

TEST(WireFaults, E3CutAfterEveryByteAndResumed) {
  // Every byte at the scorecard's scale, otherwise every few, from the first on.
  const auto step = static_cast<uint64_t>(std::max<int64_t>(1, 16 / TestScale()));
  Cuts cuts;
  for (const uint64_t block : {0u, 64u}) {
    {
      FaultWorld world(Small(block), false);
      CutEverywhere(world, *world.wire, step, {}, cuts);
    }
    FaultWorld world(Small(block), true);
    CutEverywhere(world, *world.wire, step * 2, {}, cuts);
    CutEverywhere(world, *world.plugin_wire, step * 2, {}, cuts);
  }
  EXPECT_GT(cuts.broke, cuts.tried / 2);
  PrintFigure("r5_cuts_tried", cuts.tried);
  PrintFigure("r5_cuts_that_broke_the_stream", cuts.broke);
  PrintFigure("r5_cuts_wrong", cuts.wrong);
}

TEST(WireFaults, E3CutAndResumedByTheClientItself) {
  // The client waits before it resumes, so there are fewer of these.
  const auto step = static_cast<uint64_t>(std::max<int64_t>(7, 211 / TestScale()));
  Cuts cuts;
  for (const uint64_t block : {0u, 64u}) {
    FaultWorld world(Small(block), false);
    CutEverywhere(world, *world.wire, step, milliseconds(600), cuts);
  }
  PrintFigure("r5_own_resumes_cuts_tried", cuts.tried);
  PrintFigure("r5_own_resumes_cuts_wrong", cuts.wrong);
}

TEST(WireFaults, E3LeftAfterEveryMessageAndResumed) {
  uint64_t tried = 0;
  uint64_t wrong = 0;
  for (const bool relayed : {false, true}) {
    for (const uint64_t block : {0u, 64u}) {
      FaultWorld world(Small(block), relayed);
      const size_t tuples = world.truth.full.size();
      for (const int32_t first : {1, 3}) {
        // Every message at the scorecard's scale, otherwise every few.
        const auto step = static_cast<size_t>(std::max<int64_t>(first, 8 / TestScale()));
        for (const int32_t second : {0, 1, 5}) {
          for (size_t left = 1; left <= tuples; left += step) {
            Collector client(world, 0);
            ASSERT_OK(client.Open(world.Request(0, first)));
            // At most one message per batch; the client leaves after that many tuples.
            absl::StatusOr<bool> complete = false;
            while (complete.ok() && !*complete && client.held().size() < left) {
              complete = client.Read(1, static_cast<size_t>(first));
            }
            ASSERT_OK(complete);
            client.Drop();
            if (!*complete) {
              ASSERT_OK(client.Open(world.Request(client.at(), second)));
              complete = client.Read(SIZE_MAX, 16);
            }
            ++tried;
            if (!complete.ok() || !client.HoldsAll() || !client.proven()) ++wrong;
          }
        }
      }
    }
  }
  EXPECT_EQ(wrong, 0u);
  PrintFigure("r5_message_cuts_tried", tried);
  PrintFigure("r5_message_cuts_wrong", wrong);
}

// In rare cases plain TCP delivers altered bytes. A stream from a single call with a valid proof
// must still be right.
TEST(WireFaults, NoChangedByteMakesAnotherProvenAnswer) {
  SeededRandom random(20240301);
  const auto tries = static_cast<int>(80 * TestScale());
  uint64_t hit = 0;
  uint64_t refused = 0;
  uint64_t wrong = 0;
  for (const bool relayed : {false, true}) {
    for (const uint64_t block : {0u, 64u}) {
      FaultWorld world(Small(block), relayed);
      bool broke = false;
      ASSERT_EQ(ReadThroughTheFault(world, {}, broke), "");
      const uint64_t bytes[] = {world.wire->counted_in_messages(false),
                                world.wire->counted_in_messages(true)};
      ASSERT_GT(std::min(bytes[0], bytes[1]), 10u);
      for (int i = 0; i < tries; ++i) {
        FaultProxy& wire = relayed && random() % 2 == 0 ? *world.plugin_wire : *world.wire;
        const int before = wire.fired();
        const bool upward = random() % 4 == 0;
        wire.Arm(WireFault{.kind = Kind::kFlip,
                           .after = random() % bytes[upward ? 1 : 0],
                           .upward = upward,
                           .bits = static_cast<uint8_t>(1 + random() % 255)});
        const uint64_t start = random() % 3 == 0 ? random() % world.truth.capacity : 0;
        Collector client(world, start);
        rpc::ListRequest request = world.Request(start, kPerMessage);
        request.require_proof = true;
        // An altered length makes one end wait for bytes that never come.
        request.timeout = milliseconds(250);
        const bool complete =
            client.Open(request).ok() && client.Read(SIZE_MAX, 16).value_or(false);
        if (wire.fired() != before) {
          ++hit;
          if (!complete) ++refused;
        }
        if (complete && !(client.HoldsAll() && client.proven())) {
          ++wrong;
          ADD_FAILURE() << "try " << i << (relayed ? " relayed" : "")
                        << ": a wrong answer with a valid proof";
        }
        // The relay's connection to the plugin stays, and so does what both ends believe about it.
        wire.Arm(std::nullopt);
        if (!relayed) continue;
        world.plugin_wire->Cut();
        ASSERT_EQ(ReadThroughTheFault(world, {}, broke), "");
      }
    }
  }
  EXPECT_GT(hit, 0u);
  PrintFigure("r5_corruptions_tried", hit);
  PrintFigure("r5_corruptions_refused", refused);
  PrintFigure("r5_corruptions_wrong", wrong);
}

}  // namespace wire_faults_test
}  // namespace cbt::test
