// Memory runs out in cbt::kube, at every allocation, RapidJSON's included: decoders find the same
// or fail, and a call of the client ends with the whole answer or with an error.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cbt/kube/client.h"
#include "cbt/kube/object.h"
#include "cbt/kube/status.h"
#include "cbt/kube/typed_objects.h"
#include "kube/client/answer.h"
#include "kube/client/exec_plugin.h"
#include "kube/client/kubeconfig.h"
#include "kube/watch/watch_event.h"
#include "tests/faults/support/failing_memory.h"
#include "tests/kube/support/fake_api.h"
#include "tests/support/status.h"

namespace cbt::kube {
namespace memory_kube_test {

using test::FailAllocation;
using test::FailEveryAllocation;
using test::Found;
using test::ValueOf;

// Texts that no string or value holds in itself.
constexpr std::string_view kObject =
    R"({"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshotContent",)"
    R"("metadata":{"name":"a-content-with-a-long-name","uid":"a-uid-that-takes-memory-of-its-own",)"
    R"("resourceVersion":"123456789012345678901234567890","labels":{"a-label-with-a-long-name":"a value as long as that"},)"
    R"("managedFields":[{"fieldsV1":{"f:status":{"f:a-field-with-a-long-name":{}}}},{}]},)"
    R"("spec":{"driver":"a-driver-with-a-long-name.example.com","deletionPolicy":"Delete",)"
    R"("volumeSnapshotClassName":"a-class-with-a-long-name","source":{"volumeHandle":"a-volume-with-a-long-name"},)"
    R"("volumeSnapshotRef":{"namespace":"a-namespace-with-a-long-name","name":"a-snapshot-with-a-long-name","uid":"another-uid-that-takes-memory"}},)"
    R"("status":{"snapshotHandle":"a-handle-with-a-long-name","creationTime":1700000000000000000,"readyToUse":true}})";

Found Bytes(std::string_view text) { return std::vector<uint8_t>(text.begin(), text.end()); }

// What is decoded, as it is encoded again; nothing if that is not the whole.
template <typename T>
void Decodes(std::string_view json) {
  SCOPED_TRACE(std::string(json));
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              const absl::StatusOr<Object> object = Object::Parse(json);
              if (!object.ok()) return std::nullopt;
              const absl::StatusOr<T> value = T::Decode(*object);
              if (!value.ok()) return std::nullopt;
              return Bytes(value->Encode().ToJson());
            }),
            5);
}

TEST(KubeOutOfMemory, Objects) {
  EXPECT_GT(FailEveryAllocation([]() -> Found {
              const absl::StatusOr<Object> object = Object::Parse(kObject);
              if (!object.ok()) return std::nullopt;
              Object copy = *object;
              copy.SetString({"spec", "something", "new"}, "a text that takes memory of its own");
              return Bytes(copy.ToJson());
            }),
            40);
}

