#include "ops/certificate_end.h"

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/watched_file.h"
#include "net/pem.h"

namespace cbt::ops {
namespace {

absl::StatusOr<int64_t> EndOf(const std::string& pem) {
  const absl::StatusOr<std::vector<net::Certificate>> chain =
      net::ReadCertificates("certificate", pem);
  if (!chain.ok()) return chain.status();
  return net::FirstEnd(*chain);
}

// 0: never known. Used by one scrape at a time.
struct LastEnd {
  explicit LastEnd(const std::string& path) : file(path, EndOf) {}

  WatchedFile<int64_t> file;
  int64_t seconds = 0;
};

}  // namespace

void AddCertificateEnd(MetricSet& metrics, const std::string& file) {
  if (file.empty()) return;
  const auto last = std::make_shared<LastEnd>(file);
  metrics.AddGauge(
      "cbt_certificate_expiry_timestamp_seconds",
      "When the first certificate of the file ends, in seconds since 1970",
      [last] {
        const auto now = last->file.Get();
        if (now.ok()) last->seconds = **now;
        return static_cast<double>(last->seconds);
      },
      "file", file);
}

}  // namespace cbt::ops
