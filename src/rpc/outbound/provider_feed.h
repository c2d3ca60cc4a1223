// The messages of a stream from a SnapshotProvider, made on an executor.
#ifndef CBT_RPC_OUTBOUND_PROVIDER_FEED_H_
#define CBT_RPC_OUTBOUND_PROVIDER_FEED_H_

#include <memory>
#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "cbt/executor.h"
#include "rpc/outbound/message_producer.h"
#include "rpc/outbound/outbound_feed.h"

namespace cbt::rpc {

// At most one task in the executor, which fills messages while there is room for them and goes away
// when there is none. The source dies in the executor too, because that may block; only where
// memory for a task is short it dies in the thread that would have asked for one.
class ProviderFeed final : public OutboundFeed, public std::enable_shared_from_this<ProviderFeed> {
 public:
  // The executor must outlive the feed.
  ProviderFeed(Executor& executor, std::unique_ptr<MessageProducer> producer,
               std::shared_ptr<MessageSink> sink, std::stop_token stop);

  void Resume() override;
  void Close() override;

 private:
  // How the stream ends, and what is still to be sent.
  struct Ending {
    absl::Status status;
    Metadata trailing = {};
    std::optional<OutMessage> last = {};
  };

  void Produce();
  // None when the work goes on some other time, or is of no use any more.
  std::optional<Ending> Work();
  void End(Ending ending);
  void LetGo();

  Executor& executor_;
  const std::stop_token stop_;
  // Belong to the task.
  std::unique_ptr<MessageProducer> producer_;
  std::shared_ptr<MessageSink> sink_;
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_OUTBOUND_PROVIDER_FEED_H_
