// The contracts beside CSI's: the same answers with other names, tokens, sessions, pages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <future>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cbt/rpc/access.h"
#include "cbt/rpc/client.h"
#include "cbt/units.h"
#include "first_revision.pb.h"
#include "list_snapshot_deltas.pb.h"
#include "rpc/contract/resumption.h"
#include "tests/rpc/support/access_parts.h"
#include "tests/rpc/support/fixture.h"
#include "tests/rpc/support/list_all.h"
#include "tests/support/generators.h"
#include "tests/support/status.h"

namespace cbt::test {
namespace apis_test {

using absl::StatusCode;
using reference::Ranges;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr char kToken[] = "0123456789abcdef0123456789abcdef-canary";

// A server of all four contracts over one provider.
class AllApis : public AccessParts {
 public:
  explicit AllApis(FunctionProvider::Function function, rpc::StreamOptions stream = {},
                   rpc::SnapshotResolver* resolver = nullptr, bool base_is_handle = true)
      : AccessParts(kToken), provider(std::move(function)) {
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir / "s");
    options.service.base_is_handle = base_is_handle;
    options.service.stream = stream;
    ApplyTo(options, resolver);
    server = ValueOf(rpc::Server::Start(provider, options));
  }

  // Asks for snapshot b of namespace ns, against a if `delta`.
  rpc::ListRequest Request(rpc::Api api, bool delta = false) const {
    rpc::ListRequest request = RequestTo(server->address(), api, delta);
    request.volume_id = "vol";
    return request;
  }

