// A client of the Kubernetes API. Part of cbt::kube.
#ifndef CBT_KUBE_CLIENT_H_
#define CBT_KUBE_CLIENT_H_

#include <chrono>
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
#include "cbt/kube/call.h"
#include "cbt/kube/config.h"
#include "cbt/kube/object.h"
#include "cbt/kube/options.h"
#include "cbt/kube/resource.h"
#include "cbt/secrets.h"
#include "cbt/version.h"

namespace cbt::kube {

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
// Each function exists twice. FooAsync() returns at once and calls `done` once (call.h has the
// rules); arguments are copied where they are needed longer. Foo() does the same and waits, for
// programs and tests; in the client's own thread, that is in `done`, it fails with
// FAILED_PRECONDITION. Errors of both: those of cbt/kube/status.h, and INVALID_ARGUMENT for
// arguments that make no request.
//
// The typed forms take a struct of cbt/kube/reviews.h, snapshots.h or core_objects.h, or any type
// that has a constant kResource and a static function Decode(), and for what is written Encode(),
// as those have. An object that Decode() refuses makes the call fail with UNAVAILABLE: the server
// is wrong.
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
                const GetOptions& options, Done<Object> done);
  absl::StatusOr<Object> Get(const Resource& resource, std::string_view name_space,
                             std::string_view name, const GetOptions& options = {});

  // The namespace is the object's own. Returns what the server stored.
  // Not repeated once it may have arrived, except for reviews: after UNAVAILABLE the object may
  // exist.
  Call CreateAsync(const Resource& resource, const Object& object, const WriteOptions& options,
                   Done<Object> done);
  absl::StatusOr<Object> Create(const Resource& resource, const Object& object,
                                const WriteOptions& options = {});

  // Replaces the object that has the namespace, name and resource version of `object`; ABORTED if
  // it was changed since. Without a resource version: INVALID_ARGUMENT.
  Call UpdateAsync(const Resource& resource, const Object& object, const WriteOptions& options,
                   Done<Object> done);
  absl::StatusOr<Object> Update(const Resource& resource, const Object& object,
                                const WriteOptions& options = {});

  // `patch`: JSON, as its type wants it.
  Call PatchAsync(const Resource& resource, std::string_view name_space, std::string_view name,
                  PatchType type, std::string_view patch, const WriteOptions& options,
                  Done<Object> done);
  absl::StatusOr<Object> Patch(const Resource& resource, std::string_view name_space,
                               std::string_view name, PatchType type, std::string_view patch,
                               const WriteOptions& options = {});

  // Server-side apply: makes the fields of `object` so, creating it if need be. apiVersion and kind
  // are set from `resource` if they are absent; managedFields are left out.
  Call ApplyAsync(const Resource& resource, const Object& object, const ApplyOptions& options,
                  Done<Object> done);
  absl::StatusOr<Object> Apply(const Resource& resource, const Object& object,
                               const ApplyOptions& options);

  // OK: it is gone, or is going once its finalizers are gone.
  Call DeleteAsync(const Resource& resource, std::string_view name_space, std::string_view name,
                   const DeleteOptions& options, DoneStatus done);
  absl::Status Delete(const Resource& resource, std::string_view name_space, std::string_view name,
                      const DeleteOptions& options = {});

  // --- Many objects. An empty `name_space` means every namespace. Elements have apiVersion and
  // kind even where the server leaves them out of lists.

  // One page.
  Call ListAsync(const Resource& resource, std::string_view name_space, const ListOptions& options,
                 Done<ObjectList> done);
  absl::StatusOr<ObjectList> List(const Resource& resource, std::string_view name_space,
                                  const ListOptions& options = {});

  // All pages, of 500 objects unless options.limit says otherwise. The timeout is for each page. If
  // the list becomes too old on the way (410), it is taken again as a whole, without pages, once:
  // the result is always one consistent list.
  Call ListAllAsync(const Resource& resource, std::string_view name_space,
                    const ListOptions& options, Done<ObjectList> done);
  absl::StatusOr<ObjectList> ListAll(const Resource& resource, std::string_view name_space,
                                     const ListOptions& options = {});

  // --- Tokens.

  Call CreateTokenAsync(std::string_view name_space, std::string_view service_account,
                        const TokenOptions& options, Done<ServiceAccountToken> done);
  absl::StatusOr<ServiceAccountToken> CreateToken(std::string_view name_space,
                                                  std::string_view service_account,
                                                  const TokenOptions& options = {});

  // --- Anything else.

  Call SendAsync(Request request, const CallOptions& options, Done<Response> done);
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
  Call StreamAsync(Request request, const StreamOptions& options, std::function<void()> on_open,
                   OnLine on_line, DoneStatus done);

  // --- Typed.

  template <typename T>
  Call GetAsync(std::string_view name_space, std::string_view name, const GetOptions& options,
                Done<T> done) {
    return GetAsync(T::kResource, name_space, name, options, Decoding<T>(std::move(done)));
  }
  template <typename T>
  absl::StatusOr<T> Get(std::string_view name_space, std::string_view name,
                        const GetOptions& options = {}) {
    return Decoded<T>(Get(T::kResource, name_space, name, options));
  }
  template <typename T>
  Call CreateAsync(const T& value, const WriteOptions& options, Done<T> done) {
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
  static Done<Object> Decoding(Done<T> done) {
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
