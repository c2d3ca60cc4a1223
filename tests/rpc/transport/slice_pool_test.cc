// Reuse of message memory, and how much of it is kept.
#include "rpc/transport/slice_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "cbt/units.h"

namespace cbt::rpc {
namespace slice_pool_test {

constexpr size_t kBytes = 128 * kKiB;

// The first byte of a message, which must be in one piece.
const uint8_t* StartOf(const absl::Cord& message) {
  const auto flat = message.TryFlat();
  EXPECT_TRUE(flat.has_value());
  return flat.has_value() ? reinterpret_cast<const uint8_t*>(flat->data()) : nullptr;
}

TEST(SlicePool, GivesBuffersAgain) {
  const auto pool = SlicePool::Create(kBytes, 8 * kBytes);
  const uint8_t* first = nullptr;
  {
    const SlicePool::Buffer buffer = pool->Take(kBytes);
    EXPECT_EQ(buffer.size(), kBytes);
    first = buffer.data();
  }
  EXPECT_EQ(pool->idle(), 1u);
  SlicePool::Buffer again = pool->Take(kBytes / 2);
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(again.size(), kBytes);
  EXPECT_EQ(pool->idle(), 0u);
  // A message returns its buffer, too, whenever it is destroyed.
  absl::Cord message = std::move(again).ToCord(kBytes - 10);
  EXPECT_EQ(StartOf(message), first);
  EXPECT_EQ(pool->idle(), 0u);
  message.Clear();
  EXPECT_EQ(pool->idle(), 1u);
}

TEST(SlicePool, BuffersOfOtherSizesAreNotItsOwn) {
  const auto pool = SlicePool::Create(kBytes, 8 * kBytes);
  for (const size_t bytes : {size_t{1}, 16 * kKiB, kBytes + 1}) {
    SlicePool::Buffer other = pool->Take(bytes);
    EXPECT_EQ(other.size(), bytes);
    EXPECT_EQ(std::move(other).ToCord(bytes).size(), bytes);
    EXPECT_EQ(pool->Take(bytes).size(), bytes);
  }
  EXPECT_EQ(pool->idle(), 0u);
}

// A slow reader must not hold a mostly empty buffer.
TEST(SlicePool, BytesThatLeaveASmallBufferEmptyAreCopiedToo) {
  const auto pool = SlicePool::Create(kBytes, 8 * kBytes);
  SlicePool::Buffer buffer = pool->Take(2000);
  std::fill_n(buffer.data(), 2000, uint8_t{7});
  const uint8_t* const start = buffer.data();
  const absl::Cord message = std::move(buffer).ToCord(900);
  EXPECT_NE(StartOf(message), start);
  EXPECT_EQ(std::string(message), std::string(900, 7));
}

TEST(SlicePool, BytesThatLeaveABufferEmptyAreCopiedOutOfIt) {
  const auto pool = SlicePool::Create(kBytes, 8 * kBytes);
  for (const size_t length : {size_t{0}, size_t{1}, size_t{100}, size_t{10'000}, kBytes / 2 - 1}) {
    for (const size_t size : {kBytes, kBytes + 16}) {
      SlicePool::Buffer buffer = pool->Take(size);
      const uint8_t* const start = buffer.data();
      for (size_t i = 0; i < length; ++i) buffer.data()[i] = static_cast<uint8_t>(i * 7);
      const absl::Cord message = std::move(buffer).ToCord(length);
      EXPECT_EQ(pool->idle(), 1u) << "the buffer can be reused at once";
      ASSERT_EQ(message.size(), length);
      const uint8_t* const copied = StartOf(message);
      EXPECT_NE(copied, start);
      // The next owner of the buffer must not write into the message.
      SlicePool::Buffer next = pool->Take(kBytes);
      std::fill_n(next.data(), kBytes, uint8_t{0xff});
      size_t wrong = 0;
      for (size_t i = 0; i < length; ++i) {
        wrong += copied[i] != static_cast<uint8_t>(i * 7) ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0u) << length;
    }
  }
  EXPECT_EQ(pool->idle(), 1u);
}

// Copies of that size would be mapped and unmapped each time, which took a server twice the time.
TEST(SlicePool, BytesThatAreManyAreNotCopied) {
  for (const size_t size : {kBytes, 8 * kBytes}) {
    const auto pool = SlicePool::Create(size, size);
    for (const size_t length : {64 * kKiB, kBytes - 10, size}) {
      SlicePool::Buffer buffer = pool->Take(size);
      const uint8_t* const start = buffer.data();
      const absl::Cord message = std::move(buffer).ToCord(length);
      EXPECT_EQ(StartOf(message), start) << length << " of " << size;
      EXPECT_EQ(message.size(), length);
    }
  }
}

TEST(SlicePool, KeepsNoMoreThanItMayAndLittleWhenNobodyIsServed) {
  const auto pool = SlicePool::Create(kBytes, 8 * kBytes);
  std::vector<SlicePool::Buffer> held;
  for (int i = 0; i < 20; ++i) held.push_back(pool->Take(kBytes));
  held.resize(1);
  EXPECT_EQ(pool->idle(), 8u);
  held.clear();
  EXPECT_EQ(pool->idle(), 4u);
}

TEST(SlicePool, IsSharedByThreads) {
  const auto pool = SlicePool::Create(kBytes, 4 * kBytes);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&pool] {
      for (size_t k = 0; k < 2000; ++k) {
        SlicePool::Buffer buffer = pool->Take(kBytes);
        buffer.data()[k % kBytes] = 1;
        if (k % 2 == 0) std::move(buffer).ToCord(k % 4 == 0 ? kBytes : 1).Clear();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool->idle(), 4u);
  EXPECT_GT(pool->idle(), 0u);
}

}  // namespace slice_pool_test
}  // namespace cbt::rpc
