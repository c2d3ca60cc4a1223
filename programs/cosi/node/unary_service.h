// Methods with one message in each direction that may block: each call has a thread.
#ifndef CBT_PROGRAMS_COSI_NODE_UNARY_SERVICE_H_
#define CBT_PROGRAMS_COSI_NODE_UNARY_SERVICE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "rpc/transport/server_call.h"

namespace cbt::kube::cosi {

// Must outlive its server.
class UnaryService final : public rpc::Service {
 public:
  using Method = std::function<absl::StatusOr<std::string>(std::span<const uint8_t> request)>;

  // Calls that wait for a thread. Further ones get RESOURCE_EXHAUSTED.
  static constexpr size_t kMaxWaiting = 256;

  // Throws std::system_error.
  explicit UnaryService(size_t threads);
  // After the server's end.
  ~UnaryService() override;

  // Before the service is given to a server.
  void Add(const std::string& path, Method method);

 private:
  class Call;
  struct Job {
    Call* call = nullptr;
    absl::Cord request = {};
  };

  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool ended_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace cbt::kube::cosi

#endif  // CBT_PROGRAMS_COSI_NODE_UNARY_SERVICE_H_
