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

// A call that knows since when it has waited for the plugin, and not for its own client.
class WatchedCall {
 public:
  virtual ~WatchedCall() = default;
  // Ends the call if it has waited for longer than `limit`. Called from any thread at any time.
  virtual void CheckPlugin(std::chrono::milliseconds limit) = 0;
};

// Looks at its calls a few times within the limit, at least every second. Thread safe.
class PluginWatch {
 public:
  // `limit` zero: looks at nothing.
  explicit PluginWatch(std::chrono::milliseconds limit);
  ~PluginWatch();
  PluginWatch(const PluginWatch&) = delete;
  PluginWatch& operator=(const PluginWatch&) = delete;

  // Holds no call: one that is gone is forgotten.
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
