// The handle of services, and what the provider of one is asked with.
#ifndef CBT_C_SERVICE_HANDLE_H_
#define CBT_C_SERVICE_HANDLE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "c/border.h"
#include "cbt/c/stream.h"
#include "cbt/provider.h"
#include "cbt/rpc/options.h"
#include "cbt/units.h"
#include "rpc/contract/contract.h"
#include "rpc/transport/slice_pool.h"

// Both are made for one call of the provider.
struct cbt_request : cbt::c::Handle {
  cbt_request() : Handle(&kKind<cbt_request>) {}

  std::optional<std::string> base;
  std::string target;
  const cbt::StreamContext* context = nullptr;
};

struct cbt_answer : cbt::c::Handle {
  cbt_answer() : Handle(&kKind<cbt_answer>) {}

  cbt::MetadataSource source;
};

namespace cbt::c {

// The caller's provider, as the engine sees it.
class CallbackProvider final : public SnapshotProvider {
 public:
  explicit CallbackProvider(const cbt_provider& provider) noexcept : provider_(provider) {}
  ~CallbackProvider() override {
    if (owns_) Release(provider_.release, provider_.user);
  }
  CallbackProvider(const CallbackProvider&) = delete;
  CallbackProvider& operator=(const CallbackProvider&) = delete;

  // From here on it calls `release`.
  void Own() noexcept { owns_ = true; }

  absl::StatusOr<MetadataSource> OpenAllocated(std::string_view snapshot_id,
                                               const StreamContext& context) override {
    return Open(std::nullopt, snapshot_id, context);
  }

  absl::StatusOr<MetadataSource> OpenDelta(std::string_view base_snapshot_id,
                                           std::string_view target_snapshot_id,
                                           const StreamContext& context) override {
    return Open(std::string(base_snapshot_id), target_snapshot_id, context);
  }

 private:
  absl::StatusOr<MetadataSource> Open(std::optional<std::string> base, std::string_view target,
                                      const StreamContext& context) const {
    cbt_request request;
    request.base = std::move(base);
    request.target = std::string(target);
    request.context = &context;
    cbt_answer answer;
    cbt_error* error = nullptr;
    const cbt_code code = provider_.open(provider_.user, &request, &answer, &error);
    if (absl::Status status = FromCallback(code, error); !status.ok()) return status;
    // Without a cursor the engine says that the provider broke its contract.
    return std::move(answer.source);
  }

  const cbt_provider provider_;
  bool owns_ = false;
};

// What a service is: its streams and servers keep it.
struct StreamService {
  StreamService(const cbt_provider& callbacks, const rpc::StreamOptions& options)
      : provider(callbacks),
        stream(options),
        pool(rpc::SlicePool::Create(options.message_bytes, 8 * kMiB)),
        methods({rpc::kCsiContract.allocated.path, rpc::kCsiContract.delta.path}) {}

  CallbackProvider provider;
  const rpc::StreamOptions stream;
  const std::shared_ptr<rpc::SlicePool> pool;
  std::string plugin_name;  // empty: the plugin answers Identity itself
  std::string vendor_version;
  std::vector<const char*> methods;
};

}  // namespace cbt::c

struct cbt_service : cbt::c::Handle {
  explicit cbt_service(std::shared_ptr<cbt::c::StreamService> made)
      : Handle(&kKind<cbt_service>), service(std::move(made)) {}
  const std::shared_ptr<cbt::c::StreamService> service;
};

#endif  // CBT_C_SERVICE_HANDLE_H_
