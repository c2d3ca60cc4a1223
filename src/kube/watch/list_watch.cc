#include "kube/watch/list_watch.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cbt/kube/status.h"
#include "kube/watch/back_off.h"
#include "kube/watch/pruned_object.h"

namespace cbt::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How much longer than asked for a watch may take before it counts as lost.
constexpr auto kEndOfWatch = seconds(30);
// Histories that expire again sooner are no accident.
constexpr auto kExpiredAgain = seconds(30);
// A watch that ends sooner was not worth its request, however it ended.
constexpr auto kShortWatch = seconds(1);

absl::Status WrongList(const WatchTarget& target, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat("list of ", target.plural, ": ", what));
}

absl::Status TooMany(const WatchTarget& target, size_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("list of ", target.plural, ": more than ", limit, " objects"));
}

absl::Status TooLarge(const WatchTarget& target, size_t limit) {
  return absl::ResourceExhaustedError(
      absl::StrCat("list of ", target.plural, ": more than ", limit, " bytes"));
}

// What is thrown here is a lack of memory, or comes from an index function.
template <typename Work>
absl::Status Guarded(const WatchTarget& target, Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("watch of ", target.plural, ": ", error.what()));
  } catch (...) {
    return absl::ResourceExhaustedError(absl::StrCat("watch of ", target.plural, ": exception"));
  }
}

}  // namespace

ListWatch::ListWatch(Client& client, const WatchTarget& target, const CacheOptions& options,
                     ChangeSink& sink)
    : client_(client),
      target_(target),
      options_(options),
      sink_(sink),
      stream_lists_(options.streaming_list) {
  state_.broken_since = Clock::now();
}

void ListWatch::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ListWatch::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

CacheState ListWatch::state() const {
  std::lock_guard lock(mutex_);
  return state_;
}

absl::Status ListWatch::WaitForSync(milliseconds timeout) const {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, timeout, [this] { return state_.synced; })) return absl::OkStatus();
  return absl::DeadlineExceededError(absl::StrCat("no list of ", target_.plural, " yet",
                                                  state_.error.ok() ? "" : ": ",
                                                  state_.error.message()));
}

absl::Status ListWatch::CheckFresh(milliseconds max_broken) const {
  std::lock_guard lock(mutex_);
  if (state_.synced &&
      (!state_.broken_since.has_value() || Clock::now() - *state_.broken_since <= max_broken)) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat(state_.synced ? "no watch of " : "no list of ",
                                             target_.plural, state_.error.ok() ? "" : ": ",
                                             state_.error.message()));
}

void ListWatch::Run() {
  BackOff back_off(options_.back_off);
  if (options_.resync > milliseconds(0)) next_resync_ = Clock::now() + options_.resync;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const absl::Status status = Guarded(target_, [this] { return Step(); });
    lock.lock();
    if (status.ok() || stopping_) continue;
    state_.error = status;
    const Clock::time_point now = Clock::now();
    // The server is there and asks for a new list: waits that grew while it was away are over. A
    // server that only ever says so is asked as seldom as one that fails.
    if (IsExpired(status) && !RetryAfterOf(status).has_value() &&
        now - std::exchange(last_expired_, now) >= kExpiredAgain) {
      continue;
    }
    const milliseconds wait =
        std::max(back_off.Next(now), RetryAfterOf(status).value_or(milliseconds(0)));
    Wait(lock, now + wait, [] { return false; });
  }
}

void ListWatch::Wait(std::unique_lock<std::mutex>& lock, std::optional<Clock::time_point> until,
                     const std::function<bool()>& ready) {
  for (;;) {
    if (stopping_ || ready()) return;
    const Clock::time_point now = Clock::now();
    if (until.has_value() && now >= *until) return;
    if (next_resync_.has_value() && now >= *next_resync_) {
      next_resync_ = now + options_.resync;
      if (!state_.synced) continue;
      lock.unlock();
      sink_.Resync();
      lock.lock();
      continue;
    }
    std::optional<Clock::time_point> next = until;
    if (next_resync_.has_value() && (!next.has_value() || *next_resync_ < *next)) {
      next = next_resync_;
    }
    if (next.has_value()) {
      changed_.wait_until(lock, *next);
    } else {
      changed_.wait(lock);
    }
  }
}

absl::Status ListWatch::Step() {
  if (!need_list_) return Watch(/*with_list=*/false);
  if (stream_lists_) return Watch(/*with_list=*/true);
  const absl::Status status = TakePages();
  // Pages that expire while they are read do so again. The whole list at once can't expire.
  in_pages_ = !IsExpired(status);
  return status;
}

