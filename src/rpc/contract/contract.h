// The supported contracts, as tables of names, field numbers and semantics.
//
// A contract with the same answers (another package, other request fields) is another row here, not
// another service.
#ifndef CBT_RPC_CONTRACT_CONTRACT_H_
#define CBT_RPC_CONTRACT_CONTRACT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/extent.h"
#include "cbt/rpc/options.h"
#include "cbt/secrets.h"
#include "cbt/wire/message.h"

namespace cbt::rpc {

// Numbers of the fields of a request; 0: the request has no such field.
struct RequestFields {
  uint32_t token = 0;               // string: security token, session token
  uint32_t name_space = 0;          // string
  uint32_t volume_id = 0;           // string
  uint32_t base_snapshot_id = 0;    // string
  uint32_t target_snapshot_id = 0;  // string; the only snapshot of an allocated request
  uint32_t starting_offset = 0;     // int64 or uint64
  uint32_t max_results = 0;         // int32 or uint32
  uint32_t secrets = 0;             // map<string, string>
  uint32_t page_token = 0;          // string

  constexpr bool is_delta() const noexcept { return base_snapshot_id != 0; }
};

// Names of the fields in error texts.
struct RequestNames {
  const char* token = "";
  const char* name_space = "";
  const char* base = "";
  const char* target = "";
  const char* offset = "starting_offset";
  const char* max_results = "max_results";
};

// One method.
struct MethodContract {
  const char* path;
  RequestFields fields;
  RequestNames names;
  bool unsigned_numbers = false;  // of starting_offset and max_results
  bool base_is_optional = false;  // an empty base lists what is allocated in the target
};

// How a contract numbers the types of block metadata.
enum class TypeNumbers {
  kFinal,          // UNKNOWN 0, FIXED_LENGTH 1, VARIABLE_LENGTH 2
  kFirstRevision,  // FIXED_LENGTH 0, VARIABLE_LENGTH 1
};

// A service.
struct Contract {
  Api api;
  const char* service;
  // Equal if one method does both.
  MethodContract allocated;
  MethodContract delta;
  TypeNumbers types = TypeNumbers::kFinal;
  // The base of a delta is always a storage handle, even if the target is a name.
  bool base_is_handle = true;
};

// csi.v1.SnapshotMetadata.
inline constexpr Contract kCsiContract = {
    .api = Api::kCsi,
    .service = "csi.v1.SnapshotMetadata",
    .allocated =
        {.path = "/csi.v1.SnapshotMetadata/GetMetadataAllocated",
         .fields = {.target_snapshot_id = 1, .starting_offset = 2, .max_results = 3, .secrets = 4},
         .names = {.target = "snapshot_id"}},
    .delta = {.path = "/csi.v1.SnapshotMetadata/GetMetadataDelta",
              .fields = {.base_snapshot_id = 1,
                         .target_snapshot_id = 2,
                         .starting_offset = 3,
                         .max_results = 4,
                         .secrets = 5},
              .names = {.base = "base_snapshot_id", .target = "target_snapshot_id"}},
};

// snapshotmetadata.SnapshotMetadata.
inline constexpr Contract kKubernetesContract = {
    .api = Api::kKubernetes,
    .service = "snapshotmetadata.SnapshotMetadata",
    .allocated = {.path = "/snapshotmetadata.SnapshotMetadata/GetMetadataAllocated",
                  .fields = {.token = 1,
                             .name_space = 2,
                             .target_snapshot_id = 3,
                             .starting_offset = 4,
                             .max_results = 5},
                  .names = {.token = "security_token",
                            .name_space = "namespace",
                            .target = "snapshot_name"}},
    .delta = {.path = "/snapshotmetadata.SnapshotMetadata/GetMetadataDelta",
              .fields = {.token = 1,
                         .name_space = 2,
                         .base_snapshot_id = 3,
                         .target_snapshot_id = 4,
                         .starting_offset = 5,
                         .max_results = 6},
              .names = {.token = "security_token",
                        .name_space = "namespace",
                        .base = "base_snapshot_id",
                        .target = "target_snapshot_name"}},
};

// SnapshotMetadata of the first revision, which has no package.
inline constexpr Contract kSessionContract = {
    .api = Api::kSession,
    .service = "SnapshotMetadata",
    .allocated = {.path = "/SnapshotMetadata/GetAllocated",
                  .fields = {.token = 1,
                             .volume_id = 2,
                             .target_snapshot_id = 3,
                             .starting_offset = 4,
                             .max_results = 5},
                  .names = {.token = "session_token", .target = "snapshot"},
                  .unsigned_numbers = true},
    .delta = {.path = "/SnapshotMetadata/GetDelta",
              .fields = {.token = 1,
                         .volume_id = 2,
                         .base_snapshot_id = 3,
                         .target_snapshot_id = 4,
                         .starting_offset = 5,
                         .max_results = 6},
              .names = {.token = "session_token",
                        .base = "base_snapshot",
                        .target = "target_snapshot",
                        .offset = "starting_byte_offset"},
              .unsigned_numbers = true},
    .types = TypeNumbers::kFirstRevision,
    .base_is_handle = false,
};

// ListSnapshotDeltas, an addition of the proposal to the Controller service.
inline constexpr MethodContract kListSnapshotDeltas = {
    .path = "/csi.v1.Controller/ListSnapshotDeltas",
    .fields = {.base_snapshot_id = 1,
               .target_snapshot_id = 2,
               .max_results = 4,
               .secrets = 3,
               .page_token = 5},
    .names = {.base = "from_snapshot_id", .target = "to_snapshot_id", .max_results = "max_entries"},
    .base_is_optional = true,
};
inline constexpr Contract kPagedContract = {
    .api = Api::kPaged,
    .service = "csi.v1.Controller",
    .allocated = kListSnapshotDeltas,
    .delta = kListSnapshotDeltas,
};

// The contract of an API; lives as long as the process.
const Contract& ContractOf(Api api) noexcept;

// A request as it was sent.
struct MetadataRequest {
  Secret token = {};
  std::string peer = {};  // not of the message: ServerCall::peer()
  std::string name_space = {};
  std::string volume_id = {};
  std::optional<std::string> base_snapshot_id = {};  // has a value for a delta
  std::string target_snapshot_id = {};
  // The 64 bits on the wire: with unsigned numbers, negative means 2^63 or more.
  int64_t starting_offset = 0;  // bytes
  int64_t max_results = 0;
  std::string page_token = {};
  Secrets secrets = {};
};

// Most entries of a request's secrets. Each takes a few bytes of the request and far more memory,
// and is decoded before the caller is authenticated.
inline constexpr size_t kMaxSecrets = 1024;

// Decodes a request of `method` as libprotobuf does: fields in any order, the last of repeated
// scalars counts, unknown fields are skipped, strings must be UTF-8. Unlike there, the number of
// secrets is limited.
// Errors: INVALID_ARGUMENT; the text never quotes the request.
absl::StatusOr<MetadataRequest> DecodeRequest(const MethodContract& method,
                                              std::span<const uint8_t> bytes);

// Checks everything that needs no lookup.
// Errors: INVALID_ARGUMENT for a missing token, namespace or id and for a negative max_results,
//         OUT_OF_RANGE for a starting_offset that is negative or past any capacity.
absl::Status CheckRequest(const MethodContract& method, const MetadataRequest& request);

// The bytes of a request of `method`, identical with libprotobuf's (maps in the order of keys).
// Fields that the method does not have are omitted.
std::string EncodeRequest(const MethodContract& method, const MetadataRequest& request);

// The number of `type` on the wire.
BlockMetadataType TypeOnWire(const Contract& contract, BlockMetadataType type) noexcept;
// Converts the type of a message, decoded with the final numbering, to the contract's meaning.
// Errors: INVALID_ARGUMENT for a number that the contract does not have.
absl::Status TranslateType(const Contract& contract, MetadataMessage& message);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_CONTRACT_H_
