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
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bucket/s3.h"
#include "bucket/s3_http.h"
#include "bucket/s3_multipart.h"
#include "tests/bucket/s3_double.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::bucket {
namespace s3_bucket_test {

using namespace test_support;  // NOLINT(google-build-using-namespace)
using test::ValueOf;
using namespace std::chrono_literals;

std::vector<uint8_t> Bytes(std::string_view text) { return {text.begin(), text.end()}; }

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

// A large object, in parts that arrive in any order.
void KeepsPartsOf(Bucket& bucket, uint64_t size) {
  const auto byte_at = [](uint64_t offset) {
    return static_cast<uint8_t>(offset * 2654435761u >> 13);
  };
  std::atomic<uint64_t> read{0};
  ASSERT_OK(bucket.PutParts("parts/of it", size, [&](uint64_t offset, std::span<uint8_t> out) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = byte_at(offset + i);
    read += out.size();
    return absl::OkStatus();
  }));
  EXPECT_EQ(read.load(), size);
  EXPECT_EQ(ValueOf(bucket.Size("parts/of it")), size);
  for (const uint64_t offset : {uint64_t{0}, size / 3, size - 1}) {
    const uint64_t length = std::min<uint64_t>(100'000, size - offset);
    const auto bytes = ValueOf(bucket.GetRange("parts/of it", offset, length));
    bool same = true;
    for (uint64_t i = 0; i < length; ++i) same &= bytes[i] == byte_at(offset + i);
    EXPECT_TRUE(same) << offset;
  }
  // What can't be read is not there.
  const auto fails = bucket.PutParts("parts/none", size, [&](uint64_t offset, auto out) {
    const bool last = offset + out.size() == size;
    return last ? absl::DataLossError("the data is gone") : absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsDataLoss(fails)) << fails;
  EXPECT_TRUE(absl::IsNotFound(bucket.Size("parts/none").status()));
  ASSERT_OK(bucket.Delete("parts/of it"));
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
  S3Options options;
  options.part_bytes = 5 << 20;
  KeepsPartsOf(*ValueOf(OpenS3Bucket(Same(place), std::move(options))), 23'000'001);
  KeepsObjects(*ValueOf(OpenS3Bucket(std::move(place))));
}

S3Options QuickParts() {
  S3Options options = Quick();
  options.part_bytes = 100'000;
  return options;
}

TEST(S3Bucket, KeepsObjectsInParts) {
  Double store;
  const auto bucket = ValueOf(OpenS3Bucket(store.Place(), QuickParts()));
  for (const uint64_t size : {1u, 100'000u, 100'001u, 1'234'567u}) KeepsPartsOf(*bucket, size);
  EXPECT_EQ(store.Say("open"), "0");
}

// Each fault at each request of an upload in parts.
TEST(S3Bucket, PartsGetPastPassingFaults) {
  Double store;
  const auto bucket = ValueOf(OpenS3Bucket(store.Place(), QuickParts()));
  const auto put = [&] {
    return bucket->PutParts("key", 450'000, [](uint64_t offset, std::span<uint8_t> out) {
      for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<uint8_t>((offset + i) % 251);
      return absl::OkStatus();
    });
  };
  const auto right = [&] {
    const auto bytes = bucket->GetRange("key", 0, 450'000);
    if (!bytes.ok()) return false;
    for (size_t i = 0; i < bytes->size(); ++i) {
      if ((*bytes)[i] != i % 251) return false;
    }
    return true;
  };
  for (const std::string fault : {"slowdown", "internal", "reset", "error200"}) {
    for (const std::string method : {"ANY", "PUT", "POST"}) {
      for (const int count : {1, 2, 3}) {
        SCOPED_TRACE(absl::StrCat(fault, " ", method, " ", count));
        store.Fault(fault, method, count);
        ASSERT_OK(put());
        EXPECT_TRUE(right());
        ASSERT_OK(bucket->Delete("key"));
      }
    }
  }
  EXPECT_EQ(store.Say("open"), "0");
  for (const std::string fault : {"lost", "etag"}) {
    store.Fault(fault, "PUT", 2);
    ASSERT_OK(put());
    EXPECT_TRUE(right());
    ASSERT_OK(bucket->Delete("key"));
  }
}

// The end is never asked for twice without a look.
TEST(S3Bucket, TheEndOfPartsIsLookedAt) {
  Double store;
  const auto bucket = ValueOf(OpenS3Bucket(store.Place(), QuickParts()));
  const auto put = [&](const std::string& fault, int count) {
    bool first = true;
    return bucket->PutParts("key", 150'000, [&, count](uint64_t, std::span<uint8_t> out) {
      // From here on only the end is a POST.
      if (std::exchange(first, false)) store.Fault(fault, "POST", count);
      std::fill(out.begin(), out.end(), uint8_t{7});
      return absl::OkStatus();
    });
  };
  // Done, and the answer lost: one request for the end.
  store.Say("completed");
  ASSERT_OK(put("lost", 1));
  EXPECT_EQ(store.Say("completed"), "1");
  ASSERT_OK(put("cut", 1));
  EXPECT_EQ(store.Say("completed"), "1");
  ASSERT_OK(bucket->Delete("key"));
  // Not done: it is asked for again.
  ASSERT_OK(put("drop", 2));
  EXPECT_EQ(store.Say("completed"), "1");
  ASSERT_OK(bucket->Delete("key"));
  // Never done: an error, nothing is there, and nothing stays.
  EXPECT_TRUE(absl::IsUnavailable(put("drop", 1000)));
  EXPECT_TRUE(absl::IsNotFound(bucket->Size("key").status()));
  EXPECT_EQ(store.Say("open"), "0");
  EXPECT_FALSE(put("error200", 1000).ok());
  store.Fault("none", "ANY", 0);
  EXPECT_EQ(store.Say("open"), "0");
  // An older object of this name is not taken for the new one.
  ASSERT_OK(bucket->PutParts("key", 150'000, [](uint64_t, std::span<uint8_t> out) {
    std::fill(out.begin(), out.end(), uint8_t{9});
    return absl::OkStatus();
  }));
  EXPECT_FALSE(put("drop", 1000).ok());
  EXPECT_EQ(ValueOf(bucket->GetRange("key", 0, 1)), std::vector<uint8_t>{9});
}

