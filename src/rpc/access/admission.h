// From a request as it was sent to one that may be answered.
#ifndef CBT_RPC_ACCESS_ADMISSION_H_
#define CBT_RPC_ACCESS_ADMISSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cbt/rpc/access.h"
#include "cbt/rpc/session_store.h"
#include "cbt/secrets.h"
#include "rpc/contract/contract.h"

namespace cbt::rpc {

// What a provider or a plugin is asked: handles, no tokens.
struct AdmittedRequest {
  std::optional<std::string> base_snapshot_id = {};
  std::string target_snapshot_id = {};
  uint64_t starting_offset = 0;  // bytes
  uint32_t max_results = 0;
  Secrets secrets = {};
};

// Decides on requests that passed CheckRequest(). Thread safe.
class Admission {
 public:
  virtual ~Admission() = default;
  // Answers once, during the call or later, from any thread; once more, with RESOURCE_EXHAUSTED,
  // where `done` threw or memory ran out on the way to it. What it throws itself may be without an
  // answer.
  virtual void Admit(MetadataRequest request, Done<AdmittedRequest> done) = 0;
};

// Everybody, with the ids and secrets of the request: the contracts behind a plugin's socket.
std::unique_ptr<Admission> MakeOpenAdmission();

// Those whom `access` lets in, with the handles and secrets that it finds.
std::unique_ptr<Admission> MakeAccessAdmission(const AccessControl& access, bool base_is_handle);

// Those who hold a session that all snapshots of the request belong to. Of `access` the resolver
// and the secret provider are asked if they are there; without a resolver names are handles.
std::unique_ptr<Admission> MakeSessionAdmission(SessionStore& sessions,
                                                const AccessControl& access);

}  // namespace cbt::rpc

#endif  // CBT_RPC_ACCESS_ADMISSION_H_
