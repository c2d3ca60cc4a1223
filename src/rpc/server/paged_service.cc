#include "rpc/server/paged_service.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "rpc/contract/resumption.h"
#include "rpc/contract/server_event.h"
#include "rpc/contract/status.h"
#include "rpc/server/message_producer.h"
#include "rpc/server/stream_telemetry.h"
#include "rpc/server/timed_call.h"
#include "rpc/transport/flat_message.h"
#include "wire/proto_writer.h"

namespace cbt::rpc {
namespace {

// Fields of ListSnapshotDeltasResponse and of BlockSnapshotChangedBlock.
constexpr uint32_t kVolumeSizeField = 1;
constexpr uint32_t kNextTokenField = 2;
constexpr uint32_t kChangedBlocksField = 3;

// Bytes that the token and the size of a page may take.
constexpr size_t kPageExtra = 256;

// A page under construction. Tuples and blocks have the same encoding: field 3, with two varints.
struct PageContents {
  std::string blocks;
  uint64_t tuples = 0;
  uint64_t reported = 0;
};

}  // namespace

// One call. Lives until the transport and the task in the executor have released it. Like a stream,
// it does not wait for the provider when the client has disconnected.
class PagedService::Page final : public CallHandler,
                                 public TimedCall,
                                 public std::enable_shared_from_this<Page> {
 public:
  // `call` is valid until OnDone(); the registry and the executor must outlive the page's call.
  Page(std::shared_ptr<const Shared> shared, StreamRegistry& registry, ServerCall& call,
       StreamSlot slot, MetadataRequest request, const Telemetry& telemetry, const StreamKind& kind)
      : TimedCall(call),
        shared_(std::move(shared)),
        registry_(registry),
        request_(std::move(request)),
        deadline_(call.deadline()),
        slot_(std::move(slot)),
        watch_(telemetry, kind) {
    watch_.Admitted();  // the contract has no access control
  }

  // The registry does not take the page, and nothing else will be called.
  void Refuse(const absl::Status& status) noexcept { watch_.End(status, EndReason::kRefused); }

  // Call once, after the registry holds the page; the executor must outlive the page's task.
  void Start(Executor& executor) {
    try {
      executor.Schedule([self = shared_from_this()] { self->Run(); });
    } catch (const std::bad_alloc&) {
      End(OutOfMemory());
    }
  }

  // The caller keeps the page alive. Answers first: the provider's error after being stopped is not
  // the status of the page.
  void End(absl::Status status) override {
    Answer(std::move(status), {});
    stop_.request_stop();
  }

  void OnCancel() override {
    NoteReason(EndReason::kClient);
    End(MakeStatusNoThrow(absl::StatusCode::kCancelled, "the call was cancelled"));
  }

  void OnDone() override {
    Done();
    registry_.Remove(this);  // may destroy this
  }

 private:
  bool Ending() const override { return answered_; }

  void Run() {
    absl::Cord message;
    absl::Status status = Make(message);
    Answer(std::move(status), std::move(message));
  }

  // Ends the call; only the first call counts.
  void Answer(absl::Status status, absl::Cord message) {
    {
      std::lock_guard lock(mutex_);
      if (answered_) return;
      answered_ = true;
      clock_.StartSending();
      if (status.ok()) status = AddVersion();
      if (status.ok()) watch_.Message(tuples_, reported_, message.size());
      watch_.End(status, reason());
    }
    if (status.ok()) {
      call_.WriteAndFinish(std::move(message));
    } else {
      call_.Finish(std::move(status));
    }
  }

  // Requires the lock. A page without its source version can't be continued.
  absl::Status AddVersion() try {
    call_.AddInitialMetadata(kSourceVersionKey, SourceVersionText(version_, of_place_));
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }

  absl::Status Make(absl::Cord& message) try {
    AdmittedRequest admitted{.base_snapshot_id = request_.base_snapshot_id,
                             .target_snapshot_id = request_.target_snapshot_id,
                             .starting_offset = 0,
                             .max_results = static_cast<uint32_t>(request_.max_results),
                             .secrets = {}};
    std::optional<PagePlace> place;
    if (!request_.page_token.empty()) {
      absl::StatusOr<PagePlace> opened = shared_->tokens.Open(
          request_.base_snapshot_id, request_.target_snapshot_id, request_.page_token);
      if (!opened.ok()) return opened.status();
      place = *std::move(opened);
      admitted.starting_offset = place->offset;
    }
    const Secrets secrets = std::move(request_.secrets);
    absl::StatusOr<ShapedCursor> source =
        OpenShapedCursor(shared_->provider, admitted,
                         {.stop = stop_.get_token(), .secrets = secrets, .deadline = deadline_},
                         shared_->options.shape);
    if (!source.ok()) return source.status();
    if (place.has_value() && place->source_version != source->version) {
      return absl::AbortedError(
          "starting_token: the snapshot was replaced or changed since the last page; discard what "
          "was received and start without a token");
    }

    PageContents page;
    absl::StatusOr<std::optional<uint64_t>> next = Fill(*source->cursor, admitted, page);
    if (!next.ok()) return next.status();
    std::string bytes;
    wire::AppendVarintField(bytes, kVolumeSizeField, source->capacity);
    if (next->has_value()) {
      wire::AppendBytesField(
          bytes, kNextTokenField,
          shared_->tokens.Seal(request_.base_snapshot_id, request_.target_snapshot_id,
                               {.offset = **next, .source_version = source->version}));
    }
    bytes += page.blocks;
    version_ = std::move(source->version);
    of_place_ = source->may_change_unseen;
    tuples_ = page.tuples;
    reported_ = page.reported;
    message = absl::Cord(std::move(bytes));
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  } catch (...) {
    return MakeStatusNoThrow(absl::StatusCode::kInternal, "the provider threw an exception");
  }

  // Returns the offset of the next page; empty after the last.
  absl::StatusOr<std::optional<uint64_t>> Fill(ExtentCursor& cursor,
                                               const AdmittedRequest& admitted,
                                               PageContents& page) {
    const size_t most_bytes = shared_->options.message_bytes - kPageExtra;
    uint64_t left =
        admitted.max_results == 0 ? std::numeric_limits<uint64_t>::max() : admitted.max_results;
    ExtentBatch batch;
    uint64_t end = admitted.starting_offset;
    for (;;) {
      if (stop_.stop_requested()) return absl::CancelledError("the call was cancelled");
      absl::StatusOr<Step> step = cursor.Next(batch);
      if (!step.ok()) return step.status();
      // A cursor that rounds down may return what an earlier page had.
      size_t taken = CountTuplesBefore(batch.offsets(), batch.lengths(), admitted.starting_offset);
      while (taken < batch.size() && left > 0) {
        const size_t room = (most_bytes - page.blocks.size()) / kMaxTupleBytes;
        const size_t count = std::min({batch.size() - taken, room, static_cast<size_t>(left)});
        if (count == 0) break;
        const size_t before = page.blocks.size();
        page.blocks.resize(before + count * kMaxTupleBytes);
        const EncodedTuples done = EncodeTuples(
            batch.offsets().subspan(taken, count), batch.lengths().subspan(taken, count),
            {reinterpret_cast<uint8_t*>(page.blocks.data()) + before, count * kMaxTupleBytes});
        page.blocks.resize(before + done.bytes);
        for (size_t i = 0; i < done.tuples; ++i) page.reported += batch[taken + i].length;
        taken += done.tuples;
        left -= done.tuples;
        page.tuples += done.tuples;
        end = batch[taken - 1].end();
      }
      // Looks one tuple ahead, so that no page is needlessly empty.
      if (taken < batch.size()) return std::optional<uint64_t>(std::min(end, cursor.capacity()));
      if (*step == Step::kComplete) return std::optional<uint64_t>();
    }
  }

  const std::shared_ptr<const Shared> shared_;
  StreamRegistry& registry_;
  MetadataRequest request_;
  const std::optional<std::chrono::system_clock::time_point> deadline_;
  const StreamSlot slot_;
  std::stop_source stop_;
  std::string version_;
  bool of_place_ = false;  // MetadataSource::may_change_unseen
  uint64_t tuples_ = 0;
  uint64_t reported_ = 0;
  bool answered_ = false;  // the transport has the answer, or is about to get it
  StreamTelemetry watch_;
};

PagedService::PagedService(SnapshotProvider& provider, PageTokens tokens,
                           const StreamOptions& options, StreamRegistry& registry,
                           Executor& executor, const Telemetry& telemetry)
    : shared_(new Shared{.provider = provider, .tokens = std::move(tokens), .options = options}),
      registry_(registry),
      executor_(executor),
      telemetry_(telemetry) {
  static_assert(kChangedBlocksField == 3, "what EncodeTuples() writes");
  AddMethod(kListSnapshotDeltas.path,
            [this](ServerCall& call, const absl::Cord& request) { return Open(call, request); });
}

absl::StatusOr<CallHandler*> PagedService::Open(ServerCall& call, const absl::Cord& request) {
  StreamKind kind{.api = Api::kPaged};
  const auto refused = [&](absl::Status status) {
    StreamTelemetry(telemetry_, kind).End(status, EndReason::kRefused);
    return status;
  };
  absl::StatusOr<StreamSlot> slot = registry_.TakeSlot();
  if (!slot.ok()) {
    Report(telemetry_, ServerEvent::kStreamRefused);
    return refused(slot.status());
  }
  absl::StatusOr<MetadataRequest> decoded =
      DecodeRequest(kListSnapshotDeltas, FlatMessage().Of(request));
  if (!decoded.ok()) return refused(decoded.status());
  kind.delta = decoded->base_snapshot_id.has_value();
  kind.resumed = !decoded->page_token.empty();
  if (absl::Status status = CheckRequest(kListSnapshotDeltas, *decoded); !status.ok()) {
    return refused(status);
  }
  const auto page = std::make_shared<Page>(shared_, registry_, call, *std::move(slot),
                                           *std::move(decoded), telemetry_, kind);
  if (absl::Status status = registry_.Add(page); !status.ok()) {
    page->Refuse(status);
    Report(telemetry_, ServerEvent::kStreamRefused);
    return status;
  }
  page->Start(executor_);
  // The registry keeps it until OnDone(), which comes only after this has returned.
  return page.get();
}

}  // namespace cbt::rpc
