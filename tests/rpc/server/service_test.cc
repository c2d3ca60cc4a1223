// The content of streams: arguments, tuples, message sizes, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "cbt/transform.h"
#include "cbt/units.h"
#include "tests/rpc/support/fixture.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace service_test {

using grpc::StatusCode;
using reference::Ranges;
using testing::HasSubstr;
using testing::Not;

// Rules 1 to 4 of the contract; and only a sole message may be empty.
void ExpectRules(const Answer& answer, const Ask& ask, csi::v1::BlockMetadataType type,
                 uint64_t capacity) {
  ASSERT_OK(answer.status);
  ASSERT_FALSE(answer.messages.empty());
  int64_t end = 0;
  int64_t size = 0;
  bool first = true;
  for (const Response& message : answer.messages) {
    EXPECT_EQ(message.block_metadata_type(), type);
    EXPECT_EQ(message.volume_capacity_bytes(), static_cast<int64_t>(capacity));
    if (answer.messages.size() > 1) {
      EXPECT_GT(message.block_metadata_size(), 0);
    }
    if (ask.max_results > 0) {
      EXPECT_LE(message.block_metadata_size(), ask.max_results);
    }
    for (const auto& tuple : message.block_metadata()) {
      EXPECT_GT(tuple.size_bytes(), 0);
      EXPECT_GE(tuple.byte_offset(), end);
      EXPECT_LT(tuple.byte_offset(), static_cast<int64_t>(capacity));
      end = tuple.byte_offset() + tuple.size_bytes();
      if (first) {
        EXPECT_GT(end, ask.starting_offset);
        size = tuple.size_bytes();
        first = false;
      }
      if (type == csi::v1::FIXED_LENGTH) {
        EXPECT_EQ(tuple.size_bytes(), size);
      } else {
        EXPECT_LE(end, static_cast<int64_t>(capacity));
      }
    }
  }
}

// --- arguments ---------------------------------------------------------------------------------

