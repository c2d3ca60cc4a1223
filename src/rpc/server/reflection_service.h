// grpc.reflection.v1 and v1alpha.ServerReflection: descriptions of the services for tools without
// the .proto files. Source: grpc/reflection/v1/reflection.proto of the gRPC project.
//
// gRPC's own plugin needs generated classes in the program. The library must not contain any: a
// plugin links its own generated classes of the same messages, and two copies in one program clash.
#ifndef CBT_RPC_SERVER_REFLECTION_SERVICE_H_
#define CBT_RPC_SERVER_REFLECTION_SERVICE_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "cbt/units.h"
#include "rpc/server/stream_registry.h"
#include "rpc/transport/server_call.h"

namespace cbt::rpc {

// Descriptors of the .proto files, compiled by protoc.
class Descriptors {
 public:
  Descriptors();

  // The file of that name, or the one that declares a symbol ("csi.v1.Identity.Probe"), with all
  // its imports; empty if missing.
  std::vector<std::string_view> ByName(const std::string& name) const;
  std::vector<std::string_view> BySymbol(std::string_view symbol) const;

 private:
  struct File {
    std::string_view bytes;
    std::vector<std::string> imports;
  };
  void Collect(const std::string& name, std::vector<std::string>& names) const;

  std::map<std::string, File> files_;
  std::map<std::string, std::string, std::less<>> symbols_;  // to file names
};

// Needs no token, so it must cost little: requests are short, because answers repeat them, and the
// number and duration of calls are limited.
class ReflectionService final : public Service {
 public:
  // Names of files and symbols are far shorter.
  static constexpr size_t kMaxQuestionBytes = 4 * kKiB;
  // Most calls open at once, of which one address can have half. Tools make one and end it.
  static constexpr size_t kMaxCalls = 128;

  // `services`: names of the other services; health and reflection are added. A call whose client
  // neither sends nor reads anything for `wait_limit` is ended. Throws std::system_error if the
  // watching thread can't be started.
  ReflectionService(std::vector<std::string> services, std::chrono::milliseconds wait_limit);

 private:
  class Call;
  absl::StatusOr<CallHandler*> Open(ServerCall& call, absl::Cord request);
  std::string Answer(std::span<const uint8_t> request) const;

  const Descriptors descriptors_;
  std::vector<std::string> services_;
  FairPlaces places_;
  // Separate, so that these calls take no slot of a stream and no drain waits for them.
  StreamRegistry calls_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_REFLECTION_SERVICE_H_
