#include "bench/source/slow_files.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <queue>
#include <random>
#include <thread>
#include <vector>

#define FUSE_USE_VERSION 31
#include <fuse_lowlevel.h>

namespace cbt::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBlock = 4096;
// The content repeats after this many bytes. The pattern is one largest read longer.
constexpr size_t kPeriod = size_t{4} << 20;
constexpr size_t kLongestRead = size_t{1} << 20;
constexpr fuse_ino_t kBase = 2;
constexpr fuse_ino_t kTarget = 3;
constexpr double kForever = 1e6;
constexpr long kFuseMagic = 0x65735546;

class Server {
 public:
  Server(Speed speed, uint64_t file_bytes) : speed_(speed), file_bytes_(file_bytes) {
    std::mt19937_64 random(7);
    base_.resize(kPeriod + kLongestRead);
    for (size_t i = 0; i < kPeriod; i += 8) {
      const uint64_t word = random();
      std::memcpy(&base_[i], &word, 8);
    }
    target_ = base_;
    for (size_t block = 0; block < kPeriod; block += kBlock) {
      if (random() % 100 == 0) target_[block + random() % kBlock] ^= 1;
    }
    std::copy_n(base_.begin(), kLongestRead, base_.begin() + kPeriod);
    std::copy_n(target_.begin(), kLongestRead, target_.begin() + kPeriod);
  }

  // Serves until the mount goes away.
  int Run(const std::string& directory) {
    std::string name = "slow_files";
    char* argv[] = {name.data(), nullptr};
    fuse_args args{1, argv, 0};
    fuse_lowlevel_ops ops{};
    ops.init = [](void*, fuse_conn_info* connection) {
      connection->max_background = 512;
      connection->congestion_threshold = 512;
    };
    ops.lookup = [](fuse_req_t request, fuse_ino_t parent, const char* entry_name) {
      const bool base = std::strcmp(entry_name, "base") == 0;
      if (parent != FUSE_ROOT_ID || (!base && std::strcmp(entry_name, "target") != 0)) {
        fuse_reply_err(request, ENOENT);
        return;
      }
      fuse_entry_param entry{};
      entry.ino = base ? kBase : kTarget;
      entry.attr = Of(request).Attributes(entry.ino);
      entry.attr_timeout = entry.entry_timeout = kForever;
      fuse_reply_entry(request, &entry);
    };
    ops.getattr = [](fuse_req_t request, fuse_ino_t inode, fuse_file_info*) {
      const struct stat attributes = Of(request).Attributes(inode);
      fuse_reply_attr(request, &attributes, kForever);
    };
    ops.open = [](fuse_req_t request, fuse_ino_t, fuse_file_info* file) {
      file->direct_io = Of(request).speed_.page_cache ? 0 : 1;
      fuse_reply_open(request, file);
    };
    ops.read = [](fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
                  fuse_file_info*) {
      Of(request).Read(request, inode, size, static_cast<uint64_t>(offset));
    };
    fuse_session* const session = fuse_session_new(&args, &ops, sizeof ops, this);
    if (session == nullptr || fuse_session_mount(session, directory.c_str()) != 0) return 1;
    if (fuse_set_signal_handlers(session) != 0) return 1;
    std::thread replies([this] { Reply(); });
    fuse_session_loop(session);
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_.notify_one();
    replies.join();
    fuse_session_unmount(session);
    fuse_session_destroy(session);
    return 0;
  }

 private:
  struct Due {
    Clock::time_point at;
    fuse_req_t request;
    const char* bytes;
    size_t size;
    bool operator<(const Due& other) const noexcept { return at > other.at; }
  };

  static Server& Of(fuse_req_t request) {
    return *static_cast<Server*>(fuse_req_userdata(request));
  }

  struct stat Attributes(fuse_ino_t inode) const {
    struct stat attributes {};
    attributes.st_ino = inode;
    attributes.st_nlink = 1;
    attributes.st_mode = inode == FUSE_ROOT_ID ? S_IFDIR | 0755 : S_IFREG | 0444;
    attributes.st_size = inode == FUSE_ROOT_ID ? 0 : static_cast<off_t>(file_bytes_);
    return attributes;
  }

  void Read(fuse_req_t request, fuse_ino_t inode, size_t size, uint64_t offset) {
    size =
        offset < file_bytes_ ? std::min<uint64_t>({size, file_bytes_ - offset, kLongestRead}) : 0;
    const std::vector<char>& pattern = inode == kBase ? base_ : target_;
    const std::chrono::nanoseconds transfer(size * 1'000'000'000 / speed_.bytes_per_second);
    const std::lock_guard lock(mutex_);
    channel_free_ = std::max(channel_free_, Clock::now()) + transfer;
    due_.push({channel_free_ + speed_.latency, request, pattern.data() + offset % kPeriod, size});
    wake_.notify_one();
  }

  void Reply() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (closing_) return;
      if (due_.empty()) {
        wake_.wait(lock);
      } else if (const Clock::time_point at = due_.top().at; at > Clock::now()) {
        wake_.wait_until(lock, at);
      } else {
        const Due due = due_.top();
        due_.pop();
        lock.unlock();
        fuse_reply_buf(due.request, due.bytes, due.size);
        lock.lock();
      }
    }
  }

  const Speed speed_;
  const uint64_t file_bytes_;
  std::vector<char> base_;
  std::vector<char> target_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::priority_queue<Due> due_;
  Clock::time_point channel_free_;
  bool closing_ = false;
};

bool IsMounted(const std::string& directory) {
  struct statfs found;
  return statfs(directory.c_str(), &found) == 0 && found.f_type == kFuseMagic;
}

}  // namespace

SlowFiles::SlowFiles(Speed speed, uint64_t file_bytes) : directory_("/tmp/cbt-slow-XXXXXX") {
  if (mkdtemp(directory_.data()) == nullptr) {
    std::perror(directory_.c_str());
    std::exit(1);
  }
  server_ = fork();
  if (server_ == 0) std::_Exit(Server(speed, file_bytes).Run(directory_));
  while (server_ > 0 && !IsMounted(directory_)) {
    if (waitpid(server_, nullptr, WNOHANG) != 0) server_ = -1;
    poll(nullptr, 0, 5);
  }
  if (server_ < 0) {
    std::fprintf(stderr, "can't mount %s: FUSE needs /dev/fuse and the right to mount\n",
                 directory_.c_str());
    rmdir(directory_.c_str());
    std::exit(1);
  }
}

// SIGTERM ends the session's loop, and the server unmounts.
SlowFiles::~SlowFiles() {
  kill(server_, SIGTERM);
  waitpid(server_, nullptr, 0);
  rmdir(directory_.c_str());
}

}  // namespace cbt::bench
