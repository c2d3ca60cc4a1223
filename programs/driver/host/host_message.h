// What a driver and its volume host say to each other, over a Unix socket that keeps messages
// apart.
//
//   driver                                   host
//   serve VOLUME FILE READ_ONLY AGAIN  ->    CODE MESSAGE
//   grow VOLUME SIZE                   ->    CODE MESSAGE
//   stop VOLUME                        ->    CODE MESSAGE
//   give VOLUME SESSION + descriptor   ->    (none)        what an earlier host has left
//   keep                               ->    what is attached, then ready, and for as long as the
//                                            connection lasts what changes:
//                                            kept VOLUME SESSION [+ descriptor]
//                                            dropped VOLUME
//                                            state VOLUME SERVING FAILED RESTARTS ERROR
//
// serve, grow and stop are UNAVAILABLE until a driver keeps.
//
// The two may be of different versions during an upgrade: unknown fields are ignored, and an
// unknown request fails with UNIMPLEMENTED.
#ifndef CBT_PROGRAMS_DRIVER_HOST_HOST_MESSAGE_H_
#define CBT_PROGRAMS_DRIVER_HOST_HOST_MESSAGE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "programs/driver/host/fuse_disk.h"

namespace cbt::driver {

// A JSON object of strings on the wire, and at most one descriptor.
struct HostMessage {
  static constexpr size_t kMaxBytes = size_t{64} << 10;

  std::map<std::string, std::string, std::less<>> fields;
  OwnedDescriptor descriptor;

  // Empty if it is missing.
  std::string_view Get(std::string_view field) const;
};

HostMessage EncodeSession(std::string_view verb, std::string_view volume,
                          const FuseSession& session);
// Errors: INVALID_ARGUMENT.
absl::StatusOr<FuseSession> DecodeSession(const HostMessage& message);

HostMessage EncodeStatus(const absl::Status& status);
absl::Status DecodeStatus(const HostMessage& message);

// Errors: UNAVAILABLE if the other side has gone, or does not take it within 10 s.
absl::Status SendMessage(int socket, const HostMessage& message);
// Errors: UNAVAILABLE if the other side has gone, INVALID_ARGUMENT for anything but a message,
//         DEADLINE_EXCEEDED after `limit` (0: none).
absl::StatusOr<HostMessage> ReceiveMessage(int socket, std::chrono::milliseconds limit);

// Connects to a host. Errors: UNAVAILABLE, INVALID_ARGUMENT for the path.
absl::StatusOr<OwnedDescriptor> ConnectHost(const std::string& path);

}  // namespace cbt::driver

#endif  // CBT_PROGRAMS_DRIVER_HOST_HOST_MESSAGE_H_