  TempDir dir;
  FunctionProvider provider;
  std::unique_ptr<rpc::Server> server;
};

constexpr rpc::Api kAllApis[] = {rpc::Api::kCsi, rpc::Api::kKubernetes, rpc::Api::kSession,
                                 rpc::Api::kPaged};

RC_GTEST_PROP(Apis, GiveOneAnswer, ()) {
  std::mt19937_64 random = AnyRandom();
  const Truth truth = AnyTruth(random);
  const AllApis apis([&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return truth.Source();
  });
  for (const rpc::Api api : kAllApis) {
    for (const bool delta : {false, true}) {
      rpc::ListRequest request = apis.Request(api, delta);
      request.max_results = static_cast<int32_t>(random() % 5);
      const auto answer = ListAll(request);
      if (!answer.ok()) RC_FAIL(answer.status().ToString());
      // Pages do not reveal that all blocks have one size, so the last block is cut at the
      // capacity.
      RC_ASSERT(*answer == (api == rpc::Api::kPaged ? truth.Cut() : truth.full));
      // From any offset: the tuples that end past it, the first possibly rounded down.
      request.starting_offset = random() % (truth.capacity + 1);
      const auto rest = ListAll(request);
      if (!rest.ok()) RC_FAIL(rest.status().ToString());
      reference::ByteSet got(truth.capacity);
      for (const auto& [offset, length] : *rest) {
        RC_ASSERT(offset + length > request.starting_offset);
        for (uint64_t i = offset; i < std::min<uint64_t>(offset + length, truth.capacity); ++i) {
          got[i] = true;
        }
      }
      for (const auto& [offset, length] : truth.full) {
        for (uint64_t i = std::max(offset, request.starting_offset);
             i < std::min<uint64_t>(offset + length, truth.capacity); ++i) {
          RC_ASSERT(got[i]);
        }
      }
    }
  }
}

// Found by the property above: the last block reaches past the capacity, and the stream starts at
// the capacity.
TEST(Apis, E4PagesWithALastBlockPastTheCapacityCanBeResumedAtItsEnd) {
  const AllApis apis([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Blocks(CursorOver({{2, 1}}, 3), 4);
  });
  rpc::ListRequest request = apis.Request(rpc::Api::kPaged);
  request.starting_offset = 3;
  const auto rest = ListAll(request);
  ASSERT_OK(rest);
  EXPECT_TRUE(rest->empty());
  request.starting_offset = 2;
  EXPECT_EQ(ValueOf(ListAll(request)), (Ranges{{0, 3}}));
}

TEST(Apis, ProvidersSeeHandlesAndSecretsWhateverTheContract) {
  std::vector<std::string> seen;
  AllApis apis([&](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    seen.push_back(absl::StrCat(call.base.value_or("-"), " ", call.target, " ",
                                std::string(call.context.secrets.Get("key").value_or("none"))));
    return Extents(CursorOver({{0, 4096}}, 8192));
  });
  for (const rpc::Api api : kAllApis) {
    rpc::ListRequest request = apis.Request(api, true);
    if (api == rpc::Api::kCsi || api == rpc::Api::kPaged) request.secrets.Set("key", "own");
    EXPECT_OK(ListAll(request)) << rpc::ApiName(api);
  }
  EXPECT_THAT(seen, ElementsAre("ns/a ns/b own", "ns/a ns/b secret-canary",
                                "ns/a ns/b secret-canary", "ns/a ns/b own"));
}

TEST(Apis, E17TheBaseIsAHandleOrANameAsTheServerSays) {
  std::vector<std::string> seen;
  const auto provider = [&](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    seen.push_back(call.base.value_or("-"));
    return Extents(CursorOver({{0, 4096}}, 8192));
  };
  const AllApis by_handle(provider);
  const AllApis by_name(provider, {}, nullptr, false);
  rpc::ListRequest request = by_handle.Request(rpc::Api::kKubernetes, true);
  EXPECT_OK(ListAll(request));
  request.base_snapshot_id = std::string("a");
  EXPECT_EQ(ListAll(request).status().code(), StatusCode::kNotFound);
  request.address = by_name.server->address();
  EXPECT_OK(ListAll(request));
  EXPECT_THAT(seen, ElementsAre("ns/a", "ns/a"));
}

// --- access --------------------------------------------------------------------------------------

TEST(Apis, NobodyLearnsOfSnapshotsWithoutLeave) {
  AllApis apis([](const FunctionProvider::Call& call) -> absl::StatusOr<MetadataSource> {
    if (call.target != "ns/b") return absl::NotFoundError("no such snapshot");
    return Extents(CursorOver({}, 4096));
  });
  std::set<std::string> texts;
  for (const char* token : {"wrong", "other-token-of-somebody-else", "0123456789abcdef"}) {
    for (const char* snapshot : {"b", "missing", "../x"}) {
      for (const bool delta : {false, true}) {
        rpc::ListRequest request = apis.Request(rpc::Api::kKubernetes, delta);
        request.token = Secret(token);
        request.snapshot_id = snapshot;
        const absl::Status status = ListAll(request).status();
        EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
        texts.insert(std::string(status.message()));
      }
    }
  }
  rpc::ListRequest elsewhere = apis.Request(rpc::Api::kKubernetes);
  elsewhere.name_space = std::string("another");
  texts.insert(std::string(ListAll(elsewhere).status().message()));
  EXPECT_EQ(texts.size(), 1u);
  EXPECT_EQ(apis.provider.calls, 0);

  rpc::ListRequest missing = apis.Request(rpc::Api::kKubernetes);
  missing.snapshot_id = "missing";
  EXPECT_EQ(ListAll(missing).status().code(), StatusCode::kNotFound);
  missing.token = Secret();
  EXPECT_EQ(ListAll(missing).status().code(), StatusCode::kInvalidArgument);
}

TEST(Apis, HandlesOfOtherNamespacesAreNotFound) {
  AllApis apis([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({}, 4096));
  });
  rpc::ListRequest request = apis.Request(rpc::Api::kKubernetes, true);
  for (const char* base : {"other/a", "a", "ns/../other/a", "ns/./a", "/ns/a"}) {
    request.base_snapshot_id = base;
    EXPECT_EQ(ListAll(request).status().code(), StatusCode::kNotFound) << base;
  }
  request.base_snapshot_id = "ns/a";
  request.snapshot_id = "../other/b";
  EXPECT_EQ(ListAll(request).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(apis.provider.calls, 0);
}

// Everything that foreign hooks may do with a request for access.
class Odd final : public rpc::Authenticator, public rpc::Authorizer {
 public:
  enum class Way { kDrop, kThrow, kTwice, kLate, kInternal, kUnavailable };
  explicit Odd(Way way) : way_(way) {}
  ~Odd() override {
    for (std::thread& thread : threads_) thread.join();
  }
  void Authenticate(const Secret&, rpc::Done<rpc::Principal> done) override {
    switch (way_) {
      case Way::kDrop:
        return;
      case Way::kThrow:
        throw std::runtime_error("canary");
      case Way::kTwice:
        done(rpc::Principal{});
        done(absl::UnauthenticatedError("canary"));
        return;
      case Way::kLate:
        threads_.emplace_back([done] {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          done(rpc::Principal{});
        });
        return;
      case Way::kInternal:
        return done(absl::InternalError("canary"));
      case Way::kUnavailable:
        return done(absl::UnavailableError("canary"));
    }
  }
  void Authorize(const rpc::Principal&, const std::string&, rpc::DoneStatus done) override {
    done(absl::OkStatus());
  }

