// Client::ListAll: page after page, as one call.
#include <iterator>
#include <memory>
#include <string>
#include <utility>

#include "cbt/kube/client.h"
#include "cbt/kube/status.h"
#include "kube/client/core.h"
#include "kube/client/requests.h"

namespace cbt::kube {
namespace {

constexpr int64_t kPageSize = 500;

// The pages that have come, and the request for the next one.
class PageWalk {
 public:
  PageWalk(const Resource& resource, std::string_view name_space, const ListOptions& options)
      : group_(resource.group),
        version_(resource.version),
        plural_(resource.plural),
        kind_(resource.kind),
        namespaced_(resource.namespaced),
        name_space_(name_space),
        options_(options) {
    if (options_.limit <= 0) options_.limit = kPageSize;
  }

  absl::StatusOr<ApiRequest> Request() {
    absl::StatusOr<ApiRequest> request = ListRequest({.group = group_,
                                                      .version = version_,
                                                      .plural = plural_,
                                                      .kind = kind_,
                                                      .namespaced = namespaced_},
                                                     name_space_, options_);
    if (request.ok()) expected_ = request->expected;
    return request;
  }

  // Takes a page. True if there is to be another request.
  bool Take(const absl::StatusOr<Answer>& answer) {
    absl::StatusOr<ObjectList> page =
        answer.ok() ? ListOf(*answer, expected_) : absl::StatusOr<ObjectList>(answer.status());
    if (!page.ok()) {
      result_ = page.status();
      // Pages of two lists must not be mixed: what has come is of no use.
      if (!IsExpired(page.status()) || options_.continue_token.empty() || whole_) return false;
      whole_ = true;
      result_ = ObjectList();
      options_.limit = 0;
      options_.continue_token.clear();
      return true;
    }
    ObjectList& list = *result_;
    std::move(page->items.begin(), page->items.end(), std::back_inserter(list.items));
    list.resource_version = std::move(page->resource_version);
    if (page->continue_token.empty()) return false;
    if (page->continue_token == options_.continue_token) {
      result_ = WrongAnswer(expected_.what, "its continue token leads to the same page again");
      return false;
    }
    options_.continue_token = std::move(page->continue_token);
    // The token stands for both.
    options_.resource_version.clear();
    options_.resource_version_match.clear();
    return true;
  }

  void Fail(absl::Status error) { result_ = std::move(error); }

  absl::StatusOr<ObjectList> Result() { return std::move(result_); }

 private:
  const std::string group_;
  const std::string version_;
  const std::string plural_;
  const std::string kind_;
  const bool namespaced_;
  const std::string name_space_;
  ListOptions options_;
  Expected expected_;
  bool whole_ = false;  // the second walk, in one page
  absl::StatusOr<ObjectList> result_ = ObjectList();
};

}  // namespace

Call Client::ListAllAsync(const Resource& resource, std::string_view name_space,
                          const ListOptions& options, ResultCallback<ObjectList> done) {
  auto walk = std::make_shared<PageWalk>(resource, name_space, options);
  return core_->BeginSeries(
      walk->Request(), options.timeout,
      [walk](const absl::StatusOr<Answer>& answer) -> absl::StatusOr<ApiRequest> {
        if (!walk->Take(answer)) return absl::OutOfRangeError("");
        absl::StatusOr<ApiRequest> next = walk->Request();
        // The pages before it are not the list.
        if (!next.ok()) walk->Fail(next.status());
        return next;
      },
      [walk, done = std::move(done)](const absl::StatusOr<Answer>& answer) {
        done(answer.ok() ? walk->Result() : answer.status());
      });
}

}  // namespace cbt::kube