TEST(KubeOutOfMemory, TypedObjects) {
  Decodes<VolumeSnapshotContent>(kObject);
  Decodes<VolumeSnapshot>(
      R"({"metadata":{"name":"a-snapshot-with-a-long-name","namespace":"a-namespace-with-a-long-name"},)"
      R"("spec":{"source":{"persistentVolumeClaimName":"a-claim-with-a-long-name"}},)"
      R"("status":{"boundVolumeSnapshotContentName":"a-content-with-a-long-name","readyToUse":true}})");
  Decodes<VolumeSnapshotClass>(
      R"({"metadata":{"name":"a-class-with-a-long-name"},"driver":"a-driver-with-a-long-name.example.com",)"
      R"("deletionPolicy":"Delete","parameters":{"a-parameter-with-a-long-name":"and a value as long"}})");
  Decodes<SnapshotMetadataService>(
      R"({"metadata":{"name":"a-driver-with-a-long-name"},"spec":{"audience":"an-audience-with-a-long-name",)"
      R"("address":"a-service-with-a-long-name:6443","caCert":"UEVNIHdpdGggbWFueSBjaGFyYWN0ZXJz"}})");
  Decodes<TokenReview>(
      R"({"spec":{"token":"a-token-that-takes-memory-of-its-own","audiences":["an-audience-with-a-long-name"]},)"
      R"("status":{"authenticated":true,"audiences":["an-audience-with-a-long-name"],"user":{"username":"system:serviceaccount:a:client",)"
      R"("groups":["a-group-with-a-long-name"],"extra":{"a-key-with-a-long-name":["and a value as long"]}}}})");
  Decodes<SubjectAccessReview>(
      R"({"spec":{"user":"a-user-with-a-very-long-name","resourceAttributes":{"verb":"get","namespace":"a-namespace-with-a-long-name"}},)"
      R"("status":{"allowed":true,"reason":"a reason that takes memory of its own"}})");
  Decodes<SelfSubjectReview>(
      R"({"status":{"userInfo":{"username":"a-user-with-a-very-long-name"}}})");
  Decodes<TokenRequest>(
      R"({"spec":{"audiences":["an-audience-with-a-long-name"],"expirationSeconds":600},)"
      R"("status":{"token":"a-token-that-takes-memory-of-its-own","expirationTimestamp":"2030-01-01T00:00:00Z"}})");
  Decodes<SecretObject>(
      R"({"metadata":{"name":"a-secret-with-a-long-name"},"data":{"a-key-with-a-long-name":"YSBzZWNyZXQgdGhhdCBpcyBsb25nIGVub3VnaA=="}})");
  Decodes<ConfigMap>(
      R"({"metadata":{"name":"a-map-with-a-long-name"},"data":{"a-key-with-a-long-name":"and a value as long"}})");
  Decodes<Lease>(
      R"({"metadata":{"name":"a-lease-with-a-long-name"},"spec":{"holderIdentity":"a-holder-with-a-long-name","leaseDurationSeconds":15}})");
}

TEST(KubeOutOfMemory, Answers) {
  const std::string list =
      R"({"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"12","continue":"a-token-that-takes-memory"},)"
      R"("items":[{"metadata":{"name":"a-map-with-a-long-name"}},{"metadata":{"name":"another-map-with-a-long-name"}}]})";
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              Answer answer;
              answer.http_code = 200;
              answer.body.Append(list);
              const absl::StatusOr<ObjectList> objects =
                  ListOf(answer, {.what = "GET /x", .api_version = "v1", .kind = "ConfigMap"});
              if (!objects.ok()) return std::nullopt;
              std::string text = objects->resource_version + objects->continue_token;
              for (const Object& item : objects->items) text += item.ToJson();
              return Bytes(text);
            }),
            20);
  constexpr std::string_view kStatus =
      R"({"kind":"Status","apiVersion":"v1","status":"Failure","message":"a message that takes memory of its own",)"
      R"("reason":"NotFound","code":404})";
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              Answer answer;
              answer.http_code = 404;
              answer.body.Append(kStatus);
              const absl::Status error = ErrorOf(answer, "GET /x");
              // Whatever is missing, it is an error.
              EXPECT_FALSE(error.ok());
              if (HttpCodeOf(error) != 404 || ReasonOf(error) != "NotFound") return std::nullopt;
              if (std::string(error.message()).find("memory of its own") == std::string::npos) {
                return std::nullopt;
              }
              return Bytes("");
            }),
            5);
}

TEST(KubeOutOfMemory, LinesOfWatches) {
  const std::string line = R"({"type":"ADDED","object":)" + std::string(kObject) + "}";
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              const WatchTarget target(kVolumeSnapshotContents, "");
              const absl::StatusOr<WatchEvent> event = DecodeWatchEvent(target, line);
              if (!event.ok()) return std::nullopt;
              EXPECT_EQ(event->type, WatchEvent::Type::kAdded);
              return Bytes(event->object.ToJson());
            }),
            30);
}

