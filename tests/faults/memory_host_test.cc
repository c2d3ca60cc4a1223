// Memory runs out in a driver, and in the process that all its volumes need.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "programs/driver/host/host_server.h"
#include "programs/driver/state/key_locks.h"
#include "tests/faults/support/failing_memory.h"
#include "tests/support/status.h"
#include "tests/support/temp_dir.h"

namespace cbt::driver {
namespace memory_host_test {

using test::FailAllocation;

constexpr std::string_view kRequest = R"({"do":"stop","volume":"vol-0123456789abcdef01234567"})";

// Asks without memory of its own. Returns the size of the answer: 0 if the connection ended without
// one, negative after ten seconds without an end.
ssize_t Ask(const sockaddr_un& address) {
  const OwnedDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
      0) {
    return 0;
  }
  ::send(socket.number(), kRequest.data(), kRequest.size(), MSG_NOSIGNAL);
  pollfd wait = {.fd = socket.number(), .events = POLLIN, .revents = 0};
  if (::poll(&wait, 1, 10'000) != 1) return -1;
  std::array<char, 4096> answer;
  const ssize_t size = ::recv(socket.number(), answer.data(), answer.size(), 0);
  return size < 0 ? 0 : size;
}

TEST(VolumeHostOutOfMemory, ItGoesOnAndNoCallerWaits) {
  const test::TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto server, HostServer::Start({.state_directory = directory / "s"},
                                                            std::chrono::seconds(0)));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  server->address().copy(address.sun_path, sizeof(address.sun_path) - 1);
  for (const bool stay : {false, true}) {
    bool failed = true;
    for (int64_t n = 1; failed; ++n) {
      ssize_t size = 0;
      {
        const FailAllocation fails(n, stay);
        size = Ask(address);
        failed = fails.has_failed();
      }
      EXPECT_GE(size, 0) << n << ", all after it: " << stay;
      EXPECT_GT(Ask(address), 0) << n << ", all after it: " << stay;
    }
  }
}

// A key that stays locked without a holder would stop its volume until the next driver.
TEST(KeyLocksOutOfMemory, WhatCouldNotBeLockedIsFree) {
  KeyLocks locks;
  const std::string key = "volume vol-0123456789abcdef01234567";
  const auto busy = [&] { return !locks.TryAlone(key).ok(); };
  for (const bool alone : {false, true}) {
    bool failed = true;
    for (int64_t n = 1; failed; ++n) {
      {
        const FailAllocation fails(n);
        try {
          EXPECT_OK(alone ? locks.TryAlone(key) : locks.TryShared(key));
        } catch (const std::bad_alloc&) {
          // Nothing is held.
        }
        failed = fails.has_failed();
      }
      EXPECT_FALSE(busy()) << n << ", alone: " << alone;
    }
  }
}

}  // namespace memory_host_test
}  // namespace cbt::driver
