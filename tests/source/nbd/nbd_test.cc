// The cursor against a scripted server that answers or misbehaves; nbd_servers_test.cc uses real
// ones.
#include "cbt/source/nbd.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>

#include "cbt/bridge/nbd_extents.h"
#include "tests/reference/volume.h"
#include "tests/support/cursors.h"
#include "tests/support/planted_nbd_server.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt {
namespace nbd_test {

using absl::StatusCode;
using reference::Ranges;
using test::NbdReply;
using test::NbdRequest;
using test::NbdServerOptions;
using test::PlantedNbdServer;
using test::ValueOf;

constexpr char kDirty[] = "qemu:dirty-bitmap:b0";

class NbdTest : public testing::Test {
 protected:
  void SetUp() override {
    if (absl::IsUnimplemented(NbdExport::Open("nbd+unix:///?socket=none").status())) {
      GTEST_SKIP() << "built without libnbd";
    }
  }

  std::unique_ptr<PlantedNbdServer> Serve(NbdServerOptions options,
                                          PlantedNbdServer::Script script) {
    return std::make_unique<PlantedNbdServer>(directory_ / "socket", std::move(options),
                                              std::move(script));
  }

  // Reads a cursor whose every request (about 1000 bytes) gets this answer.
  absl::StatusOr<Ranges> AnswerOf(const NbdReply& reply) {
    NbdServerOptions options;
    options.size = 1000;
    auto server = Serve(options, [&](const NbdRequest&) { return reply; });
    auto nbd_export = NbdExport::Open(server->uri(), Patience(300));
    if (!nbd_export.ok()) return nbd_export.status();
    auto cursor = MakeNbdCursor(*nbd_export);
    if (!cursor.ok()) return cursor.status();
    absl::StatusOr<Ranges> all = test::Drain(**cursor);
    if (!all.ok()) {
      // The error is sticky until Seek().
      EXPECT_EQ(test::Drain(**cursor).status(), all.status());
    }
    cursor->reset();
    nbd_export->reset();
    server.reset();
    std::filesystem::remove(directory_ / "socket");
    return all;
  }

  static NbdExportOptions Patience(int milliseconds) {
    NbdExportOptions options;
    options.timeout = std::chrono::milliseconds(milliseconds);
    return options;
  }

