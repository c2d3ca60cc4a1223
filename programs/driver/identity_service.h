// CSI's Identity service.
#ifndef CBT_PROGRAMS_DRIVER_IDENTITY_SERVICE_H_
#define CBT_PROGRAMS_DRIVER_IDENTITY_SERVICE_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "csi.grpc.pb.h"
#include "programs/driver/calls.h"
#include "programs/driver/node/attachment.h"

namespace cbt::driver {

// OK if a plugin can have this name: 1 to 63 letters, digits, '-', '.' and '_', a letter at both
// ends. Errors: INVALID_ARGUMENT.
absl::Status CheckDriverName(const std::string& name);

class IdentityService final : public csi::v1::Identity::Service {
 public:
  // `ready`: whether the driver serves.
  IdentityService(Calls& calls, std::string name, DeviceKind device, std::function<bool()> ready)
      : calls_(calls), name_(std::move(name)), device_(device), ready_(std::move(ready)) {}

  grpc::Status GetPluginInfo(grpc::ServerContext* context,
                             const csi::v1::GetPluginInfoRequest* request,
                             csi::v1::GetPluginInfoResponse* response) override;
  grpc::Status GetPluginCapabilities(grpc::ServerContext* context,
                                     const csi::v1::GetPluginCapabilitiesRequest* request,
                                     csi::v1::GetPluginCapabilitiesResponse* response) override;
  grpc::Status Probe(grpc::ServerContext* context, const csi::v1::ProbeRequest* request,
                     csi::v1::ProbeResponse* response) override;

 private:
  Calls& calls_;
  const std::string name_;
  const DeviceKind device_;
  const std::function<bool()> ready_;
};

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_IDENTITY_SERVICE_H_
