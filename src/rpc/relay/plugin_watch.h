// Ends calls to a plugin that sends nothing.
#ifndef CBT_RPC_RELAY_PLUGIN_WATCH_H_
#define CBT_RPC_RELAY_PLUGIN_WATCH_H_

#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

namespace cbt::rpc {

// A call that knows how long it has waited for the plugin, as opposed to its own client.
class WatchedCall {
 public:
  virtual ~WatchedCall() = default;
  // Ends the call if it has waited longer than `limit`. Called from any thread at any time.
  virtual void CheckPlugin(std::chrono::milliseconds limit) = 0;
};

// Checks its calls a few times within the limit, at least every second. Thread safe.
class PluginWatch {
 public:
  // `limit` zero: checks nothing.
  explicit PluginWatch(std::chrono::milliseconds limit);
  ~PluginWatch();
  PluginWatch(const PluginWatch&) = delete;
  PluginWatch& operator=(const PluginWatch&) = delete;

  // Does not keep calls alive; drops those that are gone.
  void Add(std::weak_ptr<WatchedCall> call);

 private:
  void Run();

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::weak_ptr<WatchedCall>> calls_;
  bool closing_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace cbt::rpc

#endif  // CBT_RPC_RELAY_PLUGIN_WATCH_H_
