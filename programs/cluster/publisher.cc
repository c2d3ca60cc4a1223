#include "programs/cluster/publisher.h"

#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "base/stop_wait.h"
#include "net/pem.h"

namespace cbt::kube::cluster {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kFieldManager[] = "cbt-sidecar";
constexpr std::chrono::seconds kTick{1};
constexpr std::chrono::seconds kLongestWait{30};
// How often the object is written if it can't be watched.
constexpr std::chrono::minutes kBlindly{5};
constexpr std::chrono::seconds kRequestTime{5};

std::string Beside(const std::string& file, const char* name) {
  const size_t slash = file.rfind('/');
  return (slash == std::string::npos ? "" : file.substr(0, slash + 1)) + name;
}

}  // namespace

Publisher::Publisher(Client& client, std::unique_ptr<const PublishedObject> object,
                     const Driver& driver, const std::string& ca_file,
                     const std::string& certificate_file, ops::EventLog& log)
    : client_(client),
      object_(std::move(object)),
      driver_(driver),
      ca_file_(ca_file),
      certificate_file_(certificate_file),
      log_(log),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

absl::StatusOr<std::string> Publisher::ReadAuthorities() const {
  std::string file = ca_file_;
  if (file.empty()) {
    file = Beside(certificate_file_, "ca.crt");
    if (StateOf(file).size <= 0) file = certificate_file_;
  }
  absl::StatusOr<std::string> text = ReadSmallFile(file);
  if (!text.ok()) return text.status();
  if (const auto read = net::ReadCertificates("published CA", *text); !read.ok()) {
    return read.status();
  }
  // The certificate's file may hold its key, too.
  if (text->find("PRIVATE KEY") != std::string::npos) {
    return absl::InvalidArgumentError("the file of the published CA holds a private key");
  }
  return text;
}

absl::Status Publisher::Apply(const Object& object) {
  ApplyOptions options;
  options.field_manager = kFieldManager;
  options.force = true;
  options.timeout = kRequestTime;
  return client_.Apply(object_->resource(), object, options).status();
}

void Publisher::Run(const std::stop_token& stop) {
  std::string written;  // what was last written, and when
  std::optional<Clock::time_point> written_at;
  std::chrono::seconds wait = kTick;
  Clock::time_point next = Clock::now();
  const auto look = [&] {
    const std::string driver = driver_.name();
    if (driver.empty() || Clock::now() < next) return;
    const absl::StatusOr<std::string> authorities = ReadAuthorities();
    absl::Status status = authorities.status();
    Object object;
    if (status.ok()) {
      const std::optional<bool> current = object_->IsCurrent(driver, *authorities);
      if (current.value_or(false)) return;
      // Without a watch it is not known whether somebody else has changed the object.
      if (!current.has_value() && written == *authorities && written_at.has_value() &&
          Clock::now() - *written_at < kBlindly) {
        return;
      }
      object = object_->Make(driver, *authorities);
      status = Apply(object);
    }
    if (status.ok()) {
      log_.Write(rpc::LogLevel::kInfo, "service published",
                 {{.key = "kind", .value = std::string(object_->resource().kind)},
                  {.key = "name", .value = std::string(object.name())}});
      written = *authorities;
      written_at = Clock::now();
      wait = kTick;
      // The watch needs a moment to see it.
      next = Clock::now() + kTick;
      return;
    }
    log_.Failed("service not published", status,
                {{.key = "kind", .value = std::string(object_->resource().kind)}});
    next = Clock::now() + wait;
    wait = std::min<std::chrono::seconds>(wait * 2, kLongestWait);
  };
  do {
    try {
      look();
    } catch (const std::bad_alloc&) {
      next = Clock::now() + wait;
    }
  } while (WaitUnlessStopped(stop, kTick));
}

}  // namespace cbt::kube::cluster
