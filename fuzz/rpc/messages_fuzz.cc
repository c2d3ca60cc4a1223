// gRPC in HTTP/2 as the receiver parses it: bytes cut into messages, against an obvious reader;
// header values; and a server's whole answers, which succeed in exactly one case.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/cord.h"
#include "base/percent.h"
#include "fuzz/support/check.h"
#include "fuzz/support/input.h"
#include "rpc/http2/header_block.h"
#include "rpc/http2/message_reader.h"
#include "rpc/http2/protocol.h"
#include "rpc/http2/response.h"

namespace {

namespace http2 = cbt::rpc::http2;
using http2::MessageReader;
using Result = MessageReader::Result;

class Script : public cbt::fuzz::Input {
 public:
  using Input::Input;

  std::string Bytes(size_t most) {
    const size_t count = std::min(most, size_);
    const std::string bytes(reinterpret_cast<const char*>(data_), count);
    data_ += count;
    size_ -= count;
    return bytes;
  }
};

absl::Cord CordOf(const std::string& bytes) { return absl::Cord(bytes); }

// The messages of a stream, and what follows them.
struct Contents {
  std::vector<std::string> messages;
  Result end = Result::kNeedMore;
  bool boundary = true;
};

Contents Obvious(std::string_view stream, size_t limit) {
  Contents contents;
  for (;;) {
    contents.boundary = stream.empty();
    if (stream.size() < 5) return contents;
    size_t length = 0;
    for (size_t i = 1; i < 5; ++i) length = 256 * length + static_cast<uint8_t>(stream[i]);
    if (stream[0] != 0) {
      contents.end = stream[0] == 1 ? Result::kCompressed : Result::kMalformed;
      return contents;
    }
    if (length > limit) {
      contents.end = Result::kTooLong;
      return contents;
    }
    if (stream.size() - 5 < length) return contents;
    contents.messages.emplace_back(stream.substr(5, length));
    stream.remove_prefix(5 + length);
  }
}

void CheckReader(Script script) {
  const size_t limit = script.Take(2);
  MessageReader reader(limit);
  std::string stream;
  Contents got;
  while (!script.empty()) {
    const uint64_t choice = script.Take(1);
    const std::string piece = script.Bytes(choice >> 2);
    stream += piece;
    reader.Append(CordOf(piece));
    if ((choice & 3) == 0) continue;
    for (;;) {
      absl::Cord message;
      got.end = reader.Next(message);
      if (got.end != Result::kMessage) break;
      got.messages.emplace_back(message);
    }
    const Contents want = Obvious(stream, limit);
    CBT_FUZZ_CHECK(got.messages == want.messages);
    CBT_FUZZ_CHECK(got.end == want.end);
    CBT_FUZZ_CHECK(reader.AtBoundary() == want.boundary);
  }
}

void CheckValues(const std::string& text) {
  if (const auto time = http2::ParseTimeout(text); time.has_value()) {
    CBT_FUZZ_CHECK(time->count() >= 0);
    const auto again = http2::ParseTimeout(http2::FormatTimeout(*time));
    CBT_FUZZ_CHECK(again.has_value() && *again >= *time);
    CBT_FUZZ_CHECK((*again - *time).count() <= time->count() / 1000 + 1);
  }
  const std::string encoded = cbt::PercentEncode(text, cbt::PercentPlain::kPrintable);
  for (const char c : encoded) CBT_FUZZ_CHECK(c >= ' ' && c <= '~');
  CBT_FUZZ_CHECK(cbt::PercentDecode(encoded, cbt::BrokenEscapes::kRefused) == text);
  CBT_FUZZ_CHECK(cbt::PercentDecode(text, cbt::BrokenEscapes::kKept)->size() <= text.size());
  CBT_FUZZ_CHECK(http2::Base64Decode(http2::Base64Encode(text)) == text);
  if (const auto bytes = http2::Base64Decode(text); bytes.has_value()) {
    // One encoding only, except for the padding.
    CBT_FUZZ_CHECK(http2::Base64Encode(*bytes) == text.substr(0, text.find('=')));
  }
  CBT_FUZZ_CHECK((http2::ParseStatusCode(text) == absl::StatusCode::kOk) == (text == "0"));
  static_cast<void>(http2::IsGrpcContentType(text));
}

struct Block {
  http2::HeaderBlock fields;
  bool has_http_status = false;
  bool ok_http = false;
  bool grpc_type = false;
  bool bad = false;        // truncated, or not base64
  int statuses = 0;        // the number of grpc-status fields
  bool ok_status = false;  // of the last one
};

Block SomeBlock(Script& script) {
  Block block;
  const uint64_t choice = script.Take(1);
  if ((choice & 1) == 0) {
    block.ok_http = (choice & 2) == 0;
    block.has_http_status = true;
    block.fields.Add(":status", block.ok_http ? "200" : "503");
  }
  if ((choice & 4) == 0) {
    block.grpc_type = true;
    block.fields.Add("content-type", "application/grpc");
  }
  for (uint64_t n = choice >> 6; n > 0; --n) {
    const std::string value = script.Bytes(script.Take(1) % 4);
    block.fields.Add("grpc-status", value);
    ++block.statuses;
    block.ok_status = value == "0";
  }
  if ((choice & 8) != 0) {
    const std::string value = script.Bytes(script.Take(1) % 16);
    block.fields.Add("x-bin", value);
    for (size_t at = 0; at <= value.size();) {
      const size_t comma = std::min(value.find(',', at), value.size());
      if (!http2::Base64Decode(value.substr(at, comma - at)).has_value()) block.bad = true;
      at = comma + 1;
    }
  }
  if ((choice & 48) == 48) {
    block.fields.set_cut();
    block.bad = true;
  }
  return block;
}

// The conditions for a successful answer; `body` is the DATA before the trailers.
class Success {
 public:
  void Headers(const Block& block, bool end) {
    good_ = good_ && !headers_ && block.has_http_status && block.ok_http && block.grpc_type;
    headers_ = true;
    if (end) return Trailers(block);
    // A status has no place before the end, so that no error becomes OK.
    good_ = good_ && !block.bad && block.statuses == 0;
  }
  void Trailers(const Block& block) {
    good_ = good_ && headers_ && !block.bad && block.statuses == 1 && block.ok_status;
    trailers_ = true;
  }
  void Data(const std::string& data) {
    good_ = good_ && headers_ && !trailers_;
    body += data;
  }
  bool Is(size_t limit) const {
    const Contents contents = Obvious(body, limit);
    return good_ && trailers_ && contents.end == Result::kNeedMore && contents.boundary;
  }

