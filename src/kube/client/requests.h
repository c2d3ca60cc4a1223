// Requests of the API: paths, queries, bodies.
#ifndef CBT_KUBE_CLIENT_REQUESTS_H_
#define CBT_KUBE_CLIENT_REQUESTS_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cbt/kube/client.h"
#include "cbt/kube/object.h"
#include "kube/client/answer.h"
#include "kube/client/transfer.h"

namespace cbt::kube {

// Builds a query: pairs with an empty value are left out.
class Query {
 public:
  void Add(std::string_view key, std::string_view value);
  // With its question mark; empty if there are no pairs.
  const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

// A request and what its answer must be.
struct ApiRequest {
  WireRequest wire = {};
  Expected expected = {};
};

// All: errors are INVALID_ARGUMENT.
absl::StatusOr<ApiRequest> GetRequest(const Resource& resource, std::string_view name_space,
                                      std::string_view name, const GetOptions& options);
absl::StatusOr<ApiRequest> ListRequest(const Resource& resource, std::string_view name_space,
                                       const ListOptions& options);
absl::StatusOr<ApiRequest> CreateRequest(const Resource& resource, const Object& object,
                                         const WriteOptions& options);
absl::StatusOr<ApiRequest> UpdateRequest(const Resource& resource, const Object& object,
                                         const WriteOptions& options);
absl::StatusOr<ApiRequest> PatchRequest(const Resource& resource, std::string_view name_space,
                                        std::string_view name, PatchType type,
                                        std::string_view patch, const WriteOptions& options);
absl::StatusOr<ApiRequest> ApplyRequest(const Resource& resource, const Object& object,
                                        const ApplyOptions& options);
absl::StatusOr<ApiRequest> DeleteRequest(const Resource& resource, std::string_view name_space,
                                         std::string_view name, const DeleteOptions& options);
absl::StatusOr<WireRequest> RawRequest(Request request);

}  // namespace cbt::kube

#endif  // CBT_KUBE_CLIENT_REQUESTS_H_
