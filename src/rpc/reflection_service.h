// grpc.reflection.v1 and v1alpha.ServerReflection: what the services look like, for tools that have
// no .proto files at hand. Source: grpc/reflection/v1/reflection.proto of the gRPC project.
//
// gRPC's own plugin would want generated classes in the program, see raw_service.h.
#ifndef CBT_RPC_REFLECTION_SERVICE_H_
#define CBT_RPC_REFLECTION_SERVICE_H_

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rpc/raw_service.h"

namespace cbt::rpc {

// Descriptions of our .proto files, as protoc wrote them.
class Descriptors {
 public:
  Descriptors();

  // The file of that name, or the one that declares a symbol ("csi.v1.Identity.Probe"), with
  // everything that it imports; empty when there is none.
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

class ReflectionService final : public RawService {
 public:
  // `services`: names of those beside it; health and reflection itself are added.
  explicit ReflectionService(std::vector<std::string> services);

 private:
  class Call;
  std::string Answer(std::span<const uint8_t> request) const;

  const Descriptors descriptors_;
  std::vector<std::string> services_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_REFLECTION_SERVICE_H_
