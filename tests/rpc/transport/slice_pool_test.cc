// Memory for messages that is used again, and how much of it stays.
#include "rpc/transport/slice_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

namespace cbt::rpc {
namespace {

constexpr size_t kBytes = size_t{128} << 10;

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
  // A slice gives it back as well, whenever it goes.
  const grpc_slice slice = std::move(again).ToSlice(kBytes - 10);
  EXPECT_EQ(GRPC_SLICE_START_PTR(slice), first);
  EXPECT_EQ(pool->idle(), 0u);
  grpc_slice_unref(slice);
  EXPECT_EQ(pool->idle(), 1u);
}

TEST(SlicePool, BuffersOfOtherSizesAreNotItsOwn) {
  const auto pool = SlicePool::Create(kBytes, 8 * kBytes);
  for (const size_t bytes : {size_t{1}, size_t{16} << 10, kBytes + 1}) {
    SlicePool::Buffer other = pool->Take(bytes);
    EXPECT_EQ(other.size(), bytes);
    grpc_slice_unref(std::move(other).ToSlice(bytes));
    EXPECT_EQ(pool->Take(bytes).size(), bytes);
  }
  EXPECT_EQ(pool->idle(), 0u);
}

// A slow reader holds the bytes of its message, not a buffer that is empty for the most part.
TEST(SlicePool, BytesThatLeaveASmallBufferEmptyAreCopiedToo) {
  const auto pool = SlicePool::Create(kBytes, 8 * kBytes);
  SlicePool::Buffer buffer = pool->Take(2000);
  std::fill_n(buffer.data(), 2000, uint8_t{7});
  const uint8_t* const start = buffer.data();
  const grpc_slice slice = std::move(buffer).ToSlice(900);
  ASSERT_EQ(GRPC_SLICE_LENGTH(slice), 900u);
  EXPECT_NE(GRPC_SLICE_START_PTR(slice), start);
  EXPECT_TRUE(std::all_of(GRPC_SLICE_START_PTR(slice), GRPC_SLICE_END_PTR(slice),
                          [](uint8_t byte) { return byte == 7; }));
  grpc_slice_unref(slice);
}

TEST(SlicePool, BytesThatLeaveABufferEmptyAreCopiedOutOfIt) {
  const auto pool = SlicePool::Create(kBytes, 8 * kBytes);
  for (const size_t length : {size_t{0}, size_t{1}, size_t{100}, kBytes / 2 - 1}) {
    for (const size_t size : {kBytes, kBytes + 16}) {
      SlicePool::Buffer buffer = pool->Take(size);
      const uint8_t* const start = buffer.data();
      for (size_t i = 0; i < length; ++i) buffer.data()[i] = static_cast<uint8_t>(i * 7);
      const grpc_slice slice = std::move(buffer).ToSlice(length);
      EXPECT_EQ(pool->idle(), 1u) << "the buffer is free for others at once";
      ASSERT_EQ(GRPC_SLICE_LENGTH(slice), length);
      EXPECT_NE(GRPC_SLICE_START_PTR(slice), start);
      // Whoever gets the buffer next must not write into the message.
      SlicePool::Buffer next = pool->Take(kBytes);
      std::fill_n(next.data(), kBytes, uint8_t{0xff});
      size_t wrong = 0;
      for (size_t i = 0; i < length; ++i) {
        wrong += GRPC_SLICE_START_PTR(slice)[i] != static_cast<uint8_t>(i * 7) ? 1 : 0;
      }
      EXPECT_EQ(wrong, 0u) << length;
      grpc_slice_unref(slice);
    }
  }
  EXPECT_EQ(pool->idle(), 1u);
}

// Their copies would be mapped and unmapped, which took a server twice the time.
TEST(SlicePool, BytesThatAreManyAreNotCopied) {
  for (const size_t size : {kBytes, 8 * kBytes}) {
    const auto pool = SlicePool::Create(size, size);
    for (const size_t length : {size_t{64} << 10, kBytes - 10, size}) {
      SlicePool::Buffer buffer = pool->Take(size);
      const uint8_t* const start = buffer.data();
      const grpc_slice slice = std::move(buffer).ToSlice(length);
      EXPECT_EQ(GRPC_SLICE_START_PTR(slice), start) << length << " of " << size;
      EXPECT_EQ(GRPC_SLICE_LENGTH(slice), length);
      grpc_slice_unref(slice);
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
        if (k % 2 == 0) grpc_slice_unref(std::move(buffer).ToSlice(k % 4 == 0 ? kBytes : 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool->idle(), 4u);
  EXPECT_GT(pool->idle(), 0u);
}

}  // namespace
}  // namespace cbt::rpc
