// Admission: turns a request into one that may be answered, or refuses it.
#ifndef CBT_RPC_ACCESS_ADMISSION_H_
#define CBT_RPC_ACCESS_ADMISSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cbt/rpc/access.h"
#include "cbt/secrets.h"
#include "rpc/contract/contract.h"

namespace cbt::rpc {

// A request as a provider or plugin gets it: with handles, without tokens.
struct AdmittedRequest {
  std::optional<std::string> base_snapshot_id = {};
  std::string target_snapshot_id = {};
  uint64_t starting_offset = 0;  // bytes
  uint32_t max_results = 0;
  Secrets secrets = {};
  // The target's size in bytes, if the resolver knows it; above 0.
  std::optional<uint64_t> capacity = {};
};

// Decides on requests that passed CheckRequest(). Thread safe.
class Admission {
 public:
  virtual ~Admission() = default;
  // Calls `done` once, during the call or later, from any thread; a second time, with
  // RESOURCE_EXHAUSTED, if `done` threw or memory ran out on the way to it. If Admit() itself
  // throws, `done` may not be called.
  virtual void Admit(MetadataRequest request, Done<AdmittedRequest> done) = 0;
};

// Admits every request with its own ids and secrets, for the contracts on a plugin's socket.
std::unique_ptr<Admission> MakeOpenAdmission();

// Admits the requests that `access` allows, with the handles and secrets that it finds.
std::unique_ptr<Admission> MakeAccessAdmission(const AccessControl& access, bool base_is_handle);

// Admits requests whose session covers all their snapshots. Uses the resolver and the secret
// provider of `access` if they are set; without a resolver, names are handles.
std::unique_ptr<Admission> MakeSessionAdmission(SessionStore& sessions,
                                                const AccessControl& access);

}  // namespace cbt::rpc

#endif  // CBT_RPC_ACCESS_ADMISSION_H_