  test::TempDir directory_;
};

// Answers a request from the volume's truth, one flags word per byte. The answer may be cut short,
// or its last entry may reach past the request.
NbdReply Truthful(const std::vector<uint32_t>& flags, const NbdRequest& request,
                  std::mt19937_64& random) {
  std::vector<uint32_t> entries;
  const uint64_t end = request.offset + request.length;
  uint64_t at = request.offset;
  const uint64_t enough = random() % 3 == 0 ? 1 + random() % 5 : UINT64_MAX;
  while (at < end && entries.size() / 2 < enough) {
    uint64_t stop = at + 1;
    while (stop < flags.size() && flags[stop] == flags[at]) ++stop;
    // Adjacent entries may have equal flags.
    if (random() % 4 == 0) stop = at + 1 + random() % (stop - at);
    if (stop >= end && random() % 2 == 0) stop = end;
    entries.insert(entries.end(), {static_cast<uint32_t>(stop - at), flags[at]});
    at = stop;
  }
  NbdReply reply;
  reply.chunks = {{1, entries}};
  return reply;
}

TEST_F(NbdTest, MatchesAnyTruthFromAnyOffset) {
  struct Case {
    const char* context;
    uint32_t deepest;
    bool (*counts)(uint32_t);
  };
  const Case cases[] = {
      {"base:allocation", 1, [](uint32_t f) { return f != 2 && f != 3; }},
      {kDirty, 1, [](uint32_t f) { return f != 0; }},
      {"qemu:allocation-depth", 1, [](uint32_t f) { return f == 1; }},
      {"qemu:allocation-depth", 2, [](uint32_t f) { return f == 1 || f == 2; }},
  };
  for (uint64_t seed = 0; seed < 24; ++seed) {
    test::SeededRandom random(seed);
    const Case& tried = cases[seed % 4];
    std::vector<uint32_t> flags(1 + random() % 400);
    for (size_t i = 0; i < flags.size(); ++i) {
      flags[i] = i > 0 && random() % 4 != 0 ? flags[i - 1] : static_cast<uint32_t>(random() % 5);
    }
    reference::ByteSet set(flags.size());
    for (size_t i = 0; i < flags.size(); ++i) set[i] = tried.counts(flags[i]);
    const Ranges full = reference::RunsOf(set);

    NbdServerOptions options;
    options.size = flags.size();
    options.contexts = {tried.context};
    auto server = Serve(options, [&](const NbdRequest& r) { return Truthful(flags, r, random); });
    auto nbd_export = NbdExport::Open(server->uri());
    ASSERT_OK(nbd_export);
    EXPECT_EQ((*nbd_export)->size(), flags.size());
    EXPECT_EQ((*nbd_export)->contexts(), options.contexts);
    NbdOptions wanted;
    wanted.context = tried.context;
    wanted.deepest_changed = tried.deepest;
    wanted.request_bytes = seed % 3 == 0 ? kMaxNbdRequest : 1 + seed * 5;
    auto cursor = MakeNbdCursor(*nbd_export, wanted);
    ASSERT_OK(cursor);
    EXPECT_EQ((*cursor)->capacity(), flags.size());
    EXPECT_EQ(ValueOf(test::Drain(**cursor)), full);
    for (uint64_t offset = 0; offset <= flags.size(); ++offset) {
      ASSERT_EQ(ValueOf(test::DrainFrom(**cursor, offset, 1 + offset % 3)),
                reference::CutAt(full, offset))
          << offset;
    }
    cursor->reset();
    nbd_export->reset();
    server.reset();
    std::filesystem::remove(directory_ / "socket");
  }
}

NbdReply Entries(std::vector<uint32_t> entries) {
  NbdReply reply;
  reply.chunks = {{1, std::move(entries)}};
  return reply;
}

TEST_F(NbdTest, TakesWhatServersMayAnswer) {
  EXPECT_EQ(ValueOf(AnswerOf(Entries({1000, 0}))), (Ranges{{0, 1000}}));
  EXPECT_EQ(ValueOf(AnswerOf(Entries({1000, 2}))), Ranges{});
  EXPECT_EQ(ValueOf(AnswerOf(Entries({1000, 3}))), Ranges{}) << "a hole of zeros";
  EXPECT_EQ(ValueOf(AnswerOf(Entries({1000, 1}))), (Ranges{{0, 1000}}))
      << "a hole with unknown contents";
  EXPECT_EQ(ValueOf(AnswerOf(Entries({1000, 6}))), (Ranges{{0, 1000}})) << "flags from the future";
  EXPECT_EQ(ValueOf(AnswerOf(Entries({150, 0, 100, 2}))),
            (Ranges{{0, 150}, {250, 150}, {500, 150}, {750, 150}}))
      << "less than requested";

  NbdServerOptions options;
  options.size = 1000;
  auto server = Serve(options, [](const NbdRequest& request) {
    return Entries({static_cast<uint32_t>(1000 - request.offset), 0});
  });
  ASSERT_OK_AND_ASSIGN(auto nbd_export, NbdExport::Open(server->uri()));
  NbdOptions wanted;
  wanted.request_bytes = 300;
  EXPECT_EQ(ValueOf(test::Drain(*ValueOf(MakeNbdCursor(nbd_export, wanted)))), (Ranges{{0, 1000}}))
      << "past the request";
}

// Validation differs between libnbd versions; whatever a version accepts must be read correctly.
TEST_F(NbdTest, WhatOnlySomeVersionsTakeIsRightOrAnError) {
  struct Case {
    std::vector<uint32_t> entries;
    Ranges right;
    StatusCode otherwise;
  };
  const Case cases[] = {
      {{UINT32_MAX, 0}, {{0, 1000}}, StatusCode::kUnavailable},  // past the export
      {{333, 0, 100, 2}, {{0, 333}, {433, 333}, {866, 134}}, StatusCode::kUnavailable},
      {{100, 2, 900, 0, 77, 0}, {{100, 900}}, StatusCode::kUnavailable},  // past the request
      {{500, 0, 0, 2, 500, 0}, {{0, 1000}}, StatusCode::kDataLoss},       // empty
  };
  for (const Case& tried : cases) {
    const auto answer = AnswerOf(Entries(tried.entries));
    if (answer.ok()) {
      EXPECT_EQ(*answer, tried.right);
    } else {
      EXPECT_EQ(answer.status().code(), tried.otherwise) << answer.status();
      EXPECT_NE(answer.status().message().find("offset "), std::string::npos) << answer.status();
    }
  }
  // No entries, or half an entry: an error of libnbd, or an unusable answer.
  for (const size_t numbers : {0u, 1u}) {
    const auto answer = AnswerOf(Entries(std::vector<uint32_t>(numbers, 1000)));
    EXPECT_TRUE(answer.status().code() == StatusCode::kUnavailable ||
                answer.status().code() == StatusCode::kDataLoss)
        << answer.status();
    EXPECT_NE(answer.status().message().find("offset 0"), std::string::npos) << answer.status();
  }
}

TEST_F(NbdTest, RefusesWhatCantBeAnAnswer) {
  NbdReply other_context;
  other_context.chunks = {{7, {1000, 2}}};
  NbdReply twice;
  twice.chunks = {{1, {500, 2}}, {1, {500, 2}}};
  NbdReply failed;
  failed.error = 5;
  NbdReply half_then_failed;
  half_then_failed.chunks = {{1, {1000, 2}}};
  half_then_failed.error = 5;
  NbdReply gone;
  gone.done = false;
  gone.disconnect = true;
  NbdReply gone_after_chunk = Entries({1000, 2});
  gone_after_chunk.done = false;
  gone_after_chunk.disconnect = true;
  NbdReply gone_in_chunk = gone;
  gone_in_chunk.raw = std::string("\x66\x8e\x33\xef\0\1\0\5", 8);
  NbdReply noise = gone;
  noise.raw = std::string(64, 'x');
  const std::pair<NbdReply, StatusCode> cases[] = {
      {Entries({0, 2}), StatusCode::kDataLoss},  {twice, StatusCode::kDataLoss},
      {NbdReply{}, StatusCode::kDataLoss},  // OK without the context
      {failed, StatusCode::kUnavailable},        {half_then_failed, StatusCode::kUnavailable},
      {gone, StatusCode::kUnavailable},          {gone_after_chunk, StatusCode::kUnavailable},
      {gone_in_chunk, StatusCode::kUnavailable}, {noise, StatusCode::kUnavailable},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    const auto answer = AnswerOf(cases[i].first);
    EXPECT_EQ(answer.status().code(), cases[i].second) << i << ": " << answer.status();
    EXPECT_NE(answer.status().message().find("offset 0"), std::string::npos) << answer.status();
  }
  EXPECT_FALSE(AnswerOf(other_context).ok());
}

TEST_F(NbdTest, AServerThatStopsAnsweringIsAnErrorInTime) {
  const auto begin = std::chrono::steady_clock::now();
  NbdReply silent;
  silent.done = false;
  EXPECT_EQ(AnswerOf(silent).status().code(), StatusCode::kUnavailable);
  NbdReply unfinished = Entries({1000, 2});
  unfinished.done = false;
  const auto answer = AnswerOf(unfinished);
  EXPECT_EQ(answer.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(answer.status().message().find("no reply within 300 ms"), std::string::npos)
      << answer.status();
  NbdServerOptions options;
  options.silent_handshake = true;
  auto server = Serve(options, nullptr);
  EXPECT_EQ(NbdExport::Open(server->uri(), Patience(100)).status().code(),
            StatusCode::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST_F(NbdTest, GoesOnAfterABrokenConnectionWhenAskedTo) {
  NbdServerOptions options;
  options.size = 1000;
  auto server = Serve(options, [](const NbdRequest& request) {
    NbdReply reply = Entries({100, 0, 100, 2});
    reply.disconnect = request.number == 2;
    if (reply.disconnect) reply.chunks.clear();
    if (reply.disconnect) reply.done = false;
    return reply;
  });
  ASSERT_OK_AND_ASSIGN(auto nbd_export, NbdExport::Open(server->uri()));
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeNbdCursor(nbd_export));
  EXPECT_EQ(test::Drain(*cursor).status().code(), StatusCode::kUnavailable);
  EXPECT_LT(cursor->covered(), 1000u);
  EXPECT_EQ(test::Drain(*cursor).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(server->clients(), 1u);
  EXPECT_EQ(ValueOf(test::DrainFrom(*cursor, 400)), (Ranges{{400, 100}, {600, 100}, {800, 100}}));
  EXPECT_EQ(server->clients(), 2u);
}

// Two processes on one connection would take each other's replies for their own.
TEST_F(NbdTest, AForkedChildHasAConnectionOfItsOwn) {
  NbdServerOptions options;
  options.size = 1000;
  auto server = Serve(options, [](const NbdRequest&) { return Entries({100, 0, 100, 2}); });
  ASSERT_OK_AND_ASSIGN(auto nbd_export, NbdExport::Open(server->uri()));
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeNbdCursor(nbd_export));
  ExtentBatch batch;
  ASSERT_OK(cursor->Next(batch));
  // What the child frees stays the parent's.
  const pid_t first = fork();
  ASSERT_GE(first, 0);
  if (first == 0) {
    cursor.reset();
    nbd_export.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(first, &status, 0), first);
  ASSERT_OK(cursor->Next(batch));
  EXPECT_EQ(server->clients(), 1u);
  const pid_t second = fork();
  ASSERT_GE(second, 0);
  if (second == 0) {
    // Until the parent is gone: the server serves one client at a time.
    const absl::StatusOr<Ranges> rest = test::DrainFrom(*cursor, 400);
    const bool all = rest.ok() && *rest == Ranges{{400, 100}, {600, 100}, {800, 100}};
    _exit(all ? 0 : 1);
  }
  cursor.reset();
  nbd_export.reset();
  ASSERT_EQ(waitpid(second, &status, 0), second);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(server->clients(), 2u);
}

TEST_F(NbdTest, AnotherSizeAfterReconnectingIsNotTheSameExport) {
  auto server = Serve({}, [](const NbdRequest&) {
    NbdReply reply;
    reply.done = false;
    reply.disconnect = true;
    return reply;
  });
  ASSERT_OK_AND_ASSIGN(auto nbd_export, NbdExport::Open(server->uri()));
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeNbdCursor(nbd_export));
  EXPECT_EQ(test::Drain(*cursor).status().code(), StatusCode::kUnavailable);
  server->set_size(4096);
  EXPECT_EQ(test::DrainFrom(*cursor, 0).status().code(), StatusCode::kAborted);
}

TEST_F(NbdTest, ConnectsAgainWhenTheServerDidNotWait) {
  NbdServerOptions options;
  options.leaves_first_client = true;
  auto server = Serve(options, [](const NbdRequest& r) { return Entries({r.length, 2}); });
  auto nbd_export = NbdExport::Open(server->uri());
  ASSERT_OK(nbd_export);
  auto cursor = MakeNbdCursor(*nbd_export);
  ASSERT_OK(cursor);
  EXPECT_EQ(ValueOf(test::Drain(**cursor)), Ranges{});
  EXPECT_EQ(server->clients(), 2u);
}

TEST_F(NbdTest, RefusesServersThatCantAnswer) {
  {
    NbdServerOptions options;
    options.structured_replies = false;
    auto server = Serve(options, nullptr);
    const auto status = NbdExport::Open(server->uri()).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("structured replies"), std::string::npos) << status;
  }
  std::filesystem::remove(directory_ / "socket");
  {
    NbdServerOptions options;
    options.size = uint64_t{1} << 63;
    auto server = Serve(options, nullptr);
    EXPECT_FALSE(NbdExport::Open(server->uri()).ok());
  }
  std::filesystem::remove(directory_ / "socket");
  EXPECT_EQ(NbdExport::Open("nbd+unix:///?socket=" + (directory_ / "socket")).status().code(),
            StatusCode::kUnavailable);
}

TEST_F(NbdTest, AContextThatTheServerDoesNotHaveIsNotFound) {
  for (const bool can_list : {true, false}) {
    NbdServerOptions options;
    options.contexts = {"base:allocation", "qemu:dirty-bitmap:\x1b[2Jb1\n"};
    options.can_list = can_list;
    auto server = Serve(options, nullptr);
    ASSERT_OK_AND_ASSIGN(auto nbd_export, NbdExport::Open(server->uri()));
    EXPECT_EQ(nbd_export->contexts().size(), can_list ? 2u : 0u);
    NbdOptions wanted;
    wanted.context = kDirty;
    const absl::Status status = MakeNbdCursor(nbd_export, wanted).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    const std::string list = can_list ? "base:allocation, qemu:dirty-bitmap:?[2Jb1?" : "none";
    EXPECT_NE(status.message().find("it lists: " + list), std::string::npos) << status;
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    nbd_export.reset();
    server.reset();
    std::filesystem::remove(directory_ / "socket");
  }
}

TEST_F(NbdTest, AnExportOfNoBytesIsCompleteAtOnce) {
  NbdServerOptions options;
  options.size = 0;
  auto server = Serve(options, nullptr);
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeNbdCursor(ValueOf(NbdExport::Open(server->uri()))));
  EXPECT_EQ(ValueOf(test::Drain(*cursor)), Ranges{});
  EXPECT_EQ(server->requests(), 0u);
}

