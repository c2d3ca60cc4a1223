#include "cbt/kube/client.h"

#include <utility>

#include "cbt/kube/typed_objects.h"
#include "kube/client/answer.h"
#include "kube/client/call_state.h"
#include "kube/client/core.h"
#include "kube/client/requests.h"

namespace cbt::kube {

Client::Client(std::shared_ptr<Core> core) : core_(std::move(core)) {}

Client::~Client() { core_->Stop(); }

absl::StatusOr<std::unique_ptr<Client>> Client::Create(Config config, ClientOptions options) {
  absl::StatusOr<std::shared_ptr<Core>> core = Core::Create(config, options);
  if (!core.ok()) return core.status();
  return std::unique_ptr<Client>(new Client(*std::move(core)));
}

const std::string& Client::default_namespace() const noexcept { return core_->name_space(); }

ClientCounters Client::counters() const { return core_->counters(); }

absl::Status Client::WrongObject(const Resource& resource, const absl::Status& error) {
  return WrongAnswer(resource.plural, std::string(error.message()));
}

Call Client::GetAsync(const Resource& resource, std::string_view name_space, std::string_view name,
                      const GetOptions& options, ResultCallback<Object> done) {
  return core_->BeginObject(GetRequest(resource, name_space, name, options), options.timeout,
                            std::move(done));
}

Call Client::CreateAsync(const Resource& resource, const Object& object,
                         const WriteOptions& options, ResultCallback<Object> done) {
  return core_->BeginObject(CreateRequest(resource, object, options), options.timeout,
                            std::move(done));
}

Call Client::UpdateAsync(const Resource& resource, const Object& object,
                         const WriteOptions& options, ResultCallback<Object> done) {
  return core_->BeginObject(UpdateRequest(resource, object, options), options.timeout,
                            std::move(done));
}

Call Client::PatchAsync(const Resource& resource, std::string_view name_space,
                        std::string_view name, PatchType type, std::string_view patch,
                        const WriteOptions& options, ResultCallback<Object> done) {
  return core_->BeginObject(PatchRequest(resource, name_space, name, type, patch, options),
                            options.timeout, std::move(done));
}

Call Client::ApplyAsync(const Resource& resource, const Object& object, const ApplyOptions& options,
                        ResultCallback<Object> done) {
  return core_->BeginObject(ApplyRequest(resource, object, options), options.timeout,
                            std::move(done));
}

Call Client::DeleteAsync(const Resource& resource, std::string_view name_space,
                         std::string_view name, const DeleteOptions& options, StatusCallback done) {
  absl::StatusOr<ApiRequest> request = DeleteRequest(resource, name_space, name, options);
  Expected expected;
  if (request.ok()) expected = request->expected;
  return core_->Begin(std::move(request), options.timeout,
                      [expected = std::move(expected),
                       done = std::move(done)](const absl::StatusOr<Answer>& answer) {
                        done(OrOutOfMemory([&] {
                          return answer.ok() ? ObjectOf(*answer, expected).status()
                                             : answer.status();
                        }));
                      });
}

Call Client::ListAsync(const Resource& resource, std::string_view name_space,
                       const ListOptions& options, ResultCallback<ObjectList> done) {
  absl::StatusOr<ApiRequest> request = ListRequest(resource, name_space, options);
  Expected expected;
  if (request.ok()) expected = request->expected;
  return core_->Begin(
      std::move(request), options.timeout,
      [expected = std::move(expected), done = std::move(done)](absl::StatusOr<Answer> answer) {
        done(OrOutOfMemory([&]() -> absl::StatusOr<ObjectList> {
          if (!answer.ok()) return answer.status();
          return ListOf(*answer, expected);
        }));
      });
}

Call Client::CreateTokenAsync(std::string_view name_space, std::string_view service_account,
                              const TokenOptions& options,
                              ResultCallback<ServiceAccountToken> done) {
  TokenRequest request;
  request.audiences = options.audiences;
  request.expiration_seconds = options.lifetime.count();
  Object object = request.Encode();
  object.SetString({"metadata", "namespace"}, name_space);
  WriteOptions write;
  write.subresource = "token";
  write.name = service_account;
  absl::StatusOr<ApiRequest> api = CreateRequest(kServiceAccounts, object, write);
  // A token that got lost harms no one.
  if (api.ok()) api->wire.repeatable = true;
  if (api.ok()) api->expected.kind = "TokenRequest";
  return core_->BeginObject(std::move(api), options.timeout,
                            [done = std::move(done)](const absl::StatusOr<Object>& answer) {
                              done(OrOutOfMemory([&] { return TokenOf(answer); }));
                            });
}

absl::StatusOr<ServiceAccountToken> Client::TokenOf(const absl::StatusOr<Object>& answer) {
  if (!answer.ok()) return answer.status();
  absl::StatusOr<TokenRequest> granted = TokenRequest::Decode(*answer);
  if (!granted.ok()) return WrongObject(kServiceAccounts, granted.status());
  if (!granted->status || granted->status->token.empty()) {
    return WrongAnswer("token", "it holds none");
  }
  return ServiceAccountToken{.token = std::move(granted->status->token),
                             .expires = granted->status->expiration};
}

Call Client::SendAsync(Request request, const CallOptions& options, ResultCallback<Response> done) {
  absl::StatusOr<ApiRequest> api = ApiRequest();
  absl::StatusOr<WireRequest> wire = RawRequest(std::move(request));
  if (wire.ok()) {
    api->wire = *std::move(wire);
  } else {
    api = wire.status();
  }
  return core_->Begin(std::move(api), options.timeout,
                      [done = std::move(done)](absl::StatusOr<Answer> answer) {
                        done(OrOutOfMemory([&]() -> absl::StatusOr<Response> {
                          if (!answer.ok()) return answer.status();
                          return Response{.http_code = answer->http_code,
                                          .content_type = std::move(answer->content_type),
                                          .body = std::string(answer->body.view())};
                        }));
                      });
}

Call Client::StreamAsync(Request request, const StreamCallOptions& options,
                         std::function<void()> on_open, OnLine on_line, StatusCallback done) {
  return core_->BeginStream(RawRequest(std::move(request)), options,
                            StreamSink{.on_open = std::move(on_open),
                                       .on_line = std::move(on_line),
                                       .max_line = options.max_line},
                            std::move(done));
}

}  // namespace cbt::kube
