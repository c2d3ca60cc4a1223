// Memory for messages that is used again, and how much of it stays.
#include "rpc/slice_pool.h"

#include <gtest/gtest.h>

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
  const grpc_slice slice = std::move(again).ToSlice(10);
  EXPECT_EQ(pool->idle(), 0u);
  grpc_slice_unref(slice);
  EXPECT_EQ(pool->idle(), 1u);
}

TEST(SlicePool, BuffersOfOtherSizesAreNotItsOwn) {
  const auto pool = SlicePool::Create(kBytes, 8 * kBytes);
  for (const size_t bytes : {size_t{1}, size_t{16} << 10, kBytes + 1}) {
    EXPECT_EQ(pool->Take(bytes).size(), bytes);
  }
  EXPECT_EQ(pool->idle(), 0u);
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
        if (k % 2 == 0) grpc_slice_unref(std::move(buffer).ToSlice(1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool->idle(), 4u);
  EXPECT_GT(pool->idle(), 0u);
}

}  // namespace
}  // namespace cbt::rpc