 private:
  const Way way_;
  std::vector<std::thread> threads_;
};

TEST(Apis, AccessThatFailsIsNeverAccess) {
  const std::pair<Odd::Way, StatusCode> cases[] = {
      {Odd::Way::kDrop, StatusCode::kInternal},
      {Odd::Way::kThrow, StatusCode::kInternal},
      {Odd::Way::kTwice, StatusCode::kOk},
      {Odd::Way::kLate, StatusCode::kOk},
      {Odd::Way::kInternal, StatusCode::kInternal},
      {Odd::Way::kUnavailable, StatusCode::kUnavailable}};
  for (const auto& [way, code] : cases) {
    const TempDir dir;
    Odd odd(way);
    FunctionProvider provider([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
      return Extents(CursorOver({{0, 1}}, 4096));
    });
    const auto directories = rpc::MakeDirectoryResolver();
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir / "s");
    options.service.apis = {rpc::Api::kKubernetes};
    options.service.access = {
        .authenticator = &odd, .authorizer = &odd, .resolver = directories.get()};
    const auto server = rpc::Server::Start(provider, options);
    ASSERT_OK(server);
    rpc::ListRequest request;
    request.address = (*server)->address();
    request.api = rpc::Api::kKubernetes;
    request.token = Secret("t");
    request.name_space = std::string("ns");
    request.snapshot_id = std::string("b");
    request.timeout = seconds(20);
    request.retry_for = {};
    const absl::Status status = ListAll(request).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(status.ToString(), Not(HasSubstr("canary")));
  }
}

TEST(Apis, AnAnswerAfterTheServersEndFindsNobody) {
  class Never final : public rpc::Authenticator, public rpc::Authorizer {
   public:
    void Authenticate(const Secret&, rpc::Done<rpc::Principal> done) override { kept = done; }
    void Authorize(const rpc::Principal&, const std::string&, rpc::DoneStatus) override {}
    rpc::Done<rpc::Principal> kept;
  };
  const TempDir dir;
  Never never;
  FunctionProvider provider([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({}, 4096));
  });
  const auto directories = rpc::MakeDirectoryResolver();
  rpc::ServerOptions options;
  options.listen = "unix://" + (dir / "s");
  options.service.apis = {rpc::Api::kKubernetes};
  options.service.access = {
      .authenticator = &never, .authorizer = &never, .resolver = directories.get()};
  auto server = rpc::Server::Start(provider, options);
  ASSERT_OK(server);
  rpc::ListRequest request;
  request.address = (*server)->address();
  request.api = rpc::Api::kKubernetes;
  request.token = Secret("t");
  request.name_space = std::string("ns");
  request.snapshot_id = std::string("b");
  request.timeout = std::chrono::milliseconds(200);
  EXPECT_EQ(ListAll(request).status().code(), StatusCode::kDeadlineExceeded);
  server->reset();
  ASSERT_TRUE(never.kept);
  never.kept(rpc::Principal{});
  never.kept = nullptr;
  EXPECT_EQ(provider.calls, 0);
}