TEST_F(NbdTest, ManyEntriesTakeSeveralRequests) {
  constexpr uint64_t kPairs = 150'000;
  NbdServerOptions options;
  options.size = kPairs * 2;
  auto server = Serve(options, [](const NbdRequest& request) {
    std::vector<uint32_t> entries;
    for (uint64_t at = request.offset; at < kPairs * 2; ++at) {
      entries.insert(entries.end(), {1, at % 2 == 0 ? 0u : 2u});
    }
    return Entries(std::move(entries));
  });
  ASSERT_OK_AND_ASSIGN(auto cursor, MakeNbdCursor(ValueOf(NbdExport::Open(server->uri()))));
  ASSERT_OK_AND_ASSIGN(const Ranges all, test::Drain(*cursor, 1024));
  ASSERT_EQ(all.size(), kPairs);
  for (uint64_t i = 0; i < kPairs; ++i) ASSERT_EQ(all[i], (std::pair{2 * i, uint64_t{1}}));
  EXPECT_EQ(server->requests(), 2u);
}

TEST_F(NbdTest, RefusesOptionsOutOfRange) {
  const auto open = [](const std::string& uri, auto change) {
    NbdExportOptions options;
    change(options);
    return NbdExport::Open(uri, options).status().code();
  };
  const auto as_is = [](NbdExportOptions&) {};
  const std::string zero("nbd+unix:///a\0b?socket=x", 24);
  for (const std::string& uri :
       {std::string(""), std::string("http://host/"), std::string("nbd+vsock://1/"),
        std::string("/a/path"), std::string("nbd+unix:///name"), zero}) {
    EXPECT_EQ(open(uri, as_is), StatusCode::kInvalidArgument) << uri;
  }
  EXPECT_EQ(open("nbd://h/", [](auto& o) { o.tls_psk_file = "f"; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(open("nbd://h/", [](auto& o) { o.timeout = std::chrono::milliseconds(0); }),
            StatusCode::kInvalidArgument);

  auto server = Serve({}, nullptr);
  ASSERT_OK_AND_ASSIGN(auto nbd_export, NbdExport::Open(server->uri()));
  const auto make = [&](auto change) {
    NbdOptions options;
    change(options);
    return MakeNbdCursor(nbd_export, options).status().code();
  };
  const StatusCode invalid = StatusCode::kInvalidArgument;
  EXPECT_EQ(make([](auto& o) { o.request_bytes = 0; }), invalid);
  EXPECT_EQ(make([](auto& o) { o.request_bytes = kMaxNbdRequest + 1; }), invalid);
  for (const char* context : {"", "base:", "qemu:dirty-bitmap:", "qemu:other", "x-mine:y"}) {
    EXPECT_EQ(make([&](auto& o) { o.context = context; }), invalid) << context;
  }
  EXPECT_EQ(make([](auto& o) {
              o.context = "qemu:allocation-depth";
              o.deepest_changed = 0;
            }),
            invalid);
  EXPECT_EQ(MakeNbdCursor(nullptr).status().code(), invalid);
}

// The adapter alone, as other clients use it.

TEST(NbdExtentsTest, AnswersOfAnyKindAreChecked) {
  ASSERT_OK_AND_ASSIGN(NbdExtents extents, NbdExtents::For("base:allocation"));
  EXPECT_EQ(extents.Finish().status().code(), StatusCode::kInvalidArgument) << "nothing asked";
  const uint32_t entries[] = {10, 0, 20, 2, 30, 0};
  extents.Expect(100, 50);
  EXPECT_EQ(extents.Finish().status().code(), StatusCode::kDataLoss) << "no answer";
  EXPECT_OK(extents.Take("qemu:dirty-bitmap:b", 7, entries, 5)) << "another context";
  EXPECT_OK(extents.Take("base:allocation", 100, entries, 6));
  EXPECT_EQ(ValueOf(extents.Finish()), 150u);
  EXPECT_EQ(extents.extents(), (std::vector<Extent>{{100, 10}, {130, 20}}));
  EXPECT_FALSE(extents.Take("base:allocation", 100, entries, 6).ok()) << "a second answer";
  EXPECT_FALSE(extents.Finish().ok());

  extents.Expect(100, 50);
  EXPECT_FALSE(extents.Take("base:allocation", 100, entries, 5).ok()) << "half an entry";
  extents.Expect(100, 50);
  EXPECT_FALSE(extents.Take("base:allocation", 100, entries, 0).ok()) << "none";
  extents.Expect(100, 50);
  EXPECT_FALSE(extents.Take("base:allocation", 101, entries, 6).ok()) << "another offset";
  EXPECT_FALSE(extents.Take("base:allocation", 100, entries, 6).ok()) << "stays refused";
  extents.Expect(100, 0);
  EXPECT_EQ(extents.Finish().status().code(), StatusCode::kInvalidArgument);
  extents.Expect(kMaxCapacity, 1);
  EXPECT_EQ(extents.Finish().status().code(), StatusCode::kInvalidArgument);
}

TEST(NbdExtentsTest, LongEntriesNeverWrap) {
  struct Entry {
    uint64_t length;
    uint64_t flags;
  };
  ASSERT_OK_AND_ASSIGN(NbdExtents extents, NbdExtents::For(kDirty));
  extents.Expect(kMaxCapacity - 100, 100);
  Entry entries[] = {{50, 0}, {UINT64_MAX, uint64_t{1} << 40}, {UINT64_MAX, 1}};
  int error = 0;
  EXPECT_EQ(NbdExtents::CallbackLong(&extents, kDirty, kMaxCapacity - 100, entries, 3, &error), 0);
  EXPECT_EQ(ValueOf(extents.Finish()), kMaxCapacity);
  EXPECT_EQ(extents.extents(), (std::vector<Extent>{{kMaxCapacity - 50, 50}}));
  extents.Expect(0, 100);
  Entry nothing[] = {{0, 1}};
  EXPECT_EQ(NbdExtents::CallbackLong(&extents, kDirty, 0, nothing, 1, &error), -1);
  EXPECT_NE(error, 0);
}

TEST(NbdExtentsTest, KeepsABoundedNumber) {
  ASSERT_OK_AND_ASSIGN(NbdExtents extents, NbdExtents::For(kDirty));
  std::vector<uint32_t> entries;
  for (size_t i = 0; i < 2 * NbdExtents::kMaxExtents; ++i) {
    entries.insert(entries.end(), {3, 1, 2, 0});
  }
  extents.Expect(0, 10 * NbdExtents::kMaxExtents);
  int error = 0;
  EXPECT_EQ(NbdExtents::Callback(&extents, kDirty, 0, entries.data(), entries.size(), &error), 0);
  EXPECT_EQ(ValueOf(extents.Finish()), 5 * NbdExtents::kMaxExtents);
  EXPECT_EQ(extents.extents().size(), NbdExtents::kMaxExtents);
}

}  // namespace nbd_test
}  // namespace cbt
