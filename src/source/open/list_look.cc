#include "source/open/list_look.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace cbt {
namespace {

// Volumes are whole sectors; the output of tools only by chance.

// For a file that is not whole sectors, the first 64 characters decide: random bytes that begin
// with a bracket contain a non-text character among them except once in some hundred thousand
// times.
constexpr uint64_t kTellingCharacters = 64;

constexpr std::string_view kBlankCharacters = " \t\r\n";

// Characters of one, two or four bytes; in lists, all but one of them are zero.
struct Encoding {
  size_t begin = 0;   // of the first character, after blanks and a byte order mark
  size_t width = 1;   // bytes
  size_t place = 0;   // of the byte that is not zero
  bool mark = false;  // there is a byte order mark
};

Encoding EncodingOf(std::string_view text) {
  struct Mark {
    std::string_view bytes;
    size_t width;
    size_t place;
  };
  // Longer ones first: the mark of UTF-32 starts with that of UTF-16.
  constexpr Mark kMarks[] = {{{"\xff\xfe\0\0", 4}, 4, 0},
                             {{"\0\0\xfe\xff", 4}, 4, 3},
                             {{"\xef\xbb\xbf", 3}, 1, 0},
                             {{"\xff\xfe", 2}, 2, 0},
                             {{"\xfe\xff", 2}, 2, 1}};
  const size_t begin = std::min(text.find_first_not_of(kBlankCharacters), text.size());
  text.remove_prefix(begin);
  for (const Mark& mark : kMarks) {
    if (!text.starts_with(mark.bytes)) continue;
    return {begin + mark.bytes.size(), mark.width, mark.place, true};
  }
  // Without a mark, the zeros around the first character decide.
  const auto zeros = [text](size_t from, size_t count) {
    return text.size() >= from + count &&
           text.substr(from, count).find_first_not_of('\0') == std::string_view::npos;
  };
  if (zeros(0, 3)) return {begin, 4, 3};
  if (zeros(1, 3)) return {begin, 4, 0};
  if (zeros(0, 1)) return {begin, 2, 1};
  if (zeros(1, 1)) return {begin, 2, 0};
  return {begin};
}

// True if `text` begins like a list, or holds only blanks.
bool BeginsList(std::string_view text, const Encoding& encoding) {
  if (encoding.mark) return true;
  size_t at = encoding.begin;
  for (; at + encoding.width <= text.size(); at += encoding.width) {
    const std::string_view character = text.substr(at, encoding.width);
    for (size_t i = 0; i < character.size(); ++i) {
      if (i != encoding.place && character[i] != '\0') return false;
    }
    const char byte = character[encoding.place];
    if (kBlankCharacters.find(byte) != std::string_view::npos) continue;
    return byte == '[' || byte == '{' || byte == '<';
  }
  return at > encoding.begin || at == text.size();
}

// True if `byte`, `at` bytes after the beginning of the first character, can be text. Non-ASCII
// bytes may be letters in some encoding.
bool IsOfText(uint8_t byte, uint64_t at, const Encoding& encoding) {
  if (at % encoding.width != encoding.place) return byte == 0;
  return (byte >= ' ' && byte != 0x7f) || byte == '\t' || byte == '\r' || byte == '\n';
}

// True if the first `most` bytes after the beginning, or all if there are fewer, are text.
absl::StatusOr<bool> IsText(ByteStream& stream, const Encoding& encoding, uint64_t most) {
  if (absl::Status status = stream.Skip(encoding.begin); !status.ok()) return status;
  std::vector<uint8_t> bytes(ByteStream::kMaxPeek);
  for (uint64_t at = 0; at < most;) {
    const absl::StatusOr<size_t> count = stream.Read(bytes);
    if (!count.ok()) return count.status();
    if (*count == 0) return true;
    for (size_t i = 0; i < *count && at < most; ++i, ++at) {
      if (!IsOfText(bytes[i], at, encoding)) return false;
    }
  }
  return true;
}

}  // namespace

absl::Status CheckIsNoList(std::span<const uint8_t> first, uint64_t size, ByteStream& stream) {
  const auto refused = [&stream](const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat(stream.label(), ": ", why, ": name the format (--from)"));
  };
  if (size == 0) return refused("is empty");
  const std::string_view text(reinterpret_cast<const char*>(first.data()), first.size());
  const Encoding encoding = EncodingOf(text);
  if (!BeginsList(text, encoding)) return absl::OkStatus();
  const absl::StatusOr<bool> is_text = IsText(
      stream, encoding, size % kSectorBytes == 0 ? size : kTellingCharacters * encoding.width);
  if (!is_text.ok()) return is_text.status();
  if (!*is_text) return absl::OkStatus();
  return refused("begins like a list, but is not one that can be read");
}

}  // namespace cbt