TEST(Service, MissingIdsAreInvalid) {
  const Service service = Service::OfExtents({{0, 1}}, 10);
  EXPECT_EQ(service.Get({.snapshot = ""}).status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(service.Get({.snapshot = "", .base = "b"}).status.error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(service.Get({.snapshot = "s", .base = ""}).status.error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(service.provider.calls, 0);
}

TEST(Service, E5NegativeMaxResultsIsInvalidAtOnce) {
  const Service service = Service::OfExtents({{0, 1}}, 10);
  for (const int32_t max_results : {-1, std::numeric_limits<int32_t>::min()}) {
    const Answer answer = service.Get({.max_results = max_results});
    EXPECT_EQ(answer.status.error_code(), StatusCode::INVALID_ARGUMENT);
    EXPECT_TRUE(answer.messages.empty());
  }
  EXPECT_EQ(service.provider.calls, 0);
}

TEST(Service, BytesThatAreNoRequestAreInvalid) {
  const Service service = Service::OfExtents({{0, 1}}, 10);
  for (const std::string bytes :
       {"\x0a", "\x0a\x05s", "\x0a\x01\xff", "\x07", "\xff\xff\xff\xff"}) {
    RawCall call(service.channel, kAllocatedPath, bytes);
    EXPECT_EQ(ReadAll(call).status.error_code(), StatusCode::INVALID_ARGUMENT);
  }
}

TEST(Service, UnknownFieldsOfRequestsAreSkipped) {
  const Service service = Service::OfExtents({{0, 1}}, 10);
  // Field 15 as varint, then field 16 as bytes.
  const std::string bytes = Ask{}.bytes() + std::string("\x78\x01\x82\x01\x02hi");
  RawCall call(service.channel, kAllocatedPath, bytes);
  EXPECT_EQ(ReadAll(call).Tuples(), (Ranges{{0, 1}}));
}

TEST(Service, RequestsOverOneMebibyteAreRefused) {
  const Service service = Service::OfExtents({{0, 1}}, 10);
  const Answer answer = service.Get({.secrets = {{"key", std::string(2 * kMiB, 'x')}}});
  EXPECT_EQ(answer.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

TEST(Service, E1StartingOffsetAtAndPastTheCapacity) {
  const Service service = Service::OfExtents({{0, 100}}, 100);
  const Answer at = service.Get({.starting_offset = 100});
  ExpectRules(at, {.starting_offset = 100}, csi::v1::VARIABLE_LENGTH, 100);
  EXPECT_EQ(at.messages.size(), 1u);
  EXPECT_TRUE(at.Tuples().empty());
  for (const int64_t offset : {int64_t{101}, std::numeric_limits<int64_t>::max(), int64_t{-1},
                               std::numeric_limits<int64_t>::min()}) {
    const Answer answer = service.Get({.starting_offset = offset});
    EXPECT_EQ(answer.status.error_code(), StatusCode::OUT_OF_RANGE) << offset;
    EXPECT_TRUE(answer.messages.empty());
  }
}

TEST(Service, ProvidersGetIdsAndSecrets) {
  std::string seen;
  Service service([&](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    seen = call.base.value_or("none") + ">" + call.target + " " +
           std::string(call.context.secrets.Get("user").value_or("-"));
    return Extents(CursorOver({}, 10));
  });
  ASSERT_OK(
      service.Get({.snapshot = "vol/tü", .base = "vol/mo", .secrets = {{"user", "root"}}}).status);
  EXPECT_EQ(seen, "vol/mo>vol/tü root");
  ASSERT_OK(service.Get({.snapshot = "x"}).status);
  EXPECT_EQ(seen, "none>x -");
}

// --- tuples ------------------------------------------------------------------------------------

TEST(Service, E2StartingOffsetInsideABlock) {
  // Blocks 1, 2 and 3 of 4 KiB changed, in their last bytes only.
  const Ranges changes = {{8191, 1}, {12287, 1}, {16383, 1}};
  const Service blocks = Service::OfBlocks(changes, 20000, 4096);
  for (const int64_t offset : {4096, 4097, 8191}) {
    const Answer answer = blocks.Get({.starting_offset = offset});
    ExpectRules(answer, {.starting_offset = offset}, csi::v1::FIXED_LENGTH, 20000);
    EXPECT_EQ(answer.Tuples(), (Ranges{{4096, 4096}, {8192, 4096}, {12288, 4096}})) << offset;
  }
  EXPECT_EQ(blocks.Get({.starting_offset = 8192}).Tuples(), (Ranges{{8192, 4096}, {12288, 4096}}));

  const Service extents = Service::OfExtents({{4096, 12288}}, 20000, 4096);
  for (const int64_t offset : {4096, 8191, 8192, 16383}) {
    const Answer answer = extents.Get({.starting_offset = offset});
    ExpectRules(answer, {.starting_offset = offset}, csi::v1::VARIABLE_LENGTH, 20000);
    EXPECT_EQ(answer.Tuples().back(),
              (std::pair<uint64_t, uint64_t>{offset / 4096 * 4096, 16384 - offset / 4096 * 4096}));
  }
  EXPECT_TRUE(extents.Get({.starting_offset = 16384}).Tuples().empty());
}

TEST(Service, E2TuplesBeforeTheStartingOffsetAreLeftOut) {
  // A cursor may return extents finer than its granularity.
  Service service([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(std::make_unique<ScriptedCursor>(
        8192, 4096, std::make_shared<CursorTrace>(),
        [](uint64_t, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
          for (const uint64_t offset : {0u, 512u, 1024u, 5000u}) batch.push_back({offset, 256});
          return 8192;
        }));
  });
  EXPECT_EQ(service.Get({.starting_offset = 768}).Tuples(), (Ranges{{1024, 256}, {5000, 256}}));
  EXPECT_EQ(service.Get({.starting_offset = 767}).Tuples().size(), 3u);
}

RC_GTEST_PROP(Service, E3ResumeAtEveryCutPointGivesTheRest, ()) {
  std::mt19937_64 random = AnyRandom();
  const size_t capacity = Between<size_t>(1, 60);
  const uint64_t block = uint64_t{1} << Between(0, 5);
  reference::ByteSet set(capacity);
  for (size_t i = 0; i < capacity; ++i) set[i] = random() % 3 == 0;
  const Ranges changes = reference::RunsOf(set);
  const bool as_blocks = random() % 2 == 0;
  const Service service = as_blocks ? Service::OfBlocks(changes, capacity, block)
                                    : Service::OfExtents(changes, capacity);
  const Ranges full = service.Get({}).Tuples();
  RC_ASSERT(full == (as_blocks ? reference::BlocksOf(set, block) : changes));
  for (size_t offset = 0; offset <= capacity; ++offset) {
    const Ask ask = {.starting_offset = static_cast<int64_t>(offset),
                     .max_results = static_cast<int32_t>(random() % 4)};
    const Answer answer = service.Get(ask);
    ExpectRules(answer, ask, as_blocks ? csi::v1::FIXED_LENGTH : csi::v1::VARIABLE_LENGTH,
                capacity);
    RC_ASSERT(!testing::Test::HasFailure());
    // Nothing at the capacity, even if the last block reaches past it.
    Ranges expected = offset == capacity ? Ranges() : reference::CutAt(full, offset);
    if (as_blocks && !expected.empty() && expected.front().second != block) {
      expected.front().first -= block - expected.front().second;
      expected.front().second = block;
    }
    RC_ASSERT(answer.Tuples() == expected);
  }
}

TEST(Service, E4TheLastBlockKeepsItsSizeAndTheLastExtentEndsAtTheCapacity) {
  const Ranges changes = {{9999, 1}};
  const Answer blocks = Service::OfBlocks(changes, 10000, 4096).Get({});
  ExpectRules(blocks, {}, csi::v1::FIXED_LENGTH, 10000);
  EXPECT_EQ(blocks.Tuples(), (Ranges{{8192, 4096}}));
  const Answer extents = Service::OfExtents({{8192, 1808}}, 10000, 4096).Get({});
  ExpectRules(extents, {}, csi::v1::VARIABLE_LENGTH, 10000);
  EXPECT_EQ(extents.Tuples(), (Ranges{{8192, 1808}}));
}

TEST(Service, E5EveryMessageKeepsToMaxResults) {
  Ranges changes;
  for (uint64_t i = 0; i < 300; ++i) changes.emplace_back(i * 10, 5);
  const Service service = Service::OfExtents(changes, 3000);
  for (const int32_t max_results : {0, 1, 2, 7, 100, 150, 299, 300, 301}) {
    const Ask ask = {.max_results = max_results};
    const Answer answer = service.Get(ask);
    ExpectRules(answer, ask, csi::v1::VARIABLE_LENGTH, 3000);
    EXPECT_EQ(answer.Tuples(), changes);
    // No more messages than necessary.
    if (max_results != 0) {
      const auto per_message = static_cast<size_t>(max_results);
      EXPECT_EQ(answer.messages.size(), (300 + per_message - 1) / per_message);
    }
  }
}

TEST(Service, E5MaxResultsIntMaxStaysUnderTheMessageCap) {
  Service service([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(AlternatingCursor(kGiB, 4 * kKiB));
  });
  const Ask ask = {.max_results = std::numeric_limits<int32_t>::max()};
  const Answer answer = service.Get(ask);
  ExpectRules(answer, ask, csi::v1::VARIABLE_LENGTH, kGiB);
  EXPECT_EQ(answer.Tuples().size(), 131072u);
  for (const size_t bytes : answer.message_bytes) EXPECT_LE(bytes, 256 * kKiB);
}

TEST(Service, E6ManyTuplesStayUnderEveryMessageCap) {
  for (const size_t message_bytes : {4 * kKiB, rpc::kMaxMessageBytes}) {
    Service service(
        [](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
          return Blocks(AlternatingCursor(8 * kGiB, 4 * kKiB), 4 * kKiB);
        },
        {.message_bytes = message_bytes});
    const Answer answer = service.Get({});
    ExpectRules(answer, {}, csi::v1::FIXED_LENGTH, 8 * kGiB);
    EXPECT_EQ(answer.Tuples().size(), kGiB / kKiB);
    size_t total = 0;
    for (const size_t bytes : answer.message_bytes) {
      EXPECT_LE(bytes, message_bytes);
      total += bytes;
    }
    // And they are well filled. A slow machine may send some large ones early.
    if (message_bytes == 4096) {
      EXPECT_LE(answer.messages.size(), 2 * total / message_bytes);
    }
  }
}

TEST(Service, E7LargeOffsetsAreExact) {
  const uint64_t top = kMaxCapacity;
  const Ranges changes = {{65535 * 4 * kKiB, 8 * kKiB}, {(uint64_t{1} << 31) - 1, 2},
                          {(uint64_t{1} << 32) - 1, 2}, {16 * kTiB - 1, 2},
                          {(uint64_t{1} << 53) - 1, 3}, {top - 1, 1}};
  const Service service = Service::OfExtents(changes, top);
  const Answer answer = service.Get({});
  EXPECT_EQ(answer.Tuples(), changes);
  EXPECT_EQ(answer.messages.front().volume_capacity_bytes(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(service.Get({.starting_offset = std::numeric_limits<int64_t>::max() - 1}).Tuples(),
            (Ranges{{top - 1, 1}}));
  EXPECT_TRUE(
      service.Get({.starting_offset = std::numeric_limits<int64_t>::max()}).Tuples().empty());
}

TEST(Service, E8StreamsWithoutTuplesHaveOneMessage) {
  for (const uint64_t capacity : {uint64_t{0}, uint64_t{1}, kTiB}) {
    const Answer extents = Service::OfExtents({}, capacity).Get({});
    ExpectRules(extents, {}, csi::v1::VARIABLE_LENGTH, capacity);
    EXPECT_EQ(extents.messages.size(), 1u);
    const Answer blocks = Service::OfBlocks({}, capacity, 4096).Get({});
    ExpectRules(blocks, {}, csi::v1::FIXED_LENGTH, capacity);
    EXPECT_EQ(blocks.messages.size(), 1u);
  }
}

TEST(Service, E9FullVolume) {
  const Answer extents = Service::OfExtents({{0, 1000001}}, 1000001).Get({.max_results = 1});
  EXPECT_EQ(extents.Tuples(), (Ranges{{0, 1000001}}));
  const Answer blocks = Service::OfBlocks({{0, 1000001}}, 1000001, 10).Get({});
  ExpectRules(blocks, {}, csi::v1::FIXED_LENGTH, 1000001);
  EXPECT_EQ(blocks.Tuples().size(), 100001u);
}

TEST(Service, E15FixedStreamsOfCoalescedExtentsAreSplit) {
  const Answer answer = Service::OfBlocks({{0, 12288}, {20480, 1}}, 65536, 4096).Get({});
  EXPECT_EQ(answer.Tuples(), (Ranges{{0, 4096}, {4096, 4096}, {8192, 4096}, {20480, 4096}}));
}

TEST(Service, E18SameSnapshotToManyStreamsAtOnce) {
  Service service([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(AlternatingCursor(256 * kMiB, 4096));
  });
  const Ranges expected = service.Get({}).Tuples();
  EXPECT_EQ(expected.size(), 32768u);
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const Answer answer = Get(Connect(service.server->address()), {});
      if (answer.status.ok() && answer.Tuples() == expected) ++good;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(good, 8);
}

TEST(Service, TuplesAreNotHeldBackWhileAQuietRegionIsSearched) {
  // One tuple, then a region that stays quiet until the client has read it.
  std::atomic<bool> seen = false;
  Service service([&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(std::make_unique<ScriptedCursor>(
        1000, 1, std::make_shared<CursorTrace>(),
        [&](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
          if (position == 0) batch.push_back({0, 1});
          if (!seen) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return std::max<uint64_t>(position, 1);
          }
          return 1000;
        }));
  });
  RawCall call(service.channel, kAllocatedPath, Ask{}.bytes(), std::chrono::seconds(20));
  EXPECT_TRUE(call.Read().has_value());
  seen = true;
  const Answer rest = ReadAll(call);
  EXPECT_OK(rest.status);
  EXPECT_TRUE(rest.messages.empty());
}

// --- errors ------------------------------------------------------------------------------------

TEST(Service, E12ErrorsOfProvidersPassWithTheirCode) {
  absl::Status error;
  Service service(
      [&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> { return error; });
  for (int code = 1; code <= 16; ++code) {
    error = absl::Status(static_cast<absl::StatusCode>(code), "because");
    const Answer answer = service.Get({.base = "b"});
    EXPECT_EQ(answer.status.error_code(), static_cast<StatusCode>(code));
    EXPECT_EQ(answer.status.error_message(), "because");
    EXPECT_TRUE(answer.status.error_details().empty());
    EXPECT_TRUE(answer.messages.empty());
  }
}

TEST(Service, LongErrorTextsDontHideTheCode) {
  Service service([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    std::string text;
    for (int i = 0; i < 20000; ++i) text += "é";
    return absl::NotFoundError(text);
  });
  const Answer answer = service.Get({});
  EXPECT_EQ(answer.status.error_code(), StatusCode::NOT_FOUND);
  EXPECT_EQ(answer.status.error_message().size(), 1024u);
}

TEST(Service, E14FailureAfterSomeBatchesIsNeverOk) {
  for (int good_batches = 0; good_batches < 5; ++good_batches) {
    for (const int32_t max_results : {0, 1, 1000}) {
      Service service([=](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        return Extents(std::make_unique<ScriptedCursor>(
            1000, 1, std::make_shared<CursorTrace>(),
            [=](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
              if (position >= static_cast<uint64_t>(good_batches) * 10) {
                return absl::DataLossError("page truncated");
              }
              batch.push_back({position, 4});
              batch.push_back({position + 4, 2});
              return position + 10;
            }));
      });
      const Answer answer = service.Get({.max_results = max_results});
      EXPECT_EQ(answer.status.error_code(), StatusCode::DATA_LOSS);
      EXPECT_EQ(answer.status.error_message(), "page truncated");
      // The tuples before the error are valid and let the client resume.
      EXPECT_EQ(answer.Tuples().size(), static_cast<size_t>(good_batches) * 2);
    }
  }
}

TEST(Service, E14EmptyBatchesAreNotTheEnd) {
  Service service([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(std::make_unique<ScriptedCursor>(
        1000, 1, std::make_shared<CursorTrace>(),
        [](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
          if (position % 100 == 90) batch.push_back({position, 10});
          return position + 10;
        }));
  });
  EXPECT_EQ(service.Get({}).Tuples().size(), 10u);
}

// A cursor of two batches; the second breaks a rule.
Answer AnswerOf(const Ranges& first, const Ranges& second, bool as_blocks) {
  Service service([&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    auto cursor = std::make_unique<ScriptedCursor>(
        1000, 1, std::make_shared<CursorTrace>(),
        [=](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
          for (const auto& [offset, length] : position == 0 ? first : second) {
            batch.push_back({offset, length});
          }
          return position == 0 ? 500 : 1000;
        });
    return as_blocks ? Blocks(std::move(cursor), 50) : Extents(std::move(cursor));
  });
  return service.Get({.max_results = 1});
}

TEST(Service, E15CursorsThatBreakTheRulesAreInternalErrors) {
  const Ranges good = {{400, 50}};
  const uint64_t huge = std::numeric_limits<uint64_t>::max();
  const std::vector<Ranges> lies = {
      {{600, 0}},              // empty
      {{600, 10}, {600, 10}},  // twice
      {{600, 10}, {605, 10}},  // overlap
      {{700, 10}, {600, 10}},  // disordered
      {{400, 50}},             // repeated from the batch before
      {{449, 60}},             // overlap with the batch before
      {{990, 11}},             // past the capacity
      {{1000, 1}},             // outside
      {{huge, 2}},             // wraps around
      {{600, huge}},           // wraps around
      {{600, 10}, {5, 10}},    // back into the covered range
      {{1500, 1}, {600, 10}},  // outside, not last
      {{990, 50}, {995, 5}},   // past the capacity, not last
  };
  for (const Ranges& lie : lies) {
    for (const bool as_blocks : {false, true}) {
      const Answer answer = AnswerOf(good, lie, as_blocks);
      EXPECT_EQ(answer.status.error_code(), StatusCode::INTERNAL)
          << lie.front().first << "+" << lie.front().second;
      for (const auto& [offset, length] : answer.Tuples()) EXPECT_LE(offset + length, 1000u);
    }
  }
  EXPECT_OK(AnswerOf(good, {{600, 10}}, false).status);
}

TEST(Service, FixedBlockCursorsCanBeServedAsExtents) {
  Service service([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(ValueOf(ToBlocks(CursorOver({{9000, 1000}}, 10000), 4096)));
  });
  EXPECT_EQ(service.Get({}).Tuples(), (Ranges{{8192, 1808}}));
}

TEST(Service, SourcesThatMakeNoSenseAreInternalErrors) {
  const std::vector<std::function<MetadataSource()>> sources = {
      [] { return MetadataSource{}; },
      [] {
        return MetadataSource{.cursor = CursorOver({}, 10), .type = BlockMetadataType::kUnknown};
      },
      [] { return Blocks(CursorOver({}, 10), 0); },
      [] { return Blocks(CursorOver({}, 10), kMaxGranularity + 1); },
      [] { return Blocks(CursorOver({}, kMaxCapacity), kMaxGranularity); },
  };
  for (const auto& source : sources) {
    Service service(
        [&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> { return source(); });
    EXPECT_EQ(service.Get({}).status.error_code(), StatusCode::INTERNAL);
  }
}

TEST(Service, E19ExceptionsBecomeInternalErrorsWithoutTheirText) {
  Service at_open([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    throw std::runtime_error("canary");
  });
  Service in_next([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(std::make_unique<ScriptedCursor>(
        1000, 1, std::make_shared<CursorTrace>(),
        [](uint64_t position, ExtentBatch& batch) -> absl::StatusOr<uint64_t> {
          if (position > 0) throw 42;
          batch.push_back({0, 10});
          return 10;
        }));
  });
  for (Service* service : {&at_open, &in_next}) {
    for (int i = 0; i < 3; ++i) {
      const Answer answer = service->Get({.max_results = 1});
      EXPECT_EQ(answer.status.error_code(), StatusCode::INTERNAL);
      EXPECT_THAT(answer.status.error_message(), Not(HasSubstr("canary")));
    }
  }
}

// A client may retry after this error, but not after a provider's bug.
TEST(Service, MemoryThatRunsOutIsNoMistakeOfTheProvider) {
  Service service([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    throw std::bad_alloc();
  });
  EXPECT_EQ(service.Get({}).status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
}

TEST(Service, OtherMethodsAreUnimplemented) {
  const Service service = Service::OfExtents({}, 10);
  RawCall call(service.channel, "/csi.v1.Controller/CreateSnapshot", "");
  EXPECT_EQ(ReadAll(call).status.error_code(), StatusCode::UNIMPLEMENTED);
}

}  // namespace service_test
}  // namespace cbt::test