void ListWatch::Listed(std::string resource_version) {
  state_.resource_version = std::move(resource_version);
  state_.last_heard = Clock::now();
  state_.synced = true;
  ++state_.lists;
  changed_.notify_all();
}

void ListWatch::Watching() {
  ++state_.watches;
  state_.broken_since.reset();
  state_.last_heard = Clock::now();
  state_.error = absl::OkStatus();
}

absl::Status ListWatch::TakePage(ListOptions options, ObjectList& page) {
  // Lives until the call has ended, which this function waits for.
  struct Answer {
    bool ended = false;
    absl::StatusOr<ObjectList> list = absl::CancelledError("stopped");
  } answer;
  const Call call = client_.ListAsync(target_.resource(), target_.name_space, options,
                                      [this, &answer](absl::StatusOr<ObjectList> list) {
                                        std::lock_guard lock(mutex_);
                                        answer.list = std::move(list);
                                        answer.ended = true;
                                        changed_.notify_all();
                                      });
  std::unique_lock lock(mutex_);
  Wait(lock, std::nullopt, [&] { return answer.ended; });
  if (!answer.ended) {
    lock.unlock();
    call.Cancel();
    lock.lock();
    changed_.wait(lock, [&] { return answer.ended; });
  }
  if (!answer.list.ok()) return answer.list.status();
  page = *std::move(answer.list);
  return absl::OkStatus();
}

absl::Status ListWatch::TakePages() {
  // No resource version: the newest state, so that a list never shows what was before another one.
  ListOptions options;
  options.timeout = options_.list_timeout;
  options.label_selector = options_.label_selector;
  options.field_selector = options_.field_selector;
  options.limit = in_pages_ ? options_.page_size : 0;
  const Clock::time_point began = Clock::now();
  ObjectMap<Object> objects;
  std::string resource_version;
  size_t bytes = 0;
  do {
    ObjectList page;
    if (absl::Status status = TakePage(options, page); !status.ok()) return status;
    if (page.resource_version.empty()) return WrongList(target_, "no resource version");
    // The first page's version: the watch repeats the changes since.
    if (resource_version.empty()) resource_version = page.resource_version;
    for (Object& object : page.items) {
      if (absl::Status status = CheckObject(target_, object); !status.ok()) return status;
      if (!Prune(options_, object)) continue;
      bytes += KeptBytes(options_, object);
      if (bytes > options_.max_bytes) return TooLarge(target_, options_.max_bytes);
      ObjectKey key = KeyOf(object);
      objects.insert_or_assign(std::move(key), std::move(object));
    }
    if (objects.size() > options_.max_objects) return TooMany(target_, options_.max_objects);
    if (page.items.empty() && !page.continue_token.empty()) {
      return WrongList(target_, "an empty page that is not the last");
    }
    options.continue_token = std::move(page.continue_token);
  } while (!options.continue_token.empty());
  sink_.Replace(std::move(objects));
  need_list_ = false;
  std::lock_guard lock(mutex_);
  Listed(std::move(resource_version));
  // Changes since then are not known yet.
  state_.broken_since = began;
  return absl::OkStatus();
}

Request ListWatch::WatchRequest(bool with_list, seconds length) const {
  Request request;
  request.method = "GET";
  request.query = {{"watch", "1"}, {"allowWatchBookmarks", "true"}};
  if (with_list) {
    request.query.emplace_back("sendInitialEvents", "true");
    request.query.emplace_back("resourceVersionMatch", "NotOlderThan");
  } else {
    std::lock_guard lock(mutex_);
    request.query.emplace_back("resourceVersion", state_.resource_version);
  }
  request.query.emplace_back("timeoutSeconds", absl::StrCat(length.count()));
  if (!options_.label_selector.empty()) {
    request.query.emplace_back("labelSelector", options_.label_selector);
  }
  if (!options_.field_selector.empty()) {
    request.query.emplace_back("fieldSelector", options_.field_selector);
  }
  return request;
}

