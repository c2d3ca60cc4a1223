#include "programs/cosi/sidecar/driver_calls.h"

#include <cstdint>
#include <span>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "net/address.h"
#include "rpc/client/connect.h"
#include "rpc/client/unary_call.h"

namespace cbt::kube::cosi {
namespace {

std::span<const uint8_t> BytesOf(const Secret& answer) {
  const std::string_view text = answer.Reveal();
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

absl::Status GoneIsFine(const absl::Status& status) {
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DriverCalls>> DriverCalls::Create(const std::string& address,
                                                                 std::chrono::milliseconds time,
                                                                 OnCall on_call) {
  const absl::StatusOr<net::Address> parsed = net::ParseAddress(address);
  if (!parsed.ok()) return parsed.status();
  absl::StatusOr<std::shared_ptr<rpc::Channel>> channel = rpc::ConnectForGood(*parsed, {});
  if (!channel.ok()) return channel.status();
  return std::unique_ptr<DriverCalls>(
      new DriverCalls(*std::move(channel), time, std::move(on_call)));
}

absl::StatusOr<Secret> DriverCalls::Call(const char* method, const std::string& request,
                                         const std::stop_token& stop) {
  rpc::UnaryCall call(*channel_, std::chrono::system_clock::now() + time_);
  absl::StatusOr<absl::Cord> answer =
      call.Run(absl::StrCat("/cosi.v1alpha1.Provisioner/", method), request, stop);
  on_call_(method, answer.status().code());
  if (!answer.ok()) return answer.status();
  return Secret(std::string_view(answer->Flatten().data(), answer->size()));
}

absl::StatusOr<std::string> DriverCalls::Name(const std::stop_token& stop) {
  const absl::StatusOr<Secret> answer = Call("ProvisionerGetInfo", "", stop);
  if (!answer.ok()) return answer.status();
  return DecodeInfo(BytesOf(*answer));
}

absl::StatusOr<std::string> DriverCalls::CreateBucket(const std::string& name,
                                                      const Object& protocol,
                                                      const Parameters& parameters) {
  const absl::StatusOr<std::string> request = EncodeCreate(name, protocol, parameters);
  if (!request.ok()) return request.status();
  const absl::StatusOr<Secret> answer =
      Call("ProvisionerCreateBucket", *request, stop_.get_token());
  if (!answer.ok()) return answer.status();
  return DecodeCreate(BytesOf(*answer));
}

absl::Status DriverCalls::DeleteBucket(const std::string& bucket_id) {
  return GoneIsFine(
      Call("ProvisionerDeleteBucket", EncodeDelete(bucket_id), stop_.get_token()).status());
}

absl::StatusOr<GrantAnswer> DriverCalls::Grant(const std::string& bucket_id,
                                               const std::string& account_name,
                                               const std::string& policy,
                                               const Parameters& parameters) {
  const absl::StatusOr<Secret> answer =
      Call("ProvisionerGrantBucketAccess", EncodeGrant(bucket_id, account_name, policy, parameters),
           stop_.get_token());
  if (!answer.ok()) return answer.status();
  return DecodeGrant(BytesOf(*answer));
}

absl::Status DriverCalls::Revoke(const std::string& bucket_id, const std::string& account_id) {
  return GoneIsFine(
      Call("ProvisionerRevokeBucketAccess", EncodeRevoke(bucket_id, account_id), stop_.get_token())
          .status());
}

bool IsWorthRetry(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return false;
    default:
      return true;
  }
}

}  // namespace cbt::kube::cosi
