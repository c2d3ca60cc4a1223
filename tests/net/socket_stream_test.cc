#include "net/socket_stream.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "cbt/units.h"
#include "tests/net/tls_pair.h"
#include "tests/support/seeded_random.h"
#include "tests/support/status.h"

namespace cbt::net {
namespace socket_stream_test {

using State = SocketStream::State;

struct Ends {
  std::unique_ptr<SocketStream> a;
  std::unique_ptr<SocketStream> b;
};

Ends Connect(const test::TlsPair* tls) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
    throw std::runtime_error("socketpair");
  }
  return {test::ValueOf(SocketStream::Create(OwnedDescriptor(pair[0]),
                                             tls != nullptr ? tls->Accepting() : nullptr)),
          test::ValueOf(SocketStream::Create(OwnedDescriptor(pair[1]),
                                             tls != nullptr ? tls->Connecting() : nullptr))};
}

void Handshake(Ends& ends) {
  bool a = false;
  bool b = false;
  for (int i = 0; i < 100 && !(a && b); ++i) {
    b = b || ends.b->Handshake().state == State::kDone;
    a = a || ends.a->Handshake().state == State::kDone;
  }
  ASSERT_TRUE(a && b);
}

class SocketStreamTest : public testing::TestWithParam<bool> {
 protected:
  const test::TlsPair tls_;
  Ends ends_ = Connect(GetParam() ? &tls_ : nullptr);
};

INSTANTIATE_TEST_SUITE_P(PlainAndTls, SocketStreamTest, testing::Bool());

// Parts of random sizes, more than the socket accepts at once, arrive unchanged.
TEST_P(SocketStreamTest, CarriesBytesThroughAFullSocket) {
  Handshake(ends_);
  test::SeededRandom random(3);
  std::string sent(3 * kMiB, '\0');
  for (char& c : sent) c = static_cast<char>(random());
  std::string got;
  size_t taken = 0;
  bool blocked = false;
  std::array<iovec, 3> parts;
  size_t count = 0;
  for (int turns = 0; got.size() < sent.size() && turns < 100'000; ++turns) {
    while (taken < sent.size()) {
      // Retries with the same bytes after a write that would block.
      size_t at = count > 0 ? sent.size() : taken;
      while (count < parts.size() && at < sent.size()) {
        const size_t bytes = std::min<size_t>(1 + random() % 40'000, sent.size() - at);
        parts[count++] = {sent.data() + at, bytes};
        at += bytes;
      }
      const auto result = ends_.a->Write(std::span(parts).first(count));
      if (result.state != State::kDone) {
        EXPECT_EQ(result.state, State::kWantWrite);
        blocked = true;
        break;
      }
      ASSERT_GT(result.bytes, 0U);
      taken += result.bytes;
      count = 0;
    }
    if (taken == sent.size()) ends_.a->Flush();
    std::array<char, 50'000> space;
    for (;;) {
      const auto result = ends_.b->Read(std::span(space).first(1 + random() % space.size()));
      if (result.state != State::kDone) {
        EXPECT_EQ(result.state, State::kWantRead);
        break;
      }
      got.append(space.data(), result.bytes);
    }
  }
  EXPECT_TRUE(blocked);
  EXPECT_FALSE(ends_.a->unsent());
  EXPECT_TRUE(got == sent);
}

TEST_P(SocketStreamTest, ReportsTheEnd) {
  Handshake(ends_);
  ends_.a->Shutdown();
  std::array<char, 16> space;
  auto result = ends_.b->Read(space);
  if (result.state == State::kWantRead) result = ends_.b->Read(space);
  EXPECT_EQ(result.state, State::kEnd);
}

// The process must survive; by default SIGPIPE ends it.
TEST_P(SocketStreamTest, SurvivesAPeerThatIsGone) {
  Handshake(ends_);
  ends_.b.reset();
  char byte = 'x';
  const iovec part = {&byte, 1};
  auto result = ends_.a->Write(std::span(&part, 1));
  if (result.state == State::kDone) result = ends_.a->Flush();
  if (result.state == State::kDone) result = ends_.a->Write(std::span(&part, 1));
  EXPECT_EQ(result.state, State::kError);
  EXPECT_NE(ends_.a->ErrorText(), "");
}

TEST(SocketStream, HandshakeWithAPeerThatSpeaksNoTlsFails) {
  const test::TlsPair tls;
  Ends ends = Connect(&tls);
  ASSERT_EQ(send(ends.b->fd(), "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
  const auto result = ends.a->Handshake();
  EXPECT_EQ(result.state, State::kError);
  EXPECT_NE(ends.a->ErrorText().find("TLS: "), std::string::npos);
}

}  // namespace socket_stream_test
}  // namespace cbt::net
