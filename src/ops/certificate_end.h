// When a server's certificate ends, as a metric.
#ifndef CBT_OPS_CERTIFICATE_END_H_
#define CBT_OPS_CERTIFICATE_END_H_

#include <string>

#include "ops/metric_set.h"

namespace cbt::ops {

// Adds cbt_certificate_expiry_timestamp_seconds{file}: when the first certificate of the chain in
// the file (PEM) ends, in seconds since 1970. Each scrape looks whether the file has changed; while
// it can't be used, the value is that of the last one that could, as servers keep that certificate.
// Nothing for an empty name.
void AddCertificateEnd(MetricSet& metrics, const std::string& file);

}  // namespace cbt::ops

#endif  // CBT_OPS_CERTIFICATE_END_H_