TEST(S3Bucket, StoppedPartsAreGivenUp) {
  Double store;
  std::stop_source stop;
  S3Options options = QuickParts();
  options.stop = stop.get_token();
  const auto bucket = ValueOf(OpenS3Bucket(store.Place(), std::move(options)));
  const auto status = bucket->PutParts("key", 450'000, [&](uint64_t, std::span<uint8_t>) {
    stop.request_stop();
    return absl::OkStatus();
  });
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(store.Say("open"), "0");
}

TEST(S3Bucket, PartsFitTheirNumber) {
  EXPECT_EQ(PartBytes(1, 16 << 20), uint64_t{16} << 20);
  EXPECT_EQ(PartBytes(kMaxParts << 24, 16 << 20), uint64_t{16} << 20);
  EXPECT_EQ(PartBytes((kMaxParts << 24) + 1, 16 << 20), uint64_t{17} << 20);
  EXPECT_GE(PartBytes(uint64_t{5} << 40, 1) * kMaxParts, uint64_t{5} << 40);
  EXPECT_LE(PartBytes(uint64_t{5} << 40, 1), kMaxPartBytes);
}

// Keys that are replaced while the bucket is open.
TEST(S3Bucket, ReadsNewCredentials) {
  Double store;
  test::TempDir directory;
  const std::string path = directory / "credentials";
  const auto write = [&](const std::string& access, const std::string& secret) {
    std::ofstream(path + ".new") << "[default]\naws_access_key_id=" << access
                                 << "\naws_secret_access_key=" << secret
                                 << "\naws_session_token=" << kToken << "\n";
    std::filesystem::rename(path + ".new", path);
  };
  write(kAccess, kSecret);
  S3Place place = store.Place();
  place.credentials = {};
  place.watched = WatchS3CredentialFile(path);
  const auto bucket = ValueOf(OpenS3Bucket(std::move(place), Quick()));
  ASSERT_OK(bucket->Put("key", Bytes("1")));
  store.Say("credentials AKNEW another/secret");
  EXPECT_TRUE(absl::IsUnauthenticated(bucket->Put("key", Bytes("2"))));
  write("AKNEW", "another/secret");
  ASSERT_OK(bucket->Put("key", Bytes("3")));
  // Half written: those before stay, and an error says what is wrong.
  std::ofstream(path) << "[default]\naws_access_key_id=AKNEW2";
  ASSERT_OK(bucket->Put("key", Bytes("4")));
  store.Say("credentials AKNEW2 third");
  const absl::Status refused = bucket->Put("key", Bytes("5"));
  EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
  EXPECT_NE(refused.message().find("can't be read"), absl::string_view::npos) << refused;
  write("AKNEW2", "third");
  ASSERT_OK(bucket->Put("key", Bytes("6")));
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
  // Something else answers 200: nothing was stored, read or removed.
  store.Fault("page", "ANY", 1000);
  check("page", bucket->Put("key", Bytes("x")), kUnavailable);
  check("page",
        bucket->PutParts("key", 5, [](uint64_t, std::span<uint8_t>) { return absl::OkStatus(); }),
        kUnavailable);
  check("page", bucket->Get("key", 500).status(), kUnavailable);
  check("page", bucket->GetRange("key", 0, 5).status(), kFailedPrecondition);
  check("page", bucket->Size("key").status(), kUnavailable);
  check("page", bucket->Delete("key"), kUnavailable);
  EXPECT_FALSE(bucket->List("", [](const ObjectInfo&) { return absl::OkStatus(); }).ok());
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
  place.endpoint = "https://user:hunter2@host";
  const absl::Status named = OpenS3Bucket(std::move(place)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(named)) << named;
  EXPECT_EQ(named.message().find("hunter2"), absl::string_view::npos) << named;
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
