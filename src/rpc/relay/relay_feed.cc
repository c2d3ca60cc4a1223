#include "rpc/relay/relay_feed.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text.h"
#include "cbt/rpc/options.h"
#include "rpc/contract/resumption.h"
#include "rpc/contract/status.h"
#include "rpc/transport/message_builder.h"

namespace cbt::rpc {
namespace {

// An error of the plugin, for the relay's client.
absl::Status Broken(absl::string_view what) {
  return absl::InternalError(absl::StrCat("the plugin broke the contract: ", what));
}

MetadataRequest UpstreamRequest(const AdmittedRequest& request) {
  MetadataRequest upstream;
  upstream.base_snapshot_id = request.base_snapshot_id;
  upstream.target_snapshot_id = request.target_snapshot_id;
  upstream.starting_offset = static_cast<int64_t>(request.starting_offset);
  // Cut to the range of int32.
  upstream.max_results = std::min<int64_t>(request.max_results, INT32_MAX);
  upstream.secrets = request.secrets.Copy();
  return upstream;
}

}  // namespace

RelayFeed::RelayFeed(const RelayPlan& plan, Channel& plugin, const Contract& downstream,
                     AdmittedRequest request, std::shared_ptr<MessageSink> sink,
                     std::stop_token stop, Deadline deadline)
    : hold_(plan.calls),
      plan_(plan),
      downstream_(downstream),
      request_(std::move(request)),
      same_layout_(plan.upstream.types == downstream.types),
      sink_(std::move(sink)),
      stop_(std::move(stop)),
      // The plugin need not respect the starting offset or the limit: see Translate().
      checker_(0, 0),
      call_(plugin.NewCall(deadline)) {}

void RelayFeed::Begin() {
  begun_ = true;
  const MethodContract& method =
      request_.base_snapshot_id.has_value() ? plan_.upstream.delta : plan_.upstream.allocated;
  std::string path;
  std::string request;
  try {
    path = method.path;
    request = EncodeRequest(method, UpstreamRequest(request_));
  } catch (const std::bad_alloc&) {
    sink_->Complete(OutOfMemory(), {}, std::nullopt);
    return;
  }
  // From here on, only the end of the call releases this.
  self_ = shared_from_this();
  // Before the call starts: after that it may end at any time.
  on_stop_.emplace(stop_, [this] { call_->Cancel(); });
  AwaitPlugin();
  try {
    call_->Start(path, request, *this);
  } catch (const std::bad_alloc&) {
    // It has not started, and has no end.
    failure_ = OutOfMemory();
    OnEnd(failure_);
  }
}

void RelayFeed::Resume() {
  if (!begun_) {
    Begin();
  } else if (Forward()) {
    AwaitPlugin();
    call_->ReadOn();
  }
}

void RelayFeed::Close() {
  if (begun_) call_->Cancel();
}

bool RelayFeed::Forward() try {
  while (!pending_.empty()) {
    OutMessage message = std::move(pending_.front());
    pending_.pop_front();
    ++messages_;
    switch (sink_->Offer(std::move(message))) {
      case MessageSink::Want::kMore:
        break;
      case MessageSink::Want::kPause:
        // From here on, Resume() may run in another thread.
        return false;
      case MessageSink::Want::kNothing:
        call_->Cancel();
        return false;
    }
  }
  return true;
} catch (const std::bad_alloc&) {
  // A message may have been lost.
  failure_ = OutOfMemory();
  call_->Cancel();
  return false;
}

bool RelayFeed::OnMessage(absl::Cord message) try {
  StopAwaiting();
  if (!failure_.ok()) return false;
  absl::Status status;
  if (messages_ == 0 && pending_.empty()) status = Announce();
  if (status.ok()) status = Translate(message);
  if (!status.ok()) {
    // Reported when the call ends.
    failure_ = std::move(status);
    pending_.clear();
    call_->Cancel();
    return false;
  }
  if (!Forward()) return false;
  AwaitPlugin();
  return true;
} catch (const std::bad_alloc&) {
  failure_ = OutOfMemory();
  throw;
}

absl::Status RelayFeed::Announce() {
  if (call_->Initial(kSourceVersionKey) == kGivenTwice) return Broken(AbslView(kTwoVersions));
  Metadata initial =
      SummaryMetadata(ReadSummary([this](std::string_view key) { return call_->Initial(key); }));
  const std::string_view version = call_->Initial(kSourceVersionKey).value_or("");
  initial.emplace_back(kSourceVersionKey,
                       SourceVersionText(SourceVersion(request_.base_snapshot_id,
                                                       request_.target_snapshot_id, version),
                                         IsOfPlace(version)));
  sink_->Announce(std::move(initial));
  return absl::OkStatus();
}

absl::Status RelayFeed::Translate(const absl::Cord& message) {
  const bool trimming = !started_ && request_.starting_offset > 0;
  const bool limited = request_.max_results > 0;
  const bool fits = message.size() <= kMaxMessageBytes;
  if (!plan_.check_tuples && same_layout_ && !trimming && !limited && fits) {
    pending_.push_back({.bytes = message, .tuples = 0, .reported = 0});
    ++passed_unseen_;
    return absl::OkStatus();
  }
  absl::Status status = flat_.Decode(message, message_);
  if (status.ok()) status = TranslateType(plan_.upstream, message_);
  if (!status.ok()) return Broken(status.message());
  if (plan_.check_tuples) {
    if (absl::Status checked = checker_.Check(message_); !checked.ok()) {
      return Broken(checked.message());
    }
  }
  if (!header_.has_value()) header_ = {.type = message_.type, .capacity = message_.capacity};
  const TupleList& tuples = message_.tuples;
  const uint64_t before = passed_on().bytes();
  received_.Add(tuples.offsets(), tuples.lengths());
  const size_t from =
      started_ ? 0
               : CountTuplesBefore(tuples.offsets(), tuples.lengths(), request_.starting_offset);
  started_ = started_ || from < tuples.size();
  // Only the first tuples may be left out, so that nothing was passed on before.
  if (from > 0) passes_all_ = false;
  if (from == tuples.size() && (messages_ > 0 || !pending_.empty())) return absl::OkStatus();
  if (!passes_all_) {
    passed_on_.Add(tuples.offsets().subspan(from), tuples.lengths().subspan(from));
  }
  const bool whole = from == 0 && (!limited || tuples.size() <= request_.max_results);
  if (same_layout_ && whole && fits) {
    pending_.push_back(
        {.bytes = message, .tuples = tuples.size(), .reported = passed_on().bytes() - before});
    return absl::OkStatus();
  }
  Reencode(message_, from);
  return absl::OkStatus();
}

void RelayFeed::Reencode(const MetadataMessage& message, size_t from) {
  MessageBuilder builder(plan_.pool, TypeOnWire(downstream_, message.type), message.capacity,
                         request_.max_results, plan_.message_bytes);
  const std::span<const uint64_t> offsets = message.tuples.offsets();
  const std::span<const uint64_t> lengths = message.tuples.lengths();
  uint64_t reported = 0;
  const auto take = [&] {
    const uint64_t tuples = builder.tuples();
    pending_.push_back({.bytes = builder.Take(), .tuples = tuples, .reported = reported});
    reported = 0;
  };
  bool any = false;
  while (from < offsets.size()) {
    const size_t done = builder.Append(offsets.subspan(from), lengths.subspan(from));
    for (size_t i = 0; i < done; ++i) reported += lengths[from + i];
    from += done;
    if (builder.full()) {
      take();
      any = true;
    }
  }
  // A message without tuples is forwarded only if it is the first.
  if (builder.tuples() > 0 || !any) take();
}

void RelayFeed::CheckPlugin(std::chrono::milliseconds limit) {
  const Clock::duration since = awaited_since_;
  if (since == Clock::duration::zero() || Clock::now().time_since_epoch() - since <= limit) return;
  stalled_ = true;
  call_->Cancel();
}

// The final status of the stream.
absl::Status RelayFeed::Verdict(const absl::Status& status) {
  if (!failure_.ok()) return failure_;
  if (!status.ok()) {
    // The plugin did not end it.
    if (stop_.stop_requested()) return absl::CancelledError("the stream was cancelled");
    if (stalled_) {
      return absl::DeadlineExceededError("plugin: it sent nothing within the relay's time limit");
    }
    // A plugin that shuts down may cancel; the relay's client did not, so CANCELLED would be wrong.
    const absl::StatusCode code =
        absl::IsCancelled(status) ? absl::StatusCode::kUnavailable : status.code();
    return plan_.errors.ForClient({code, status.message()}, request_.secrets);
  }
  // Only a plugin that has come to its end says OK, and one with nothing to report may say no more.
  if (messages_ == 0 && plan_.require_message) {
    return Broken("the stream ended without a message");
  }
  if (call_->Trailing(kSourceVersionKey) == kGivenTwice) {
    return Broken(AbslView(kTwoVersions));
  }
  // The relay's own proof must never cover what the plugin's proof contradicts.
  const MetadataLookup trailing = [this](std::string_view key) { return call_->Trailing(key); };
  if (plan_.check_tuples || passed_unseen_ == 0) {
    std::string what;
    switch (CheckProof(trailing, received_, request_.starting_offset, header_, what,
                       ProofText::kNotQuoting)) {
      case ProofVerdict::kDiffers:
        return Broken(absl::StrCat("the stream does not match its proof: ", what));
      case ProofVerdict::kHolds:
        scope_ = ProofScope::kSource;
        break;
      case ProofVerdict::kHoldsForPlace:
        scope_ = ProofScope::kPlace;
        break;
      case ProofVerdict::kAbsent:
      case ProofVerdict::kHoldsFromRelay:
        break;
    }
  } else if (passed_unseen_ == messages_) {
    absl::StatusOr<Metadata> proof = CopyProof(trailing);
    if (!proof.ok())
      return Broken(absl::StrCat("its proof is malformed: ", proof.status().message()));
    copied_proof_ = *std::move(proof);
  }
  return absl::OkStatus();
}

std::optional<OutMessage> RelayFeed::MessageLeftOut() {
  // A client that resumes knows type and capacity from before, perhaps others than these.
  if (!request_.capacity.has_value() || request_.starting_offset > 0) return std::nullopt;
  header_ = {.type = BlockMetadataType::kVariableLength, .capacity = *request_.capacity};
  // The plugin does not vouch for it.
  scope_ = ProofScope::kRelay;
  MessageBuilder builder(plan_.pool, TypeOnWire(downstream_, header_->type), header_->capacity,
                         request_.max_results, plan_.message_bytes);
  return OutMessage{.bytes = builder.Take(), .tuples = 0, .reported = 0};
}

Metadata RelayFeed::TrailingMetadata() const {
  if (passed_unseen_ == 0) {
    return ProofMetadata(passed_on(), request_.starting_offset, header_, scope_);
  }
  // Nothing was decoded, so the relay can prove nothing; the plugin's proof holds because nothing
  // was changed.
  return copied_proof_;
}

void RelayFeed::OnEnd(const absl::Status& status) {
  // This must not be touched after the last reference is dropped, at the end.
  const std::shared_ptr<RelayFeed> self = std::move(self_);
  StopAwaiting();
  on_stop_.reset();
  absl::Status verdict;
  Metadata trailing;
  std::optional<OutMessage> last;
  try {
    verdict = Verdict(status);
    if (verdict.ok() && messages_ == 0) {
      verdict = Announce();
      if (verdict.ok()) last = MessageLeftOut();
    }
    if (verdict.ok()) trailing = TrailingMetadata();
  } catch (const std::bad_alloc&) {
    verdict = OutOfMemory();
  }
  sink_->Complete(std::move(verdict), std::move(trailing), std::move(last));
}

}  // namespace cbt::rpc
