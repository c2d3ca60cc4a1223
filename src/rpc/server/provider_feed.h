// Produces the messages of a stream from a SnapshotProvider.
#ifndef CBT_RPC_SERVER_PROVIDER_FEED_H_
#define CBT_RPC_SERVER_PROVIDER_FEED_H_

#include <memory>
#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "cbt/executor.h"
#include "rpc/server/message_producer.h"
#include "rpc/server/outbound_feed.h"

namespace cbt::rpc {

// At most one thread works at a time: it fills messages while there is room for them, and then
// ends. That is a task in the executor, and for a source that never blocks also the thread that
// calls Resume(), which has just made room: the message goes on its way while it is in that
// processor's cache. What takes longer than a moment there goes on in the executor. The source is
// always destroyed in the executor, because that may block; only if there is no memory for a task,
// it is destroyed in the calling thread.
class ProviderFeed final : public OutboundFeed, public std::enable_shared_from_this<ProviderFeed> {
 public:
  // The executor must outlive the feed.
  ProviderFeed(Executor& executor, std::unique_ptr<MessageProducer> producer,
               std::shared_ptr<MessageSink> sink, std::stop_token stop);

  void Resume() override;
  void Close() override;
  void Compact() noexcept override;

 private:
  // How the stream ends, and what remains to be sent.
  struct Ending {
    absl::Status status;
    Metadata trailing = {};
    std::optional<OutMessage> last = {};
  };

  void Schedule();
  void Produce();
  void ProduceHere();
  // Empty if the work continues later, or is no longer needed.
  std::optional<Ending> Work(MessageProducer::Clock::duration slice);
  void End(Ending ending);
  void Detach();

  Executor& executor_;
  const std::stop_token stop_;
  // Owned by the task.
  std::unique_ptr<MessageProducer> producer_;
  std::shared_ptr<MessageSink> sink_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_SERVER_PROVIDER_FEED_H_
