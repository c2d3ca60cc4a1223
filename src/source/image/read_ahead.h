// Has the kernel fetch data of images before it is read.
#ifndef CBT_SOURCE_IMAGE_READ_AHEAD_H_
#define CBT_SOURCE_IMAGE_READ_AHEAD_H_

#include <atomic>
#include <cstdint>

#include "source/image/chunk_compare.h"
#include "source/image/data_walk.h"

namespace cbt {

// A thread that reads waits for one request after another. A hint returns at once, so that one
// thread keeps as many requests at work as the storage needs to be busy, of both images side by
// side. The data waits in the page cache. Not thread-safe.
class ReadAhead {
 public:
  // The pair must outlive this.
  explicit ReadAhead(const ImagePair& pair);

  // Asks for what may be data in [begin, end) of either image; ranges must ascend. What can't be
  // asked for is read later all the same: no error matters here.
  // Cost: two system calls for each 128 KiB, and two for each range of data. For data in the page
  // cache that is a quarter of the time that comparing it takes.
  void Ask(uint64_t begin, uint64_t end);

 private:
  struct Side {
    const Image* image;  // null: nothing to ask for
    DataWalk walk;
  };

  static void AskSide(Side& side, uint64_t begin, uint64_t end);

  Side base_;
  Side target_;
};

// Notices that the calling thread had to wait for the storage, because what it read was not in the
// page cache. Counts how often the thread gave up its processor, not how long it took: on a busy
// machine everything is slow.
class WaitWatch {
 public:
  // `cold` is set once a wait was seen, and must outlive this. Null: doesn't look.
  explicit WaitWatch(std::atomic<bool>* cold) noexcept;

  // Call after a read.
  void Update() noexcept;

 private:
  bool Looks() const noexcept;

  std::atomic<bool>* const cold_;
  long waits_ = 0;
};

}  // namespace cbt

#endif  // CBT_SOURCE_IMAGE_READ_AHEAD_H_
