#include "programs/revisions/http_sidecar/page_handler.h"

#include <exception>
#include <utility>

#include "absl/status/statusor.h"
#include "cbt/kube/typed_objects.h"
#include "cbt/secrets.h"
#include "programs/revisions/http_server/error_response.h"

namespace cbt::kube::http_sidecar {
namespace {

using aggregated::DeltaPageRequest;
using http_server::ErrorResponse;

// That pages wait for a free thread, as a multiple of the threads.
constexpr size_t kWaiting = 4;

}  // namespace

PageHandler::PageHandler(const Options& options, Client& client, PageMaker& maker,
                         std::function<bool()> ready, ops::MetricSet& metrics, ops::EventLog& log)
    : options_(options),
      prefix_(options.discovery.endpoint().path),
      client_(client),
      maker_(maker),
      ready_(std::move(ready)),
      log_(log),
      authorities_(options.client_ca_file,
                   [](const std::string& pem) {
                     return http_server::ClientAuthorities::Read("client CA", pem);
                   }),
      counters_(metrics),
      threads_(options.threads) {}

absl::Status PageHandler::CheckCaller(const std::vector<std::string>& certificates) {
  const auto authorities = authorities_.Get();
  if (!authorities.ok()) {
    log_.Failed("client CA not read", authorities.status());
    return absl::UnavailableError("callers can't be recognised now");
  }
  const absl::StatusOr<std::string> name = (*authorities)->NameOf(certificates);
  if (!name.ok()) return name.status();
  if (!options_.client_name.empty() && *name != options_.client_name) {
    return absl::UnauthenticatedError("client certificate: common name does not match");
  }
  return absl::OkStatus();
}

void PageHandler::Handle(const std::shared_ptr<const http_server::Request>& request,
                         const http_server::Respond& respond) {
  if (const absl::Status caller = CheckCaller(request->peer_certificates); !caller.ok()) {
    ++counters_.refused;
    log_.Failed("caller refused", caller);
    return respond(ErrorResponse(caller));
  }
  if (request->path == prefix_ + "/readyz") {
    if (!ready_()) return respond(ErrorResponse(absl::UnavailableError("not ready")));
    return respond({.content_type = "text/plain; charset=utf-8", .body = "ok\n"});
  }
  if (request->path != prefix_ + aggregated::kDeltaPagesPath) {
    return respond(ErrorResponse(404, "there is nothing at this path"));
  }
  if (request->method != "POST") {
    http_server::Response response = ErrorResponse(405, "expected POST");
    response.headers.emplace_back("Allow", "POST");
    return respond(std::move(response));
  }
  if (!ready_()) {
    return respond(ErrorResponse(
        absl::UnavailableError("this replica does not serve: another one leads, or the plugin is "
                               "not ready")));
  }
  absl::StatusOr<DeltaPageRequest> wanted = DeltaPageRequest::Parse(request->body);
  if (!wanted.ok()) {
    ++counters_.failed;
    return respond(ErrorResponse(400, std::string(wanted.status().message())));
  }
  Queue(*std::move(wanted), respond);
}

void PageHandler::Queue(DeltaPageRequest request, const http_server::Respond& respond) {
  if (pending_.fetch_add(1) >= options_.threads * (1 + kWaiting)) {
    --pending_;
    ++counters_.limited;
    return respond(ErrorResponse(absl::ResourceExhaustedError("too many pages at once")));
  }
  try {
    threads_.Schedule([this, request = std::move(request), respond] {
      http_server::Response response;
      try {
        response = Make(request);
      } catch (const std::exception& error) {
        log_.Failed("page failed", absl::InternalError(error.what()));
        response = {.code = 500};
      }
      respond(std::move(response));
      --pending_;
    });
  } catch (...) {
    --pending_;
    throw;
  }
}

http_server::Response PageHandler::Make(const DeltaPageRequest& request) {
  Secrets secrets;
  if (!request.secret_name.empty()) {
    GetOptions options;
    options.timeout = options_.api_timeout;
    absl::StatusOr<SecretObject> secret =
        client_.Get<SecretObject>(request.secret_namespace, request.secret_name, options);
    if (!secret.ok()) {
      ++counters_.failed;
      log_.Failed("secret not read", secret.status(),
                  {{.key = "namespace", .value = request.secret_namespace},
                   {.key = "name", .value = request.secret_name}});
      // Another try helps only if the API server is away.
      constexpr absl::string_view kText = "the driver's secret can't be read";
      const bool for_good = absl::IsPermissionDenied(secret.status()) ||
                            absl::IsNotFound(secret.status()) ||
                            absl::IsUnauthenticated(secret.status());
      return ErrorResponse(for_good ? absl::FailedPreconditionError(kText)
                                    : absl::UnavailableError(kText));
    }
    secrets = std::move(secret->data);
  }
  absl::StatusOr<std::string> page =
      maker_.Make(request, secrets, std::chrono::system_clock::now() + options_.page_time);
  if (!page.ok()) {
    ++counters_.failed;
    log_.Failed("page not made", page.status());
    return ErrorResponse(page.status());
  }
  ++counters_.pages;
  return {.content_type = "application/x-ndjson", .body = *std::move(page)};
}

}  // namespace cbt::kube::http_sidecar