// Any client that reaches a server can send tokens that mean nothing.
TEST(Apis, YCallsThatWaitForAccessTakeNoStream) {
  class Slow final : public rpc::Authenticator, public rpc::Authorizer {
   public:
    void Authenticate(const Secret&, rpc::Done<rpc::Principal>) override { ADD_FAILURE(); }
    void AuthenticateFrom(const std::string& peer, const Secret& token,
                          rpc::Done<rpc::Principal> done) override {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(peer, "127.0.0.1");
      if (token.Reveal() == "good") return done(rpc::Principal{});
      waiting.push_back(std::move(done));
    }
    void Authorize(const rpc::Principal&, const std::string&, rpc::DoneStatus done) override {
      done(absl::OkStatus());
    }
    std::mutex mutex;
    std::vector<rpc::Done<rpc::Principal>> waiting;
  };
  Slow slow;
  FunctionProvider provider([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({}, 4096));
  });
  const auto directories = rpc::MakeDirectoryResolver();
  rpc::ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.service.apis = {rpc::Api::kKubernetes};
  options.service.access = {
      .authenticator = &slow, .authorizer = &slow, .resolver = directories.get()};
  options.service.stream.max_streams = 4;
  auto server = rpc::Server::Start(provider, options);
  ASSERT_OK(server);
  const auto ask = [&](const std::string& token) {
    rpc::ListRequest request;
    request.address = (*server)->address();
    request.api = rpc::Api::kKubernetes;
    request.token = Secret(token);
    request.name_space = std::string("ns");
    request.snapshot_id = std::string("b");
    request.timeout = std::chrono::seconds(20);
    return ListAll(request).status();
  };
  std::vector<std::future<absl::Status>> strangers;
  for (int i = 0; i < 6; ++i) strangers.push_back(std::async(std::launch::async, ask, "bad"));
  ASSERT_TRUE(Eventually([&] {
    const std::lock_guard lock(slow.mutex);
    return slow.waiting.size() == 6;
  }));
  for (int i = 0; i < 10; ++i) EXPECT_OK(ask("good"));
  {
    const std::lock_guard lock(slow.mutex);
    for (const auto& done : slow.waiting) done(absl::UnauthenticatedError("no"));
  }
  for (auto& one : strangers) EXPECT_EQ(one.get().code(), absl::StatusCode::kUnauthenticated);
}

TEST(Apis, KubernetesIsNotServedWithoutAccessControl) {
  FunctionProvider provider([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({}, 4096));
  });
  const TempDir dir;
  for (const rpc::Api api : {rpc::Api::kKubernetes, rpc::Api::kSession}) {
    rpc::ServerOptions options;
    options.listen = "unix://" + (dir / "s");
    options.service.apis = {api};
    EXPECT_EQ(rpc::Server::Start(provider, options).status().code(), StatusCode::kInvalidArgument);
  }
}

// --- sessions ------------------------------------------------------------------------------------

TEST(Sessions, SnapshotsOutsideAreRefusedLikeWrongTokens) {
  AllApis apis([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({}, 4096));
  });
  rpc::ListRequest request = apis.Request(rpc::Api::kSession, true);
  EXPECT_OK(ListAll(request));
  std::set<std::string> texts;
  const auto refused = [&](const rpc::ListRequest& asked) {
    const absl::Status status = ListAll(asked).status();
    EXPECT_EQ(status.code(), StatusCode::kUnauthenticated);
    texts.insert(std::string(status.message()));
  };
  rpc::ListRequest other = request.Copy();
  other.snapshot_id = std::string("c");
  refused(other);
  other = request.Copy();
  other.base_snapshot_id = std::string("c");
  refused(other);
  other = request.Copy();
  other.token = Secret(std::string(64, '0'));
  refused(other);
  apis.sessions->Close(Secret(apis.session));
  refused(request);
  EXPECT_EQ(texts.size(), 1u);
}

