// Options of a Client and of its calls. Part of cbt::kube.
#ifndef CBT_KUBE_OPTIONS_H_
#define CBT_KUBE_OPTIONS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cbt/kube/object.h"
#include "cbt/units.h"
#include "cbt/version.h"

namespace cbt::kube {

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
  // Most objects of an answer; 0: all. ListAll: of a page.
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
  // Of Create with a subresource: the object that it belongs to.
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
  // Only this very object and state: otherwise ABORTED.
  std::string uid = {};
  std::string resource_version = {};
  std::string propagation =
      {};  // "Background", "Foreground" or "Orphan"; empty: the type's default
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
  // Sending it twice does no more than sending it once. GET and HEAD are always taken so.
  bool repeatable = false;
};

struct Response {
  int http_code = 0;  // 200 to 299
  std::string content_type = {};
  std::string body = {};
};

// Of a request whose answer has no end of its own, a watch for example.
struct StreamOptions {
  // From the start until the answer's head; unset: ClientOptions::timeout.
  std::optional<std::chrono::milliseconds> open_timeout = {};
  // For the whole; unset: no limit.
  std::optional<std::chrono::milliseconds> timeout = {};
  // Longest silence after the head; then DEADLINE_EXCEEDED. Unset: no limit.
  std::optional<std::chrono::milliseconds> idle_timeout = {};
  // Most bytes of a line; a longer one ends the stream with RESOURCE_EXHAUSTED.
  size_t max_line = 16 * kMiB;
};

}  // namespace cbt::kube

#endif  // CBT_KUBE_OPTIONS_H_
