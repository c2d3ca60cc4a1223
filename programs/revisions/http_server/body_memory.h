// What the bodies of requests occupy, and who holds it.
#ifndef CBT_PROGRAMS_REVISIONS_HTTP_SERVER_BODY_MEMORY_H_
#define CBT_PROGRAMS_REVISIONS_HTTP_SERVER_BODY_MEMORY_H_

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace cbt::kube::http_server {

// Bytes of one pool, counted for each peer. Thread safe.
class BodyMemory : public std::enable_shared_from_this<BodyMemory> {
 public:
  // The memory of one body. Gives it back at its end, which may come after that of the server.
  class Share {
   public:
    Share(std::shared_ptr<BodyMemory> memory, std::string peer)
        : memory_(std::move(memory)), peer_(std::move(peer)) {}
    ~Share() { memory_->Release(peer_, bytes_); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    // Becomes `bytes` large, if it is smaller. False: the pool or the peer's part of it is full.
    bool Grow(size_t bytes);
    size_t bytes() const noexcept { return bytes_; }

   private:
    const std::shared_ptr<BodyMemory> memory_;
    const std::string peer_;
    size_t bytes_ = 0;
  };

  // `peer_limit`: what one peer may hold.
  BodyMemory(size_t limit, size_t peer_limit) : limit_(limit), peer_limit_(peer_limit) {}

  size_t HeldBy(const std::string& peer) const;

 private:
  bool Take(const std::string& peer, size_t bytes);
  void Release(const std::string& peer, size_t bytes) noexcept;

  const size_t limit_;
  const size_t peer_limit_;
  mutable std::mutex mutex_;
  size_t held_ = 0;
  std::map<std::string, size_t> peers_;  // those that hold something
};

}  // namespace cbt::kube::http_server

#endif  // CBT_PROGRAMS_REVISIONS_HTTP_SERVER_BODY_MEMORY_H_