// --- pages ---------------------------------------------------------------------------------------

// One page, decoded by libprotobuf.
std::pair<grpc::Status, csi::v1::ListSnapshotDeltasResponse> Page(
    const AllApis& apis, const csi::v1::ListSnapshotDeltasRequest& request) {
  const auto channel = Connect(apis.server->address());
  RawCall call(channel, "/csi.v1.Controller/ListSnapshotDeltas", request.SerializeAsString());
  csi::v1::ListSnapshotDeltasResponse response;
  const std::optional<std::string> bytes = call.Read();
  if (bytes.has_value() && !response.ParseFromString(*bytes)) {
    return {{grpc::StatusCode::DATA_LOSS, "no page"}, {}};
  }
  return {call.Finish(), response};
}

TEST(Pages, EndWithTheLastBlockAndNotBefore) {
  Ranges blocks;
  for (uint64_t i = 0; i < 10; ++i) blocks.emplace_back(i * 8192, 4096);
  const AllApis apis([&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Blocks(CursorOver(blocks, kMiB), 4096);
  });
  for (const int max : {0, 1, 3, 5, 9, 10, 11, INT32_MAX}) {
    csi::v1::ListSnapshotDeltasRequest request;
    request.set_to_snapshot_id("s");
    request.set_max_entries(max);
    Ranges got;
    int pages = 0;
    do {
      const auto [status, page] = Page(apis, request);
      ASSERT_OK(status);
      ++pages;
      EXPECT_EQ(page.volume_size_bytes(), 1u << 20);
      if (max > 0) {
        EXPECT_LE(page.changed_blocks_size(), max);
      }
      for (const auto& block : page.changed_blocks()) {
        got.emplace_back(block.offset(), block.block_size_bytes());
      }
      request.set_starting_token(page.next_token());
    } while (!request.starting_token().empty());
    EXPECT_EQ(got, blocks);
    // No superfluous empty page.
    const int full = max == 0 ? 10 : std::min(max, 10);
    EXPECT_EQ(pages, (10 + full - 1) / full) << max;
  }
}

TEST(Pages, E6NoPageIsLargerThanAMessage) {
  const uint64_t capacity = kTiB;
  rpc::StreamOptions options;
  options.message_bytes = 16 * kKiB;
  const AllApis apis(
      [&](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
        Ranges ranges;
        for (uint64_t i = 0; i < 5000; ++i) ranges.emplace_back(i << 24, kMiB);
        return Extents(CursorOver(ranges, capacity));
      },
      options);
  csi::v1::ListSnapshotDeltasRequest request;
  request.set_to_snapshot_id("s");
  uint64_t count = 0;
  do {
    const auto [status, page] = Page(apis, request);
    ASSERT_OK(status);
    EXPECT_LE(page.ByteSizeLong(), options.message_bytes);
    count += static_cast<uint64_t>(page.changed_blocks_size());
    request.set_starting_token(page.next_token());
  } while (!request.starting_token().empty());
  EXPECT_EQ(count, 5000u);
}

