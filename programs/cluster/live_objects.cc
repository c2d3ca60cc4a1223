#include "programs/cluster/live_objects.h"

#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

#include "cbt/kube/status.h"
#include "programs/cluster/kept_fields.h"

namespace cbt::kube::cluster {
namespace {

// More answers to a search than this are a mistake in the objects.
constexpr size_t kMaxFound = 64;

// What searches of a type look for.
std::string SearchKeyOf(const VolumeSnapshotContent& content) {
  return content.status.has_value() ? content.status->snapshot_handle.value_or("") : "";
}
std::string SearchKeyOf(const VolumeSnapshotClass& one) { return one.driver; }

}  // namespace

bool IsContentOf(const VolumeSnapshotContent& content, const std::string& driver,
                 const std::string& handle) {
  return content.driver == driver && content.status.has_value() &&
         content.status->snapshot_handle == handle;
}

bool IsDefaultFor(const VolumeSnapshotClass& one, const std::string& driver) {
  return one.driver == driver && one.IsDefault();
}

absl::Status LiveObjects::Failed(const char* what, const absl::Status& error) {
  if (absl::IsNotFound(error)) return absl::NotFoundError("");
  log_.Failed("API request failed", error, {{.key = "object", .value = what}});
  return absl::UnavailableError("the API server can't be asked now");
}

template <typename T>
void LiveObjects::Get(const std::string& name_space, const std::string& name, Found<T> found) {
  GetOptions options;
  options.timeout = timeout_;
  client_.GetAsync<T>(name_space, name, options,
                      [this, found = std::move(found)](absl::StatusOr<T> object) {
                        if (!object.ok()) {
                          return found(Failed(T::kResource.kind.data(), object.status()));
                        }
                        found(std::move(object));
                      });
}

template <typename T>
void LiveObjects::Find(Queue<T>& queue, const std::string& key,
                       std::function<bool(const T&)> wanted, Found<std::vector<T>> found) {
  {
    const std::lock_guard lock(queue.mutex);
    queue.waiting.emplace(
        key, Search<T>{.wanted = std::move(wanted), .found = std::move(found), .matches = {}});
    if (std::exchange(queue.listing, true)) return;
  }
  StartList(queue);
}

template <typename T>
struct LiveObjects::List {
  List(LiveObjects& its_owner, Queue<T>& its_queue) : owner(its_owner), queue(its_queue) {}
  ~List() {
    // None is left unless memory ran out.
    End(absl::Status(absl::StatusCode::kUnavailable, ""));
    owner.StartList(queue);
  }
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  // Answers the searches; OK: the list is complete.
  void End(const absl::Status& status) noexcept {
    while (!searches.empty()) {
      const auto search = searches.extract(searches.begin());
      Search<T>& one = search.mapped();
      try {
        if (!status.ok()) {
          one.found(status);
        } else if (one.too_many) {
          one.found(absl::UnavailableError("too many objects match"));
        } else {
          one.found(std::move(one.matches));
        }
      } catch (const std::bad_alloc&) {
        continue;  // who has asked answers for a callback that is dropped
      }
    }
  }