TEST(KubeOutOfMemory, Configurations) {
  constexpr std::string_view kFile =
      "apiVersion: v1\nkind: Config\ncurrent-context: a-context-with-a-long-name\n"
      "clusters:\n- name: a-cluster-with-a-long-name\n  cluster: {server: "
      "\"https://a-server-with-a-long-name:6443\"}\n"
      "users:\n- name: a-user-with-a-very-long-name\n  user: {token: "
      "a-token-that-takes-memory-of-its-own}\n"
      "contexts:\n- name: a-context-with-a-long-name\n"
      "  context: {cluster: a-cluster-with-a-long-name, user: a-user-with-a-very-long-name}\n";
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              const absl::StatusOr<Config> config = ParseKubeconfig({{"/dir/config", kFile}}, "");
              if (!config.ok()) return std::nullopt;
              return Bytes(config->server + std::string(config->token.Reveal()));
            }),
            50);
  constexpr std::string_view kCredential =
      R"({"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",)"
      R"("status":{"token":"a-token-that-takes-memory-of-its-own","expirationTimestamp":"2030-01-01T00:00:00Z"}})";
  EXPECT_GT(FailEveryAllocation([&]() -> Found {
              const absl::StatusOr<PluginCredentials> made = ParseExecCredential(
                  {.api_version = "client.authentication.k8s.io/v1"}, kCredential);
              if (!made.ok()) return std::nullopt;
              return Bytes(made->token.Reveal());
            }),
            5);
}

// An API server in a process of its own, which has all the memory that it wants.
class FakeApiProcess {
 public:
  FakeApiProcess() {
    std::array<int, 2> there{};
    std::array<int, 2> back{};
    if (pipe(there.data()) != 0 || pipe(back.data()) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      close(there[1]);
      close(back[0]);
      {
        test::FakeApi api;
        api.Put("a-namespace", "a-map-with-a-long-name", "a value that takes memory of its own");
        const std::string url = api.url();
        if (write(back[1], url.data(), url.size()) != static_cast<ssize_t>(url.size())) _exit(1);
        close(back[1]);
        char end = 0;
        while (read(there[0], &end, 1) > 0) {
        }
      }
      _exit(0);
    }
    close(there[0]);
    close(back[1]);
    end_ = there[1];
    std::array<char, 100> text{};
    for (ssize_t size = 0; (size = read(back[0], text.data(), text.size())) > 0;) {
      url_.append(text.data(), static_cast<size_t>(size));
    }
    close(back[0]);
  }
  ~FakeApiProcess() {
    close(end_);
    waitpid(pid_, nullptr, 0);
  }
  FakeApiProcess(const FakeApiProcess&) = delete;
  FakeApiProcess& operator=(const FakeApiProcess&) = delete;

  const std::string& url() const noexcept { return url_; }

 private:
  pid_t pid_ = -1;
  int end_ = -1;
  std::string url_;
};

struct Outcome {
  absl::StatusCode code = absl::StatusCode::kUnknown;
  bool whole = false;
};

Outcome ListOnce(Client& client) {
  Outcome outcome;
  try {
    const absl::StatusOr<ObjectList> list = client.ListAll(kConfigMaps, "");
    outcome.code = list.status().code();
    outcome.whole =
        list.ok() && list->items.size() == 1 && list->items[0].name() == "a-map-with-a-long-name";
  } catch (const std::bad_alloc&) {
    outcome.code = absl::StatusCode::kResourceExhausted;
  }
  return outcome;
}

TEST(KubeOutOfMemory, ACallOfTheClient) {
  const FakeApiProcess api;
  Config config;
  config.server = api.url();
  ClientOptions options;
  options.qps = 0;
  options.timeout = std::chrono::seconds(20);
  const std::unique_ptr<Client> client = ValueOf(Client::Create(std::move(config), options));
  ASSERT_TRUE(ListOnce(*client).whole);
  for (const bool all_after : {false, true}) {
    for (int64_t n = 1;; ++n) {
      ASSERT_LT(n, 10'000);
      Outcome outcome;
      bool failed = false;
      {
        const FailAllocation fails(n, all_after);
        outcome = ListOnce(*client);
        failed = fails.has_failed();
      }
      EXPECT_EQ(outcome.code == absl::StatusCode::kOk, outcome.whole) << "at allocation " << n;
      EXPECT_NE(outcome.code, absl::StatusCode::kDeadlineExceeded) << "at allocation " << n;
      if (!failed) {
        EXPECT_TRUE(outcome.whole);
        EXPECT_GT(n, 30);
        break;
      }
      // The client goes on.
      ASSERT_TRUE(ListOnce(*client).whole) << "after allocation " << n;
      if (HasFailure()) return;
    }
  }
}

}  // namespace memory_kube_test
}  // namespace cbt::kube