TEST(Pages, TokensThatAreNotOfTheRequestAreAborted) {
  const AllApis apis([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({{0, 1}, {10, 1}, {20, 1}}, 4096));
  });
  csi::v1::ListSnapshotDeltasRequest request;
  request.set_from_snapshot_id("a");
  request.set_to_snapshot_id("b");
  request.set_max_entries(1);
  const std::string token = Page(apis, request).second.next_token();
  ASSERT_FALSE(token.empty());
  const auto code = [&](const std::string& from, const std::string& to, const std::string& with) {
    csi::v1::ListSnapshotDeltasRequest other = request;
    other.set_from_snapshot_id(from);
    other.set_to_snapshot_id(to);
    other.set_starting_token(with);
    return Page(apis, other).first.error_code();
  };
  EXPECT_EQ(code("a", "b", token), grpc::StatusCode::OK);
  EXPECT_EQ(code("", "b", token), grpc::StatusCode::ABORTED);
  EXPECT_EQ(code("a", "c", token), grpc::StatusCode::ABORTED);
  EXPECT_EQ(code("b", "a", token), grpc::StatusCode::ABORTED);
  EXPECT_EQ(code("a", "b", "x"), grpc::StatusCode::ABORTED);
  for (size_t i = 0; i < token.size(); ++i) {
    std::string changed = token;
    changed.at(i) = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_EQ(code("a", "b", changed), grpc::StatusCode::ABORTED) << i;
    EXPECT_EQ(code("a", "b", token.substr(0, i)),
              i == 0 ? grpc::StatusCode::OK : grpc::StatusCode::ABORTED);
  }
}

TEST(Pages, TokensSurviveARestart) {
  const auto provider = [](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({{0, 1}, {10, 1}, {20, 1}}, 4096));
  };
  csi::v1::ListSnapshotDeltasRequest request;
  request.set_to_snapshot_id("b");
  request.set_max_entries(1);
  {
    const AllApis first(provider);
    request.set_starting_token(Page(first, request).second.next_token());
  }
  const AllApis second(provider);
  const auto [status, page] = Page(second, request);
  ASSERT_OK(status);
  ASSERT_EQ(page.changed_blocks_size(), 1);
  EXPECT_EQ(page.changed_blocks(0).offset(), 10u);
}

TEST(Pages, TokensAreBoundToTheirKey) {
  const rpc::PageTokens ours("key");
  const rpc::PageTokens theirs("another key");
  const std::string token = ours.Seal("a", "b", {4096});
  EXPECT_EQ(ours.Open("a", "b", token)->offset, 4096u);
  EXPECT_EQ(theirs.Open("a", "b", token).status().code(), StatusCode::kAborted);
  // Strings that only look alike when concatenated must differ.
  EXPECT_EQ(ours.Open("ab", "", token).status().code(), StatusCode::kAborted);
  EXPECT_EQ(ours.Open(std::nullopt, "b", ours.Seal("", "b", {0})).status().code(),
            StatusCode::kAborted);
}

TEST(Pages, E5BadArgumentsAreRefused) {
  const AllApis apis([](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
    return Extents(CursorOver({}, 4096));
  });
  csi::v1::ListSnapshotDeltasRequest request;
  EXPECT_EQ(Page(apis, request).first.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_to_snapshot_id("b");
  request.set_max_entries(-1);
  EXPECT_EQ(Page(apis, request).first.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  request.set_max_entries(0);
  EXPECT_OK(Page(apis, request).first);
}

TEST(Pages, AProviderThatHangsHoldsNoClientThatHasGone) {
  std::promise<void> release;
  const auto released = release.get_future().share();
  {
    AllApis apis([released](const FunctionProvider::Call&) -> absl::StatusOr<MetadataSource> {
      released.wait();
      return Extents(CursorOver({}, 4096));
    });
    rpc::ListRequest request = apis.Request(rpc::Api::kPaged);
    request.timeout = std::chrono::milliseconds(100);
    EXPECT_EQ(ListAll(request).status().code(), StatusCode::kDeadlineExceeded);
    const Stopwatch watch;
    apis.server->Shutdown(std::chrono::milliseconds(0));
    EXPECT_LT(watch.elapsed(), seconds(5));
    release.set_value();
  }
}

}  // namespace apis_test
}  // namespace cbt::test