absl::Status ListWatch::Watch(bool with_list) {
  absl::StatusOr<std::string> path = ResourcePath(target_.resource(), target_.name_space);
  if (!path.ok()) return path.status();
  const seconds length(std::uniform_int_distribution<int64_t>(options_.min_watch.count(),
                                                              options_.max_watch.count())(random_));
  Request request = WatchRequest(with_list, length);
  request.path = *std::move(path);
  StreamCallOptions limits;
  limits.timeout = length + kEndOfWatch;
  limits.idle_timeout = options_.silence;
  // An event is an object and some words.
  limits.max_line = options_.max_object_bytes + 4 * kKiB;

  // Lives until the call has ended, which this function waits for.
  Stream stream;
  stream.collecting = with_list;
  const Clock::time_point began = Clock::now();
  stream.heard = began;
  const Call call = client_.StreamAsync(
      std::move(request), limits, [this, &stream] { OnOpen(stream); },
      [this, &stream](std::string_view line) { return OnLine(stream, line); },
      [this, &stream](absl::Status status) {
        std::lock_guard lock(mutex_);
        stream.status = std::move(status);
        stream.ended = true;
        if (!state_.broken_since.has_value()) state_.broken_since = Clock::now();
        changed_.notify_all();
      });
  std::unique_lock lock(mutex_);
  bool too_slow = false;
  while (!stream.ended) {
    // A list that stops in the middle is not worth a whole watch's wait_limit.
    std::optional<Clock::time_point> until;
    if (stream.collecting) until = stream.heard + options_.list_timeout;
    Wait(lock, until, [&] { return stream.ended || stream.collecting != until.has_value(); });
    if (stream.ended) break;
    too_slow = stream.collecting && Clock::now() >= stream.heard + options_.list_timeout;
    if (!stopping_ && !too_slow) continue;
    lock.unlock();
    call.Cancel();
    lock.lock();
    changed_.wait(lock, [&] { return stream.ended; });
  }

  if (with_list && stream.collecting) {
    // Refused as such, or taken for an ordinary watch: from now on pages, at once.
    if (stream.no_list || too_slow || absl::IsInvalidArgument(stream.status)) {
      stream_lists_ = false;
      return absl::OkStatus();
    }
    return stream.status.ok() ? WrongList(target_, "the stream ended before the list was complete")
                              : stream.status;
  }
  if (with_list) need_list_ = false;
  if (stream.list_again || IsExpired(stream.status)) need_list_ = true;
  if (!stream.status.ok()) return stream.status;
  if (Clock::now() - began < kShortWatch) {
    return absl::UnavailableError(
        absl::StrCat("watch of ", target_.plural, ": the server ended it at once"));
  }
  return absl::OkStatus();
}

void ListWatch::OnOpen(Stream& stream) {
  std::lock_guard lock(mutex_);
  stream.heard = Clock::now();
  // Before its list is complete, a stream says nothing about what the cache has.
  if (!stream.collecting) Watching();
}

absl::Status ListWatch::OnLine(Stream& stream, std::string_view line) {
  const absl::Status status = Guarded(target_, [&]() -> absl::Status {
    absl::StatusOr<WatchEvent> event = DecodeWatchEvent(target_, line);
    if (!event.ok()) return event.status();
    // What a cache leaves out is no longer there for it.
    if (event->type != WatchEvent::Type::kBookmark && !Prune(options_, event->object)) {
      event->type = WatchEvent::Type::kDeleted;
    }
    if (stream.collecting) return OnCollected(stream, *std::move(event));
    std::string resource_version(event->object.resource_version());
    const bool bookmark = event->type == WatchEvent::Type::kBookmark;
    if (!bookmark) {
      if (absl::Status applied = sink_.Apply(*std::move(event)); !applied.ok()) return applied;
    }
    std::lock_guard lock(mutex_);
    if (!bookmark) ++state_.events;
    state_.resource_version = std::move(resource_version);
    state_.last_heard = Clock::now();
    return absl::OkStatus();
  });
  // The state that the server means can't be known any more.
  if (!status.ok()) stream.list_again = true;
  return status;
}

absl::Status ListWatch::OnCollected(Stream& stream, WatchEvent event) {
  {
    std::lock_guard lock(mutex_);
    stream.heard = Clock::now();
  }
  if (event.type == WatchEvent::Type::kDeleted) {
    const auto at =
        stream.collected.find(ObjectKeyView{event.object.name_space(), event.object.name()});
    if (at != stream.collected.end()) stream.collected.erase(at);
    return absl::OkStatus();
  }
  if (event.type != WatchEvent::Type::kBookmark) {
    stream.bytes += KeptBytes(options_, event.object);
    if (stream.bytes > options_.max_bytes) return TooLarge(target_, options_.max_bytes);
    ObjectKey key = KeyOf(event.object);
    stream.collected.insert_or_assign(std::move(key), std::move(event.object));
    if (stream.collected.size() <= options_.max_objects) return absl::OkStatus();
    return TooMany(target_, options_.max_objects);
  }
  if (!event.initial_events_end) {
    // A server that does not know the question sends ordinary bookmarks.
    stream.no_list = true;
    return WrongList(target_, "not sent as events");
  }
  sink_.Replace(std::exchange(stream.collected, {}));
  std::lock_guard lock(mutex_);
  Listed(std::string(event.object.resource_version()));
  Watching();
  stream.collecting = false;
  return absl::OkStatus();
}

}  // namespace cbt::kube
