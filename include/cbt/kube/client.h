// A client of the Kubernetes API. Part of cbt::kube.
#ifndef CBT_KUBE_CLIENT_H_
#define CBT_KUBE_CLIENT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/kube/config.h"
#include "cbt/kube/object.h"
#include "cbt/secrets.h"
#include "cbt/units.h"
#include "cbt/version.h"

namespace cbt::kube {

// Called exactly once for each call, on the client's event thread, with the result or the error.
// Never runs inside the function that started the call, but may run in the event thread before that
// function has returned. It must not block: every other call of the client waits for it. Exceptions
// are dropped. It may start and cancel calls.
template <typename Result>
using ResultCallback = std::function<void(absl::StatusOr<Result>)>;
using StatusCallback = std::function<void(absl::Status)>;

// Refers to a call. Copies refer to the same one; dropping them does not cancel it. May outlive the
// client. Thread safe.
class Call {
 public:
  Call() = default;

  // The call ends with CANCELLED soon, unless it has ended or its result is on its way to `done`. A
  // request that the server has already got may still take effect.
  void Cancel() const;

 private:
  friend class CallState;
  explicit Call(std::weak_ptr<class CallState> state) : state_(std::move(state)) {}

  std::weak_ptr<class CallState> state_;
};

struct ClientOptions {
  // Most requests a second on average, and at once after a pause (a token bucket). Repetitions
  // count. What is over the limit waits, and its deadline runs meanwhile. Zero qps: no limit.
  double qps = 50;
  int burst = 100;

  // Deadline of a call that sets none, with its waits and repetitions.
  std::chrono::milliseconds timeout = std::chrono::seconds(30);
  // For the connection, TLS included; then the next attempt.
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(10);

  // Most bytes of an answer, unpacked. What is longer fails with RESOURCE_EXHAUSTED.
  size_t max_body = 16 * kMiB;

  // Requests on the wire at once, streams not counted; further ones wait in the order in which they
  // came. Of those at most `max_waiting`; a call beyond that fails with RESOURCE_EXHAUSTED.
  size_t max_in_flight = 128;
  size_t max_waiting = 10'000;

  // How often a request is repeated at most:
  // - after 429, and after a 5xx with Retry-After: the server has not acted on it. It waits as long
  //   as the server asks.
  // - after another 5xx, or trouble with the connection once the request may have arrived: only if
  //   doing it twice is the same as doing it once (reads, reviews, server-side apply), and at most
  //   three times.
  // Otherwise waits 0.1 s first and doubles that up to 5 s, less a random part of at most half. A
  // wait that the deadline does not allow is not begun: the call fails with what the server said.
  int max_retries = 10;

  // Sent as User-Agent, before the library's own name and version.
  std::string user_agent = {};
};

struct CallOptions {
  // Unset: ClientOptions::timeout. At most 24 hours.
  std::optional<std::chrono::milliseconds> timeout = {};
};

struct GetOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  // as of CallOptions
  // Empty: the newest state. "0": whatever the server has in its cache.
  std::string resource_version = {};
  std::string subresource = {};
};

struct ListOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  // as of CallOptions
  std::string label_selector = {};
  std::string field_selector = {};
  std::string resource_version = {};
  std::string resource_version_match = {};  // "Exact" or "NotOlderThan"
  // Most objects in an answer, or in a page of ListAll(); 0: all.
  int64_t limit = 0;
  // ObjectList::continue_token of the page before.
  std::string continue_token = {};
};

struct WriteOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  // as of CallOptions
  std::string field_manager = {};
  // The server checks and answers, and stores nothing.
  bool dry_run = false;
  // Unknown fields are errors instead of being dropped.
  bool strict_fields = false;
  // "status", for example: only that part is written.
  std::string subresource = {};
  // Create() with a subresource: the object that it belongs to.
  std::string name = {};
};

enum class PatchType {
  kMerge,      // application/merge-patch+json
  kJson,       // application/json-patch+json
  kStrategic,  // application/strategic-merge-patch+json; built-in types only
};

struct ApplyOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  // as of CallOptions
  std::string field_manager = {};                         // required
  // Takes over fields that another manager owns, instead of failing with ABORTED.
  bool force = false;
  bool dry_run = false;
  std::string subresource = {};
};

struct DeleteOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  // as of CallOptions
  // Preconditions; ABORTED if the object's do not match. Empty: not checked.
  std::string uid = {};
  std::string resource_version = {};
  // "Background", "Foreground" or "Orphan"; empty: the type's default.
  std::string propagation = {};
  std::optional<int64_t> grace_period_seconds = {};
  bool dry_run = false;
};

// Objects of one type.
struct ObjectList {
  std::vector<Object> items = {};
  // Of the whole list: where a watch begins.
  std::string resource_version = {};
  // Not empty: there is more, see ListOptions::continue_token.
  std::string continue_token = {};
};

