// Buckets and accounts of a Ceph object gateway. Buckets are the driver's own; accounts are users
// of the gateway, and a bucket's policy says what each may do.
#ifndef CBT_PROGRAMS_COSI_DRIVER_RGW_STORE_H_
#define CBT_PROGRAMS_COSI_DRIVER_RGW_STORE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "programs/cosi/driver/bucket_store.h"
#include "programs/cosi/driver/rgw_client.h"

namespace cbt::cosi {

struct RgwStoreOptions {
  std::string driver_name = {};
  S3Info info = {};  // what clients get
  // How long a call waits for another one at the same bucket or account.
  std::chrono::milliseconds longest_turn = std::chrono::seconds(30);
};

// Exactly one process may write the policies of a gateway's buckets.
std::unique_ptr<BucketStore> MakeRgwStore(std::unique_ptr<RgwClient> client,
                                          RgwStoreOptions options);

// The tags of a bucket of this driver.
inline constexpr char kDriverTag[] = "cosi-driver";
inline constexpr char kParametersTag[] = "cosi-parameters";  // their SHA-256

}  // namespace cbt::cosi

#endif  // CBT_PROGRAMS_COSI_DRIVER_RGW_STORE_H_
