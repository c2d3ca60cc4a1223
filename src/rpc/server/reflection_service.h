// grpc.reflection.v1 and v1alpha.ServerReflection: what the services look like, for tools that have
// no .proto files at hand. Source: grpc/reflection/v1/reflection.proto of the gRPC project.
//
// gRPC's own plugin would want generated classes in the program, see raw_service.h.
#ifndef CBT_RPC_SERVER_REFLECTION_SERVICE_H_
#define CBT_RPC_SERVER_REFLECTION_SERVICE_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rpc/outbound/open_streams.h"
#include "rpc/transport/raw_service.h"

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

// What anybody may ask for without a token costs little: an answer repeats the question, so that is
// short, and calls are few and don't wait for ever.
class ReflectionService final : public RawService {
 public:
  // Names of files and symbols are shorter by far.
  static constexpr size_t kMaxQuestionBytes = size_t{4} << 10;
  // Calls at a time. Tools make one and end it.
  static constexpr size_t kMaxCalls = 64;

  // `services`: names of those beside it; health and reflection itself are added. A call whose
  // client neither asks nor takes anything for `patience` is ended.
  // Throws std::system_error when there is no thread to watch them with.
  ReflectionService(std::vector<std::string> services, std::chrono::milliseconds patience);

 private:
  class Call;
  BidiReactor* Open(grpc::CallbackServerContext& context);
  std::string Answer(std::span<const uint8_t> request) const;

  const Descriptors descriptors_;
  std::vector<std::string> services_;
  // Of its own, so that those who look around take no stream's place, and no drain waits for them.
  OpenStreams calls_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_REFLECTION_SERVICE_H_