  LiveObjects& owner;
  Queue<T>& queue;
  Searches<T> searches;
  std::string continue_token;
};

void LiveObjects::Stop() {
  {
    const std::lock_guard lock(pace_mutex_);
    stopped_ = true;
  }
  paced_.notify_all();
  if (pacer_.joinable()) pacer_.join();
}

bool LiveObjects::MustWait() {
  const std::lock_guard lock(pace_mutex_);
  if (stopped_) return false;
  const FairLimit::Clock::time_point now = FairLimit::Clock::now();
  const std::optional<std::chrono::seconds> wait = list_rate_.Take("", now);
  if (!wait.has_value()) return false;
  due_ = now + *wait;
  paced_.notify_all();
  return true;
}

void LiveObjects::Pace() {
  std::unique_lock lock(pace_mutex_);
  while (!stopped_ || due_.has_value()) {
    if (!due_.has_value()) {
      paced_.wait(lock);
      continue;
    }
    if (!stopped_ && FairLimit::Clock::now() < *due_) {
      paced_.wait_until(lock, *due_);
      continue;
    }
    due_.reset();
    lock.unlock();
    BeginList(contents_);
    lock.lock();
  }
}

// With `queue.listing` set, or at the end of a list.
template <typename T>
void LiveObjects::StartList(Queue<T>& queue) noexcept {
  if constexpr (std::is_same_v<T, VolumeSnapshotContent>) {
    {
      const std::lock_guard lock(queue.mutex);
      queue.listing = !queue.waiting.empty();
      if (!queue.listing) return;
    }
    try {
      if (MustWait()) return;
    } catch (const std::bad_alloc&) {
      // Sooner than meant.
    }
  }
  BeginList(queue);
}

template <typename T>
void LiveObjects::BeginList(Queue<T>& queue) noexcept {
  std::shared_ptr<List<T>> list;
  {
    const std::lock_guard lock(queue.mutex);
    queue.listing = false;
    if (queue.waiting.empty()) return;
    try {
      list = std::make_shared<List<T>>(*this, queue);
    } catch (const std::bad_alloc&) {
      return;  // the next search begins it
    }
    queue.listing = true;
    list->searches.swap(queue.waiting);
  }
  try {
    NextPage(std::move(list));
  } catch (const std::bad_alloc&) {
    return;  // the list has ended
  }
}

template <typename T>
void LiveObjects::NextPage(std::shared_ptr<List<T>> list) {
  ListOptions options;
  options.timeout = timeout_;
  options.limit = kObjectsOfPage;
  options.continue_token = list->continue_token;
  client_.ListAsync(
      T::kResource, "", options, [this, list](absl::StatusOr<ObjectList> page) mutable {
        if (!page.ok()) {
          // A list that became too old while it was read is no proof of absence either.
          const absl::Status why = Failed(T::kResource.kind.data(), page.status());
          return list->End(absl::UnavailableError(why.message()));
        }
        for (const Object& object : page->items) {
          const absl::StatusOr<T> value = T::Decode(object);
          // What can't be read might be what is searched for.
          if (!value.ok()) {
            log_.Failed("object can't be read", value.status(),
                        {{.key = "object", .value = std::string(object.name())}});
            return list->End(absl::UnavailableError("the API server's answer can't be read"));
          }
          const auto [begin, end] = list->searches.equal_range(SearchKeyOf(*value));
          for (auto at = begin; at != end; ++at) {
            Search<T>& search = at->second;
            if (search.too_many || !search.wanted(*value)) continue;
            search.too_many = search.matches.size() == kMaxFound;
            if (!search.too_many) search.matches.push_back(*value);
          }
        }
        if (page->continue_token.empty()) return list->End(absl::OkStatus());
        list->continue_token = page->continue_token;
        NextPage(std::move(list));
      });
}

void LiveObjects::GetSnapshot(const std::string& name_space, const std::string& name,
                              Found<VolumeSnapshot> found) {
  std::optional<FairPlaces::Place> place = lookups_.Take(name_space);
  if (!place.has_value()) {
    log_.Write(rpc::LogLevel::kWarning, "too many lookups of snapshots at once",
               {{.key = "namespace", .value = name_space}});
    return found(absl::UnavailableError("too many snapshots of this namespace are looked up"));
  }
  Get<VolumeSnapshot>(name_space, name,
                      [held = std::make_shared<FairPlaces::Place>(*std::move(place)),
                       found = std::move(found)](absl::StatusOr<VolumeSnapshot> snapshot) {
                        held->Release();
                        found(std::move(snapshot));
                      });
}

void LiveObjects::GetContent(const std::string& name, Found<VolumeSnapshotContent> found) {
  Get<VolumeSnapshotContent>("", name, std::move(found));
}

void LiveObjects::FindContents(const std::string& driver, const std::string& handle,
                               const std::string& name_space,
                               Found<std::vector<VolumeSnapshotContent>> found) {
  const std::string_view parts[] = {driver, handle, name_space};
  absent_.Ask(
      KeyOf(parts),
      [found = std::move(found)](const absl::StatusOr<std::vector<VolumeSnapshotContent>>& known) {
        if (absl::IsNotFound(known.status())) return found(std::vector<VolumeSnapshotContent>());
        found(known);
      },
      [&](AnswerCache<std::vector<VolumeSnapshotContent>>::Done answer) {
        if (search_rate_.Take(name_space, FairLimit::Clock::now()).has_value()) {
          log_.Write(rpc::LogLevel::kWarning, "too many searches for bases",
                     {{.key = "namespace", .value = name_space}});
          return answer(absl::UnavailableError("too many unknown bases in this namespace"));
        }
        Find<VolumeSnapshotContent>(
            contents_, handle,
            [driver, handle](const VolumeSnapshotContent& content) {
              return IsContentOf(content, driver, handle);
            },
            [answer = std::move(answer)](
                const absl::StatusOr<std::vector<VolumeSnapshotContent>>& matches) {
              if (matches.ok() && matches->empty()) return answer(absl::NotFoundError(""));
              answer(matches);
            });
      });
}

void LiveObjects::GetClass(const std::string& name, Found<VolumeSnapshotClass> found) {
  Get<VolumeSnapshotClass>("", name, std::move(found));
}

void LiveObjects::FindDefaultClasses(const std::string& driver,
                                     Found<std::vector<VolumeSnapshotClass>> found) {
  Find<VolumeSnapshotClass>(
      classes_, driver,
      [driver](const VolumeSnapshotClass& one) { return IsDefaultFor(one, driver); },
      std::move(found));
}

void LiveObjects::GetService(const std::string& name, Found<SnapshotMetadataService> found) {
  Get<SnapshotMetadataService>("", name, std::move(found));
}

}  // namespace cbt::kube::cluster