// Any request, for what has no function of its own.
struct Request {
  std::string method = "GET";  // GET, HEAD, POST, PUT, PATCH or DELETE
  std::string path = {};       // "/version"; see ResourcePath()
  // Percent-encoded by the client.
  std::vector<std::pair<std::string, std::string>> query = {};
  std::string content_type = {};  // of the body
  std::string accept = "application/json";
  // Wiped after use.
  std::string body = {};
  // Sending it twice does no more than sending it once. GET and HEAD always count as
  // idempotent.
  bool repeatable = false;
};

struct Response {
  int http_code = 0;  // 200 to 299
  std::string content_type = {};
  std::string body = {};
};

// Options for a streamed response, such as a watch.
struct StreamCallOptions {
  // From the start until the response's head; unset: ClientOptions::timeout.
  std::optional<std::chrono::milliseconds> open_timeout = {};
  // For the whole response; unset: no limit.
  std::optional<std::chrono::milliseconds> timeout = {};
  // The longest silence after the head, then DEADLINE_EXCEEDED. Unset: no limit.
  std::optional<std::chrono::milliseconds> idle_timeout = {};
  // Most bytes of a line; a longer one ends the stream with RESOURCE_EXHAUSTED.
  size_t max_line = 16 * kMiB;
};

// Counts since the client was created.
struct ClientCounters {
  uint64_t calls = 0;        // started, streams included
  uint64_t requests = 0;     // sent, repetitions included
  uint64_t retries = 0;      // of these, the repetitions
  uint64_t connections = 0;  // opened
};

// A token for a service account, as Client::CreateToken returns it.
struct ServiceAccountToken {
  Secret token = {};
  Time expires = {};
};

struct TokenOptions {
  std::optional<std::chrono::milliseconds> timeout = {};  // as of CallOptions
  std::vector<std::string> audiences = {};                // empty: the API server itself
  // At least 600 s; the server may give less than what is asked for.
  std::chrono::seconds lifetime = std::chrono::seconds(3600);
};

// Talks to one API server, over HTTP/2 where the server has it, in one thread of its own. Thread
// safe; one client serves a whole program.
//
// Each function exists twice. FooAsync() returns at once and calls `done` once (see
// ResultCallback); arguments are copied where they are needed longer. Foo() does the same and waits, for
// programs and tests; in the client's own thread, that is in `done`, it fails with
// FAILED_PRECONDITION. Errors of both: those of cbt/kube/status.h, and INVALID_ARGUMENT for
// arguments that make no request.
//
// The typed forms take a struct of cbt/kube/typed_objects.h, or any type with a constant kResource, a
// static Decode() and, for writing, Encode(). If Decode() refuses an object, the call fails with
// UNAVAILABLE: the server is wrong.
class Client {
 public:
  // Reads the files that `config` names, and connects with the first call only.
  // Errors: INVALID_ARGUMENT for a configuration that can't work; those of reading files.
  static absl::StatusOr<std::unique_ptr<Client>> Create(Config config, ClientOptions options = {});

  // Cancels all calls, and those that a `done` still starts, and waits until every `done` has
  // returned. Must not run in one.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Config::name_space: the namespace for those who name none.
  const std::string& default_namespace() const noexcept;
  ClientCounters counters() const;

  // --- One object. `name_space` is empty for types without namespaces.

  Call GetAsync(const Resource& resource, std::string_view name_space, std::string_view name,
                const GetOptions& options, ResultCallback<Object> done);
  absl::StatusOr<Object> Get(const Resource& resource, std::string_view name_space,
                             std::string_view name, const GetOptions& options = {});

  // The namespace is the object's own. Returns what the server stored.
  // Not repeated once it may have arrived, except for reviews: after UNAVAILABLE the object may
  // exist.
  Call CreateAsync(const Resource& resource, const Object& object, const WriteOptions& options,
                   ResultCallback<Object> done);
  absl::StatusOr<Object> Create(const Resource& resource, const Object& object,
                                const WriteOptions& options = {});

  // Replaces the object that has the namespace, name and resource version of `object`; ABORTED if
  // it was changed since. Without a resource version: INVALID_ARGUMENT.
  Call UpdateAsync(const Resource& resource, const Object& object, const WriteOptions& options,
                   ResultCallback<Object> done);
  absl::StatusOr<Object> Update(const Resource& resource, const Object& object,
                                const WriteOptions& options = {});

  // `patch`: JSON, as its type wants it.
  Call PatchAsync(const Resource& resource, std::string_view name_space, std::string_view name,
                  PatchType type, std::string_view patch, const WriteOptions& options,
                  ResultCallback<Object> done);
  absl::StatusOr<Object> Patch(const Resource& resource, std::string_view name_space,
                               std::string_view name, PatchType type, std::string_view patch,
                               const WriteOptions& options = {});

