// The client of S3 against a strict double with every fault, and, where CBT_TEST_S3 names one
// ("ENDPOINT BUCKET ACCESS_KEY SECRET_KEY"), against a real store.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bucket/s3.h"
#include "bucket/s3_http.h"
#include "tests/support/status.h"

namespace cbt::bucket {
namespace s3_bucket_test {

using test::ValueOf;
using namespace std::chrono_literals;

constexpr char kAccess[] = "AKTEST";
constexpr char kSecret[] = "secret/key+of=the test";
constexpr char kToken[] = "session-token-0123456789";

std::vector<uint8_t> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

// s3_double.py in a process of its own.
class Double {
 public:
  explicit Double(int page = 1000) {
    int to[2];
    int from[2];
    if (::pipe2(to, O_CLOEXEC) != 0 || ::pipe2(from, O_CLOEXEC) != 0) abort();
    child_ = ::fork();
    if (child_ == 0) {
      ::dup2(to[0], 0);
      ::dup2(from[1], 1);
      const std::string pages = std::to_string(page);
      ::execl(CBT_TEST_PYTHON, CBT_TEST_PYTHON, "-B", CBT_TEST_FOLDER "/s3_double.py", kAccess,
              kSecret, kToken, "bucket", pages.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = ::fdopen(to[1], "w");
    from_ = ::fdopen(from[0], "r");
    port_ = Line();
  }
  ~Double() {
    std::fclose(to_);
    std::fclose(from_);
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Double(const Double&) = delete;
  Double& operator=(const Double&) = delete;

  std::string Say(const std::string& command) {
    std::fprintf(to_, "%s\n", command.c_str());
    std::fflush(to_);
    return Line();
  }
  void Fault(const std::string& kind, const std::string& method, int count) {
    EXPECT_EQ(Say(absl::StrCat("fault ", kind, " ", method, " ", count)), "ok");
  }
  S3Place Place() const {
    return {
        .endpoint = "http://127.0.0.1:" + port_,
        .bucket = "bucket",
        .credentials = {
            .access_key = kAccess, .secret_key = Secret(kSecret), .session_token = Secret(kToken)}};
  }

 private:
  std::string Line() {
    char line[256];
    if (std::fgets(line, sizeof(line), from_) == nullptr) return "the double has ended";
    const std::string text(line);
    return text.substr(0, text.find('\n'));
  }

  pid_t child_ = -1;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
  std::string port_;
};

S3Options Quick() {
  return {.attempts = 4, .first_wait = 5ms, .longest_wait = 40ms, .stall_timeout = 300ms};
}

std::map<std::string, uint64_t> Listed(Bucket& bucket, const std::string& prefix) {
  std::map<std::string, uint64_t> listed;
  test::RequireOk(bucket.List(prefix, [&](const ObjectInfo& object) {
    EXPECT_TRUE(listed.emplace(object.key, object.size).second) << object.key;
    return absl::OkStatus();
  }));
  return listed;
}

// What every store must do.
void KeepsObjects(Bucket& bucket) {
  std::vector<uint8_t> large(3'000'000);
  std::mt19937 random(1);
  for (uint8_t& byte : large) byte = static_cast<uint8_t>(random());
  const std::vector<std::string> keys = {"data/ab/one", "data/ab/a+b=c &?#%25",
                                         "data/ab/\xE1\x88\xB4", "data.x", "data/ab~'()*!$"};
  std::map<std::string, uint64_t> all;
  for (const std::string& key : keys) {
    ASSERT_OK(bucket.Put(key, Bytes("0123456789" + key)));
    EXPECT_EQ(ValueOf(bucket.Get(key, 1000)), Bytes("0123456789" + key));
    all[key] = 10 + key.size();
  }
  ASSERT_OK(bucket.Put("large", large));
  ASSERT_OK(bucket.Put("empty", {}));
  EXPECT_TRUE(ValueOf(bucket.Get("large", large.size())) == large);
  EXPECT_TRUE(absl::IsResourceExhausted(bucket.Get("large", large.size() - 1).status()));
  EXPECT_EQ(ValueOf(bucket.Get("empty", 0)), Bytes(""));
  EXPECT_EQ(ValueOf(bucket.Size("large")), large.size());
  EXPECT_EQ(ValueOf(bucket.GetRange("data.x", 3, 7)), Bytes("3456789"));
  EXPECT_TRUE(ValueOf(bucket.GetRange("large", 1'000'001, 1'999'999)) ==
              std::vector<uint8_t>(large.begin() + 1'000'001, large.end()));
  EXPECT_TRUE(absl::IsOutOfRange(bucket.GetRange("data.x", 10, 7).status()));
  EXPECT_TRUE(absl::IsOutOfRange(bucket.GetRange("data.x", 16, 1).status()));
  EXPECT_TRUE(absl::IsNotFound(bucket.Get("none", 10).status()));
  EXPECT_TRUE(absl::IsNotFound(bucket.GetRange("none", 0, 10).status()));
  EXPECT_TRUE(absl::IsNotFound(bucket.Size("none").status()));
  all["large"] = large.size();
  all["empty"] = 0;
  EXPECT_EQ(Listed(bucket, ""), all);
  EXPECT_EQ(Listed(bucket, "data/ab/").size(), 3u);
  EXPECT_EQ(Listed(bucket, "data/ab/a+b=c &?").size(), 1u);
  EXPECT_EQ(Listed(bucket, "none").size(), 0u);
  for (const auto& [key, size] : all) {
    ASSERT_OK(bucket.Delete(key));
    ASSERT_OK(bucket.Delete(key));
  }
  EXPECT_EQ(Listed(bucket, "").size(), 0u);
}

// A real store makes its pools when the first object comes.
S3Options Patient() { return {.attempts = 4, .first_wait = 5ms, .longest_wait = 40ms}; }

S3Place Same(const S3Place& place) {
  S3Place copy;
  copy.endpoint = place.endpoint;
  copy.bucket = place.bucket;
  copy.credentials.access_key = place.credentials.access_key;
  copy.credentials.secret_key = place.credentials.secret_key.Copy();
  copy.credentials.session_token = place.credentials.session_token.Copy();
  return copy;
}

// What every store must refuse, with what is said then.
void RefusesStrangers(const S3Place& right) {
  const auto put = [](S3Place place, S3Options options = Patient()) {
    return ValueOf(OpenS3Bucket(std::move(place), std::move(options)))->Put("key", Bytes("x"));
  };
  ASSERT_OK(put(Same(right)));
  S3Place wrong = Same(right);
  wrong.credentials.secret_key = Secret("wrong");
  const absl::Status unsigned_put = put(std::move(wrong));
  EXPECT_TRUE(absl::IsUnauthenticated(unsigned_put)) << unsigned_put;
  EXPECT_NE(unsigned_put.message().find("SignatureDoesNotMatch"), absl::string_view::npos);
  wrong = Same(right);
  wrong.credentials.access_key = "AKNOBODY";
  const absl::Status stranger = put(std::move(wrong));
  EXPECT_TRUE(absl::IsUnauthenticated(stranger)) << stranger;
  EXPECT_NE(stranger.message().find("InvalidAccessKeyId"), absl::string_view::npos);
  wrong = Same(right);
  wrong.bucket = "another";
  const absl::Status missing = put(std::move(wrong));
  EXPECT_TRUE(absl::IsFailedPrecondition(missing)) << missing;
  EXPECT_NE(missing.message().find("create the bucket"), absl::string_view::npos) << missing;
  S3Options late = Patient();
  late.clock = [] { return std::time(nullptr) - 3600; };
  const absl::Status skewed = put(Same(right), std::move(late));
  EXPECT_NE(skewed.message().find("clock"), absl::string_view::npos) << skewed;
  ASSERT_OK(ValueOf(OpenS3Bucket(Same(right), Patient()))->Delete("key"));
}

TEST(S3Bucket, KeepsObjects) {
  Double store(2);
  KeepsObjects(*ValueOf(OpenS3Bucket(store.Place(), Quick())));
}

TEST(S3Bucket, KeepsObjectsInARealStore) {
  const char* const named = ::getenv("CBT_TEST_S3");
  if (named == nullptr) GTEST_SKIP() << "CBT_TEST_S3 names no store";
  S3Place place;
  std::string secret;
  std::istringstream(named) >> place.endpoint >> place.bucket >> place.credentials.access_key >>
      secret;
  place.credentials.secret_key = Secret(secret);
  RefusesStrangers(place);
  KeepsObjects(*ValueOf(OpenS3Bucket(std::move(place))));
}

// Each fault once or twice: the call succeeds, with what is right.
TEST(S3Bucket, GetsPastPassingFaults) {
  Double store;
  const auto bucket = ValueOf(OpenS3Bucket(store.Place(), Quick()));
  for (const std::string fault : {"slowdown", "retryafter", "internal", "reset", "error200"}) {
    for (const int count : {1, 3}) {
      SCOPED_TRACE(fault);
      store.Fault(fault, "ANY", count);
      ASSERT_OK(bucket->Put("key", Bytes("0123456789" + fault)));
      store.Fault(fault, "ANY", count);
      EXPECT_EQ(ValueOf(bucket->Get("key", 100)), Bytes("0123456789" + fault));
      store.Fault(fault, "ANY", count);
      EXPECT_EQ(ValueOf(bucket->GetRange("key", 2, 8)), Bytes("23456789"));
      store.Fault(fault, "ANY", count);
      EXPECT_EQ(Listed(*bucket, "k").size(), 1u);
      if (fault != "error200") {
        store.Fault(fault, "ANY", count);
        EXPECT_EQ(ValueOf(bucket->Size("key")), 10 + fault.size());
      }
      store.Fault(fault, "ANY", count);
      ASSERT_OK(bucket->Delete("key"));
      EXPECT_EQ(Listed(*bucket, "").size(), 0u);
    }
  }
  store.Fault("lost", "PUT", 2);
  ASSERT_OK(bucket->Put("key", Bytes("0123456789")));
  store.Fault("etag", "PUT", 2);
  ASSERT_OK(bucket->Put("key", Bytes("0123456789")));
  for (const std::string fault : {"cut", "stall", "damage"}) {
    store.Fault(fault, "GET", 1);
    EXPECT_EQ(ValueOf(bucket->Get("key", 100)), Bytes("0123456789")) << fault;
  }
  for (const std::string fault : {"cut", "stall", "otherrange", "shortrange"}) {
    store.Fault(fault, "GET", 1);
    EXPECT_EQ(ValueOf(bucket->GetRange("key", 1, 4)), Bytes("1234")) << fault;
  }
  for (const std::string fault : {"cut", "stall", "notoken", "halflist"}) {
    store.Fault(fault, "GET", 1);
    EXPECT_EQ(Listed(*bucket, "").size(), 1u) << fault;
  }
  store.Fault("lost", "DELETE", 2);
  ASSERT_OK(bucket->Delete("key"));
}

// The same on every attempt: an error that names bucket and key, and never a wrong answer.
TEST(S3Bucket, LastingFaultsAreErrors) {
  Double store;
  const auto bucket = ValueOf(OpenS3Bucket(store.Place(), Quick()));
  ASSERT_OK(bucket->Put("key", Bytes("0123456789")));
  const auto check = [&](const std::string& fault, const absl::Status& status,
                         absl::StatusCode code) {
    EXPECT_EQ(status.code(), code) << fault << ": " << status;
    const std::string text(status.message());
    EXPECT_NE(text.find("bucket bucket at http://127.0.0.1:"), std::string::npos) << text;
    EXPECT_NE(text.find("key"), std::string::npos) << text;
    EXPECT_EQ(text.find(kSecret), std::string::npos) << text;
    EXPECT_EQ(text.find(kToken), std::string::npos) << text;
  };
  using enum absl::StatusCode;
  for (const std::string fault : {"slowdown", "internal", "reset", "error200"}) {
    store.Fault(fault, "ANY", 1000);
    check(fault, bucket->Put("key", Bytes("x")), kUnavailable);
    check(fault, bucket->Get("key", 500).status(), kUnavailable);
    check(fault, bucket->GetRange("key", 0, 5).status(), kUnavailable);
    if (fault != "error200") check(fault, bucket->Size("key").status(), kUnavailable);
    check(fault, bucket->Delete("key"), kUnavailable);
    EXPECT_FALSE(bucket->List("", [](const ObjectInfo&) { return absl::OkStatus(); }).ok());
  }
  for (const auto& [fault, code] :
       {std::pair{"cut", kUnavailable}, {"stall", kUnavailable}, {"damage", kDataLoss}}) {
    store.Fault(fault, "GET", 1000);
    check(fault, bucket->Get("key", 100).status(), code);
  }
  for (const auto& [fault, code] : {std::pair{"cut", kUnavailable},
                                    {"otherrange", kUnavailable},
                                    {"shortrange", kUnavailable}}) {
    store.Fault(fault, "GET", 1000);
    check(fault, bucket->GetRange("key", 1, 4).status(), code);
  }
  store.Fault("norange", "GET", 1000);
  check("norange", bucket->GetRange("key", 0, 10).status(), kFailedPrecondition);
  for (const std::string fault : {"notoken", "halflist", "cut"}) {
    store.Fault(fault, "GET", 1000);
    EXPECT_FALSE(bucket->List("", [](const ObjectInfo&) { return absl::OkStatus(); }).ok());
  }
  store.Fault("etag", "PUT", 1000);
  check("etag", bucket->Put("key", Bytes("y")), kDataLoss);
  store.Fault("echo", "ANY", 1000);
  check("echo", bucket->Put("key", Bytes("z")), kPermissionDenied);
  store.Fault("region", "ANY", 1000);
  const absl::Status region = bucket->Put("key", Bytes("z"));
  check("region", region, kInvalidArgument);
  EXPECT_NE(region.message().find("eu-west-9"), absl::string_view::npos) << region;
}

TEST(S3Bucket, WrongCredentialsAndPlacesAreNamed) {
  Double store;
  RefusesStrangers(store.Place());
  S3Place place;
  place = store.Place();
  place.endpoint = "http://127.0.0.1:1";
  EXPECT_TRUE(
      absl::IsUnavailable(ValueOf(OpenS3Bucket(std::move(place), Quick()))->Put("key", {})));
  for (const std::string endpoint : {"", "s3.example.com", "ftp://h", "https://", "https://a/b",
                                     "https://u@h", "https://h\nx: y"}) {
    place = store.Place();
    place.endpoint = endpoint;
    EXPECT_TRUE(absl::IsInvalidArgument(OpenS3Bucket(std::move(place)).status())) << endpoint;
  }
  place = store.Place();
  place.credentials.session_token = Secret("a\r\nb: c");
  EXPECT_TRUE(absl::IsInvalidArgument(OpenS3Bucket(std::move(place)).status()));
}

TEST(S3Bucket, NeverHasMoreInFlightThanItMay) {
  Double store;
  S3Options options = Quick();
  options.connections = 3;
  options.attempts = 20;
  const auto bucket = ValueOf(OpenS3Bucket(store.Place(), std::move(options)));
  const auto run = [&] {
    std::vector<std::jthread> threads;
    std::atomic<int> failed{0};
    for (int i = 0; i < 12; ++i) {
      threads.emplace_back([&, i] {
        if (!bucket->Put(absl::StrCat("key", i), Bytes("x")).ok()) ++failed;
      });
    }
    threads.clear();
    EXPECT_EQ(failed.load(), 0);
  };
  store.Fault("hold", "PUT", 1000);
  run();
  EXPECT_EQ(store.Say("most"), "3");
}

TEST(S3Bucket, SlowDownHalvesTheConnections) {
  ASSERT_OK(LoadLibCurl());
  ConnectionGate gate(8);
  const std::stop_token never;
  {
    ConnectionGate::Place a(gate);
    ConnectionGate::Place b(gate);
    ASSERT_TRUE(gate.Enter(a, never));
    ASSERT_TRUE(gate.Enter(b, never));
    gate.SlowDown(a);
    EXPECT_EQ(gate.limit(), 4u);
    gate.SlowDown(b);  // it was sent before
    EXPECT_EQ(gate.limit(), 4u);
  }
  for (const size_t limit : {2u, 1u, 1u}) {
    ConnectionGate::Place place(gate);
    ASSERT_TRUE(gate.Enter(place, never));
    gate.SlowDown(place);
    EXPECT_EQ(gate.limit(), limit);
  }
  {
    ConnectionGate::Place a(gate);
    ConnectionGate::Place b(gate);
    ASSERT_TRUE(gate.Enter(a, never));
    std::stop_source stop;
    stop.request_stop();
    EXPECT_FALSE(gate.Enter(b, stop.get_token()));
  }
  for (int i = 0; i < 1000; ++i) gate.GoOn();
  EXPECT_EQ(gate.limit(), 8u);
}

TEST(S3Bucket, StopsAtOnce) {
  Double store;
  std::stop_source stop;
  S3Options options;
  options.stop = stop.get_token();
  const auto bucket = ValueOf(OpenS3Bucket(store.Place(), std::move(options)));
  ASSERT_OK(bucket->Put("key", Bytes("0123456789")));
  store.Fault("stall", "GET", 1);
  const auto start = std::chrono::steady_clock::now();
  const std::jthread stopper([&] {
    std::this_thread::sleep_for(100ms);
    stop.request_stop();
  });
  EXPECT_TRUE(absl::IsCancelled(bucket->Get("key", 10).status()));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 2s);
  EXPECT_TRUE(absl::IsCancelled(bucket->Put("key", {})));
}

TEST(S3Bucket, AddressesVirtually) {
  Double store;
  S3Place place = store.Place();
  place.addressing = Addressing::kVirtual;
  // "bucket.localhost" is this machine (RFC 6761), for curl too.
  place.endpoint.replace(place.endpoint.find("127.0.0.1"), 9, "localhost");
  KeepsObjects(*ValueOf(OpenS3Bucket(std::move(place), Quick())));
}

}  // namespace s3_bucket_test
}  // namespace cbt::bucket
