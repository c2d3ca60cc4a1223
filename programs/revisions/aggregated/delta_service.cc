#include "programs/revisions/aggregated/delta_service.h"

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cbt::kube::aggregated {
namespace {

// Beside the wait, which doubles: a leader of a driver's service that is gone is replaced
// meanwhile.
constexpr std::chrono::seconds kLongestWait{2};

// Which data the offsets of a page belong to: the snapshots, by their uids and handles, the size of
// blocks, and what the driver says about its data.
std::string VersionOf(const SnapshotPair& pair, const PageHead& head) {
  std::string identity = absl::StrCat(pair.target.uid, "/", pair.target.content_uid);
  if (pair.base.has_value()) {
    absl::StrAppend(&identity, "-", pair.base->uid, "/", pair.base->content_uid);
  }
  const std::string block_size = std::to_string(head.block_size);
  const std::array<std::string_view, 5> parts = {
      identity, pair.target.handle,
      pair.base.has_value() ? std::string_view(pair.base->handle) : std::string_view(), block_size,
      head.source_version};
  const cluster::QuestionKey key = cluster::KeyOf(parts);
  return absl::BytesToHexString({reinterpret_cast<const char*>(key.data()), 16});
}

// Finds the error's text in the log.
std::string NewErrorId() {
  return absl::StrCat(absl::Hex(std::random_device()(), absl::kZeroPad8));
}

// The creator of the object reads this: what the driver's service has answered, but nothing of
// where it is, or of what the network says.
absl::Status ForTenant(const absl::Status& error, const std::string& id) {
  switch (error.code()) {
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInternal:
      return error;
    default:
      return absl::Status(error.code(),
                          absl::StrCat("the driver's service can't be asked now (error ", id, ")"));
  }
}

// Another replica, or the same one in a moment, may answer: nothing of the page is used.
bool MayHelpToRetry(const absl::Status& error) {
  return absl::IsUnavailable(error) || absl::IsResourceExhausted(error);
}

}  // namespace

absl::StatusOr<std::optional<cluster::SecretName>> DeltaService::SecretFor(
    const VolumeSnapshotDelta& request, const UserInfo& user, const SnapshotPair& pair) {
  if (request.secret.empty()) return objects_.FindSecret(pair.target);
  // The driver's sidecar reads the secret with rights of its own.
  SubjectAccessReview question;
  question.resource =
      SubjectAccessReview::ResourceAttributes{.name_space = request.name_space,
                                              .verb = "get",
                                              .version = std::string(kSecrets.version),
                                              .resource = std::string(kSecrets.plural),
                                              .name = request.secret};
  question.user = user;
  if (absl::Status may = reviewer_.Wait(question); !may.ok()) return may;
  return std::optional(
      cluster::SecretName{.name_space = request.name_space, .name = request.secret});
}

absl::StatusOr<std::string> DeltaService::Answer(const VolumeSnapshotDelta& request,
                                                 const UserInfo& user) {
  const absl::StatusOr<SnapshotPair> pair =
      objects_.FindSnapshots(request.name_space, request.base, request.target);
  if (!pair.ok()) return pair.status();
  absl::StatusOr<DriverDiscovery> service = objects_.FindDriver(pair->target.driver);
  if (!service.ok()) return service.status();
  const absl::StatusOr<std::optional<cluster::SecretName>> secret = SecretFor(request, user, *pair);
  if (!secret.ok()) return secret.status();
  DeltaPageRequest page = {
      .target_snapshot_id = pair->target.handle,
      .block_size = service->block_size,
      .starting_block = request.offset,
      .max_blocks =
          std::min(request.limit == 0 ? options_.page_blocks : request.limit, kMaxPageBlocks)};
  if (pair->base.has_value()) page.base_snapshot_id = pair->base->handle;
  if (secret->has_value()) {
    page.secret_namespace = (*secret)->name_space;
    page.secret_name = (*secret)->name;
  }
  if (!Enter(pair->target.driver)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too many pages of the driver ", pair->target.driver, " at once"));
  }
  const absl::Cleanup leave = [&] { Leave(pair->target.driver); };
  return ReadPage(request, *std::move(service), *pair, page);
}

bool DeltaService::Enter(const std::string& driver) {
  const std::lock_guard lock(mutex_);
  size_t& asked = asked_[driver];
  if (asked >= std::max<size_t>(options_.threads / 2, 1)) return false;
  ++asked;
  return true;
}

void DeltaService::Leave(const std::string& driver) {
  const std::lock_guard lock(mutex_);
  const auto found = asked_.find(driver);
  if (--found->second == 0) asked_.erase(found);
}

absl::StatusOr<std::string> DeltaService::ReadPage(const VolumeSnapshotDelta& request,
                                                   DriverDiscovery service,
                                                   const SnapshotPair& pair,
                                                   const DeltaPageRequest& page) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + options_.page_time;
  const Clock::time_point last_try = Clock::now() + options_.retry_time;
  DeltaAnswer answer(request, page.max_blocks, service.block_size);
  for (std::chrono::milliseconds wait = options_.retry_wait;;
       wait = std::min<std::chrono::milliseconds>(wait * 2, kLongestWait)) {
    PageReader reader(page);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    const absl::Status status =
        upstream_.ReadPage(service, page, std::max(left, std::chrono::milliseconds(1)), reader,
                           [&](const PageBlock& block) { answer.Add(block); });
    if (status.ok()) {
      const std::string version = VersionOf(pair, reader.head());
      if (!request.source_version.empty() && request.source_version != version) {
        return absl::AbortedError(
            "the snapshots are not those of the pages before: discard these, and start again from "
            "offset 0 without the annotation");
      }
      ++(reader.end().more ? counters_.continued : counters_.completed);
      return answer.Finish(reader.head(), reader.end(), version);
    }
    answer.Clear();
    if (!MayHelpToRetry(status) || Clock::now() + wait >= last_try) {
      ++counters_.failed;
      const std::string id = NewErrorId();
      log_.Failed("page failed", status,
                  {{.key = "id", .value = id},
                   {.key = "driver", .value = pair.target.driver},
                   {.key = "namespace", .value = request.name_space},
                   {.key = "target", .value = request.target}});
      return answer.Fail(ForTenant(status, id));
    }
    ++counters_.retries;
    std::this_thread::sleep_for(wait);
    // The driver's service may have moved. Blocks of another size are not those that were asked
    // for.
    absl::StatusOr<DriverDiscovery> now = objects_.FindDriver(pair.target.driver);
    if (now.ok() && now->block_size == service.block_size) service = *std::move(now);
  }
}

}  // namespace cbt::kube::aggregated