  // Server-side apply: sets the given fields, creating the object if it does not exist. apiVersion
  // and kind are set from `resource` if they are absent; managedFields are left out.
  Call ApplyAsync(const Resource& resource, const Object& object, const ApplyOptions& options,
                  ResultCallback<Object> done);
  absl::StatusOr<Object> Apply(const Resource& resource, const Object& object,
                               const ApplyOptions& options);

  // OK: it is deleted, or will be once its finalizers are removed.
  Call DeleteAsync(const Resource& resource, std::string_view name_space, std::string_view name,
                   const DeleteOptions& options, StatusCallback done);
  absl::Status Delete(const Resource& resource, std::string_view name_space, std::string_view name,
                      const DeleteOptions& options = {});

  // --- Many objects. An empty `name_space` means every namespace. Elements have apiVersion and
  // kind even where the server leaves them out of lists.

  // One page.
  Call ListAsync(const Resource& resource, std::string_view name_space, const ListOptions& options,
                 ResultCallback<ObjectList> done);
  absl::StatusOr<ObjectList> List(const Resource& resource, std::string_view name_space,
                                  const ListOptions& options = {});

  // All pages, of 500 objects unless options.limit says otherwise. The timeout is for each page. If
  // the list becomes too old on the way (410), it is taken again as a whole, without pages, once:
  // the result is always one consistent list.
  Call ListAllAsync(const Resource& resource, std::string_view name_space,
                    const ListOptions& options, ResultCallback<ObjectList> done);
  absl::StatusOr<ObjectList> ListAll(const Resource& resource, std::string_view name_space,
                                     const ListOptions& options = {});

  // --- Tokens.

  Call CreateTokenAsync(std::string_view name_space, std::string_view service_account,
                        const TokenOptions& options, ResultCallback<ServiceAccountToken> done);
  absl::StatusOr<ServiceAccountToken> CreateToken(std::string_view name_space,
                                                  std::string_view service_account,
                                                  const TokenOptions& options = {});

  // --- Anything else.

  Call SendAsync(Request request, const CallOptions& options, ResultCallback<Response> done);
  absl::StatusOr<Response> Send(Request request, const CallOptions& options = {});

  // Called on the event thread for each line, without its newline; `line` is valid during the call.
  // It should be quick: what the server sends meanwhile waits in the socket. An error ends the
  // stream with it.
  using OnLine = std::function<absl::Status(std::string_view line)>;

  // Sends `request` and passes on its answer line by line as it comes. `on_open` (may be empty) is
  // called once, when a head with a code below 300 has come. `done` gets OK only if the answer
  // ended as HTTP ends one and with a complete line; a connection that broke is UNAVAILABLE. It is
  // not repeated: the reader knows where to go on. Only the wait for ClientOptions::qps, and one
  // more attempt after a 401, may come before it.
  Call StreamAsync(Request request, const StreamCallOptions& options, std::function<void()> on_open,
                   OnLine on_line, StatusCallback done);

  // --- Typed.

  template <typename T>
  Call GetAsync(std::string_view name_space, std::string_view name, const GetOptions& options,
                ResultCallback<T> done) {
    return GetAsync(T::kResource, name_space, name, options, Decoding<T>(std::move(done)));
  }
  template <typename T>
  absl::StatusOr<T> Get(std::string_view name_space, std::string_view name,
                        const GetOptions& options = {}) {
    return Decoded<T>(Get(T::kResource, name_space, name, options));
  }
  template <typename T>
  Call CreateAsync(const T& value, const WriteOptions& options, ResultCallback<T> done) {
    return CreateAsync(T::kResource, value.Encode(), options, Decoding<T>(std::move(done)));
  }
  template <typename T>
  absl::StatusOr<T> Create(const T& value, const WriteOptions& options = {}) {
    return Decoded<T>(Create(T::kResource, value.Encode(), options));
  }

 private:
  class Core;
  explicit Client(std::shared_ptr<Core> core);

  template <typename T>
  static absl::StatusOr<T> Decoded(absl::StatusOr<Object> object) {
    if (!object.ok()) return object.status();
    absl::StatusOr<T> value = T::Decode(*object);
    if (!value.ok()) return WrongObject(T::kResource, value.status());
    return value;
  }
  template <typename T>
  static ResultCallback<Object> Decoding(ResultCallback<T> done) {
    return [done = std::move(done)](absl::StatusOr<Object> object) {
      // Without memory too, `done` is called.
      absl::StatusOr<T> value = absl::Status(absl::StatusCode::kResourceExhausted, "");
      try {
        value = Decoded<T>(std::move(object));
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the error stands
      }
      done(std::move(value));
    };
  }
  static absl::Status WrongObject(const Resource& resource, const absl::Status& error);
  static absl::StatusOr<ServiceAccountToken> TokenOf(const absl::StatusOr<Object>& answer);

  std::shared_ptr<Core> core_;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_H_
