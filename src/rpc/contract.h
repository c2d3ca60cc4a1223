// The contracts that the service speaks, as tables of names and field numbers.
//
// Another contract with the same answers (another package, other request fields) is a further row
// here, not a further service.
#ifndef CBT_RPC_CONTRACT_H_
#define CBT_RPC_CONTRACT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cbt/provider.h"

namespace cbt::rpc {

// Numbers of the fields of a request; 0: the request has no such field.
struct RequestFields {
  uint32_t base_snapshot_id = 0;    // string
  uint32_t target_snapshot_id = 0;  // string; the only snapshot of an allocated request
  uint32_t starting_offset = 0;     // int64
  uint32_t max_results = 0;         // int32
  uint32_t secrets = 0;             // map<string, string>

  constexpr bool is_delta() const noexcept { return base_snapshot_id != 0; }
};

// One streaming method. `base_name` and `target_name` are what error texts call the ids.
struct MethodContract {
  const char* path;
  RequestFields fields;
  const char* base_name;
  const char* target_name;
};

// A pair of methods of one service.
struct Contract {
  MethodContract allocated;
  MethodContract delta;
};

// csi.v1.SnapshotMetadata.
inline constexpr Contract kCsiContract = {
    .allocated =
        {.path = "/csi.v1.SnapshotMetadata/GetMetadataAllocated",
         .fields = {.target_snapshot_id = 1, .starting_offset = 2, .max_results = 3, .secrets = 4},
         .base_name = "",
         .target_name = "snapshot_id"},
    .delta = {.path = "/csi.v1.SnapshotMetadata/GetMetadataDelta",
              .fields = {.base_snapshot_id = 1,
                         .target_snapshot_id = 2,
                         .starting_offset = 3,
                         .max_results = 4,
                         .secrets = 5},
              .base_name = "base_snapshot_id",
              .target_name = "target_snapshot_id"},
};

// A request as it was sent. The numbers have the wire's types: they can be negative.
struct MetadataRequest {
  std::optional<std::string> base_snapshot_id = {};  // has a value for a delta
  std::string target_snapshot_id = {};
  int64_t starting_offset = 0;  // bytes
  int32_t max_results = 0;
  Secrets secrets = {};
};

// Decodes a request of `method` as libprotobuf does: fields in any order, the last of repeated
// scalars counts, unknown fields are skipped, strings must be UTF-8.
// Errors: INVALID_ARGUMENT, with no contents of the request in the text.
absl::StatusOr<MetadataRequest> DecodeRequest(const MethodContract& method,
                                              std::span<const uint8_t> bytes);

// What can be said of a request before its snapshots are looked up.
// Errors: INVALID_ARGUMENT for a missing id and for a negative max_results, OUT_OF_RANGE for a
//         negative starting_offset.
absl::Status CheckRequest(const MethodContract& method, const MetadataRequest& request);

// The bytes of a request of `method`, identical with libprotobuf's (maps in the order of keys).
std::string EncodeRequest(const MethodContract& method, const std::string* base_snapshot_id,
                          const std::string& target_snapshot_id, uint64_t starting_offset,
                          int32_t max_results, const std::map<std::string, std::string>& secrets);

}  // namespace cbt::rpc

#endif  // CBT_RPC_CONTRACT_H_
