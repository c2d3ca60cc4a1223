#include "kube/sidecar/objects/live_objects.h"

#include <utility>

#include "cbt/kube/status.h"

namespace cbt::kube::sidecar {
namespace {

constexpr int64_t kPage = 500;  // objects
// More answers to a search than this are a mistake in the objects.
constexpr size_t kMostFound = 64;

}  // namespace

bool IsContentOf(const VolumeSnapshotContent& content, const std::string& driver,
                 const std::string& handle, const std::string& name_space) {
  return content.driver == driver && content.snapshot_namespace == name_space &&
         content.status.has_value() && content.status->snapshot_handle == handle;
}

bool IsDefaultFor(const VolumeSnapshotClass& one, const std::string& driver) {
  return one.driver == driver && one.IsDefault();
}

// One search. Holds its place among kMostSearches until its end.
template <typename T>
struct LiveObjects::Search {
  Search(std::atomic<int>& places, std::function<bool(const T&)> wanted,
         Found<std::vector<T>> found)
      : places(places), wanted(std::move(wanted)), found(std::move(found)) {}
  ~Search() { --places; }
  Search(const Search&) = delete;
  Search& operator=(const Search&) = delete;

  std::atomic<int>& places;
  const std::function<bool(const T&)> wanted;
  const Found<std::vector<T>> found;
  std::vector<T> matches;
  std::string continue_token;
};

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
void LiveObjects::Find(std::function<bool(const T&)> wanted, Found<std::vector<T>> found) {
  if (++searches_ > kMostSearches) {
    --searches_;
    return found(absl::UnavailableError("too many searches are under way"));
  }
  NextPage<T>(std::make_shared<Search<T>>(searches_, std::move(wanted), std::move(found)));
}

template <typename T>
void LiveObjects::NextPage(std::shared_ptr<Search<T>> search) {
  ListOptions options;
  options.timeout = timeout_;
  options.limit = kPage;
  options.continue_token = search->continue_token;
  client_.ListAsync(
      T::kResource, "", options, [this, search](absl::StatusOr<ObjectList> page) mutable {
        if (!page.ok()) {
          // A list that became too old while it was read is no proof of absence either.
          return search->found(
              absl::UnavailableError(Failed(T::kResource.kind.data(), page.status()).message()));
        }
        for (const Object& object : page->items) {
          absl::StatusOr<T> value = T::Decode(object);
          // What can't be read might be what is searched for.
          if (!value.ok()) {
            log_.Failed("object can't be read", value.status(),
                        {{.key = "object", .value = std::string(object.name())}});
            return search->found(absl::UnavailableError("the API server's answer can't be read"));
          }
          if (!search->wanted(*value)) continue;
          if (search->matches.size() == kMostFound) {
            return search->found(absl::UnavailableError("too many objects match"));
          }
          search->matches.push_back(*std::move(value));
        }
        if (page->continue_token.empty()) return search->found(std::move(search->matches));
        search->continue_token = page->continue_token;
        NextPage<T>(std::move(search));
      });
}

void LiveObjects::GetSnapshot(const std::string& name_space, const std::string& name,
                              Found<VolumeSnapshot> found) {
  Get<VolumeSnapshot>(name_space, name, std::move(found));
}

void LiveObjects::GetContent(const std::string& name, Found<VolumeSnapshotContent> found) {
  Get<VolumeSnapshotContent>("", name, std::move(found));
}

void LiveObjects::FindContents(const std::string& driver, const std::string& handle,
                               const std::string& name_space,
                               Found<std::vector<VolumeSnapshotContent>> found) {
  Find<VolumeSnapshotContent>(
      [driver, handle, name_space](const VolumeSnapshotContent& content) {
        return IsContentOf(content, driver, handle, name_space);
      },
      std::move(found));
}

void LiveObjects::GetClass(const std::string& name, Found<VolumeSnapshotClass> found) {
  Get<VolumeSnapshotClass>("", name, std::move(found));
}

void LiveObjects::FindDefaultClasses(const std::string& driver,
                                     Found<std::vector<VolumeSnapshotClass>> found) {
  Find<VolumeSnapshotClass>(
      [driver](const VolumeSnapshotClass& one) { return IsDefaultFor(one, driver); },
      std::move(found));
}

void LiveObjects::GetService(const std::string& name, Found<SnapshotMetadataService> found) {
  Get<SnapshotMetadataService>("", name, std::move(found));
}

}  // namespace cbt::kube::sidecar