  std::string body;

 private:
  bool good_ = true;
  bool headers_ = false;
  bool trailers_ = false;
};

// Events in any order that a connection could produce; HTTP/2's own rules are not assumed.
void CheckResponse(Script script) {
  const size_t limit = script.Take(1);
  http2::Response response(limit);
  Success success;
  std::vector<std::string> got;
  const auto drain = [&] {
    absl::Cord message;
    while (response.Next(message)) got.emplace_back(message);
  };
  bool over = false;
  bool ended_well = false;
  bool trailers = false;
  while (!over) {
    const uint64_t choice = script.empty() ? 15 : script.Take(1);
    switch (choice & 7) {
      case 0:
      case 1: {
        if (trailers) break;
        const Block block = SomeBlock(script);
        trailers = (choice & 8) != 0;
        success.Headers(block, trailers);
        response.OnHeaders(block.fields, trailers);
        break;
      }
      case 2: {
        if (trailers) break;
        const Block block = SomeBlock(script);
        trailers = true;
        success.Trailers(block);
        response.OnTrailers(block.fields);
        break;
      }
      case 3:
      case 4:
      case 5: {
        const std::string data = script.Bytes(choice >> 3);
        success.Data(data);
        response.OnData(CordOf(data));
        break;
      }
      case 6:
        drain();
        break;
      default:
        over = true;
        ended_well = (choice & 8) == 0;
        if (ended_well) {
          response.OnEnd();
        } else {
          response.OnFailure(absl::UnavailableError("cut"));
        }
    }
  }
  drain();
  CBT_FUZZ_CHECK(response.status().has_value());
  CBT_FUZZ_CHECK(response.status()->ok() == (ended_well && success.Is(limit)));
  // The delivered messages are a prefix of what was sent, and all of it after a success.
  const Contents sent = Obvious(success.body, limit);
  CBT_FUZZ_CHECK(got.size() <= sent.messages.size());
  CBT_FUZZ_CHECK(std::equal(got.begin(), got.end(), sent.messages.begin()));
  CBT_FUZZ_CHECK(!response.status()->ok() || got.size() == sent.messages.size());
  static_cast<void>(response.Trailing("x-bin"));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  CheckReader(Script(data, size));
  CheckResponse(Script(data, size));
  CheckValues(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
