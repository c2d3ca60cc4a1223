// csi.v1.Identity: the plugin's name, version and capabilities.
#ifndef CBT_RPC_SERVER_IDENTITY_SERVICE_H_
#define CBT_RPC_SERVER_IDENTITY_SERVICE_H_

#include <string>
#include <string_view>

#include "rpc/server/identity_and_health_calls.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

class IdentityService final : public Service {
 public:
  // `calls` must outlive the service.
  IdentityService(std::string_view plugin_name, std::string_view vendor_version,
                  IdentityAndHealthCalls& calls);

 private:
  const IdentityAndHealthCalls::Answer info_;
  const IdentityAndHealthCalls::Answer capabilities_;
  const IdentityAndHealthCalls::Answer ready_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_IDENTITY_SERVICE_H_
