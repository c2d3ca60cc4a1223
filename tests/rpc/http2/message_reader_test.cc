// Messages that arrive in pieces of any size, against a reader of the whole stream.
#include "rpc/http2/message_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/string_view.h"
#include "cbt/units.h"
#include "tests/support/seeded_random.h"

namespace cbt::rpc::http2 {
namespace message_reader_test {

using Result = MessageReader::Result;

// The contents of a stream: messages, then an error or an unfinished message, if any.
struct Contents {
  std::vector<std::string> messages;
  Result end = Result::kNeedMore;
  bool boundary = true;
  bool operator==(const Contents&) const = default;
};

// The obvious reader.
Contents Expected(std::string_view stream, size_t limit) {
  Contents contents;
  for (;;) {
    contents.boundary = stream.empty();
    if (stream.size() < 5) return contents;
    const auto byte = [&](size_t at) {
      return static_cast<size_t>(static_cast<uint8_t>(stream[at]));
    };
    const size_t length = ((byte(1) * 256 + byte(2)) * 256 + byte(3)) * 256 + byte(4);
    contents.end = byte(0) == 1     ? Result::kCompressed
                   : byte(0) > 1    ? Result::kMalformed
                   : length > limit ? Result::kTooLong
                                    : Result::kNeedMore;
    if (contents.end != Result::kNeedMore || stream.size() < 5 + length) return contents;
    contents.messages.emplace_back(stream.substr(5, length));
    stream.remove_prefix(5 + length);
  }
}

// Takes the complete messages.
void Drain(MessageReader& reader, Contents& contents) {
  for (;;) {
    absl::Cord message("untouched");
    contents.end = reader.Next(message);
    contents.boundary = reader.AtBoundary();
    if (contents.end != Result::kMessage) {
      EXPECT_EQ(message, "untouched");
      return;
    }
    contents.messages.emplace_back(message);
  }
}

absl::Cord CordOf(std::string_view text) {
  return absl::Cord(absl::string_view(text.data(), text.size()));
}

std::string Frame(std::string_view message, char flag = 0) {
  const size_t length = message.size();
  std::string frame = {flag, static_cast<char>(length >> 24), static_cast<char>(length >> 16),
                       static_cast<char>(length >> 8), static_cast<char>(length)};
  return frame.append(message);
}

std::string SomeBytes(std::mt19937_64& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

TEST(MessageReader, IsEmptyAtFirst) {
  MessageReader reader(100);
  absl::Cord message;
  EXPECT_EQ(reader.Next(message), Result::kNeedMore);
  EXPECT_TRUE(reader.AtBoundary());
  EXPECT_EQ(reader.buffered(), 0U);
}

TEST(MessageReader, TwoCutsAtEveryPlace) {
  const std::string stream =
      Frame("") + Frame("one") + Frame("") + Frame("three and more") + Frame("x").substr(0, 5);
  const Contents expected = Expected(stream, 100);
  ASSERT_EQ(expected.messages.size(), 4U);
  for (size_t a = 0; a <= stream.size(); ++a) {
    for (size_t b = a; b <= stream.size(); ++b) {
      MessageReader reader(100);
      Contents contents;
      size_t from = 0;
      for (const size_t to : {a, b, stream.size()}) {
        reader.Append(CordOf(std::string_view(stream).substr(from, to - from)));
        Drain(reader, contents);
        EXPECT_EQ(contents, Expected(stream.substr(0, to), 100)) << a << ' ' << b << ' ' << to;
        from = to;
      }
    }
  }
}

TEST(MessageReader, RandomStreamsInRandomPieces) {
  test::SeededRandom random(3);
  for (int round = 0; round < 2'000; ++round) {
    const size_t limit = random() % 2'000;
    std::string stream;
    for (size_t n = random() % 12; n > 0; --n) {
      const size_t size = random() % 20 == 0 ? limit + 1 : random() % (limit + 1);
      stream += Frame(SomeBytes(random, size),
                      random() % 30 == 0 ? static_cast<char>(random() % 4) : '\0');
    }
    stream.resize(stream.size() - std::min<size_t>(stream.size(), random() % 8));
    MessageReader reader(limit);
    Contents contents;
    const size_t most = 1 + random() % 5'000;
    for (size_t at = 0; at < stream.size();) {
      const size_t size = std::min(stream.size() - at, 1 + random() % most);
      // A piece may consist of chunks, as with short frames.
      absl::Cord piece;
      for (const char c : stream.substr(at, size)) {
        if (random() % 64 == 0)
          piece.Append(absl::MakeCordFromExternal(absl::string_view(), [] {}));
        piece.Append(absl::string_view(&c, 1));
      }
      reader.Append(std::move(piece));
      at += size;
      // Messages may be taken later.
      if (random() % 3 == 0) Drain(reader, contents);
    }
    Drain(reader, contents);
    ASSERT_EQ(contents, Expected(stream, limit)) << round;
  }
}

TEST(MessageReader, TheLimitIsExact) {
  for (const size_t size : {size_t{9}, size_t{10}, size_t{11}}) {
    MessageReader reader(10);
    reader.Append(CordOf(Frame(std::string(size, 'x'))));
    absl::Cord message;
    EXPECT_EQ(reader.Next(message), size > 10 ? Result::kTooLong : Result::kMessage);
    EXPECT_EQ(reader.AtBoundary(), size <= 10);
  }
}

// Refused by the prefix, before the bytes arrive.
TEST(MessageReader, FourGibibytesAreRefusedAtOnce) {
  MessageReader reader(4 * kMiB);
  reader.Append(CordOf(std::string("\0\xff\xff\xff\xff", 5)));
  absl::Cord message;
  EXPECT_EQ(reader.Next(message), Result::kTooLong);
  EXPECT_FALSE(reader.AtBoundary());
}

TEST(MessageReader, AnErrorStays) {
  for (const auto& [flag, result] : {std::pair{'\1', Result::kCompressed},
                                     {'\2', Result::kMalformed},
                                     {'\xff', Result::kMalformed}}) {
    MessageReader reader(10);
    reader.Append(CordOf(Frame("abc", flag)));
    absl::Cord message;
    EXPECT_EQ(reader.Next(message), result);
    reader.Append(CordOf(Frame("abc")));
    EXPECT_EQ(reader.Next(message), result);
    EXPECT_FALSE(reader.AtBoundary());
  }
}

// A message refers to the chunks that it came in, even to part of a chunk.
TEST(MessageReader, MessagesShareTheMemoryTheyCameIn) {
  const std::string first =
      Frame(std::string(100'000, 'a')) + Frame(std::string(200'000, 'b')).substr(0, 70'000);
  const std::string second = Frame(std::string(200'000, 'b')).substr(70'000);
  int released = 0;
  const auto external = [&](const std::string& text) {
    return absl::MakeCordFromExternal(absl::string_view(text.data(), text.size()),
                                      [&] { ++released; });
  };
  const auto inside = [&](absl::string_view chunk) {
    const auto within = [&](const std::string& text) {
      return chunk.data() >= text.data() &&
             chunk.data() + chunk.size() <= text.data() + text.size();
    };
    return within(first) || within(second);
  };
  MessageReader reader(kMiB);
  reader.Append(external(first));
  reader.Append(external(second));
  for (const size_t size : {size_t{100'000}, size_t{200'000}}) {
    absl::Cord message;
    ASSERT_EQ(reader.Next(message), Result::kMessage);
    ASSERT_EQ(message.size(), size);
    for (const absl::string_view chunk : message.Chunks()) EXPECT_TRUE(inside(chunk));
  }
  EXPECT_TRUE(reader.AtBoundary());
  EXPECT_EQ(released, 2);
}

}  // namespace message_reader_test
}  // namespace cbt::rpc::http2
