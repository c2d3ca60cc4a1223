// Rules of gRPC over HTTP/2, as seen by clients of any stack, careless and hostile ones included.
// They check what gRPC's PROTOCOL-HTTP2.md and RFC 9113 decide, and no more.
#include <algorithm>

#include "base/text.h"
#include "cbt/units.h"
#include "rpc/conformance/conformance_checker.h"
#include "rpc/http2/protocol.h"

namespace cbt::rpc {
namespace {

constexpr uint32_t kWide = 0x7fffffff;
// Less than any answer, so that a stream stops halfway.
constexpr uint32_t kNarrow = 5;
constexpr uint32_t kStep = 64 * kKiB;

constexpr uint8_t kUnknownFrame = 0x42;

WireFields Changed(WireFields fields, std::string_view name, std::string_view value) {
  for (auto& [key, old] : fields) {
    if (key == name) old = std::string(value);
  }
  return fields;
}

WireFields Without(WireFields fields, std::string_view name) {
  std::erase_if(fields, [&](const auto& field) { return field.first == name; });
  return fields;
}

WireFields With(WireFields fields, std::string name, std::string value) {
  fields.emplace_back(std::move(name), std::move(value));
  return fields;
}

// gRPC's "deflate" (RFC 1950): one stored block, and the checksum of its bytes. Texts longer than a
// block are cut.
std::string Deflated(std::string_view text) {
  constexpr uint32_t kModulus = 65521;
  text = text.substr(0, 65535);
  const size_t size = text.size();
  const auto byte = [](size_t value) { return static_cast<char>(value & 255); };
  std::string bytes = {'\x78',          '\x01',      '\x01',          byte(size),
                       byte(size >> 8), byte(~size), byte(~size >> 8)};
  uint32_t low = 1;
  uint32_t high = 0;
  for (const char c : text) {
    low = (low + static_cast<uint8_t>(c)) % kModulus;
    high = (high + low) % kModulus;
    bytes += c;
  }
  return bytes.append({byte(high >> 8), byte(high), byte(low >> 8), byte(low)});
}

// Whether a value of grpc-message is percent-encoded.
bool IsEncoded(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] < ' ' || text[i] > '~') return false;
    if (text[i] != '%') continue;
    if (text.size() - i < 3 || kHex.find(text[i + 1]) == std::string_view::npos ||
        kHex.find(text[i + 2]) == std::string_view::npos) {
      return false;
    }
  }
  return true;
}

}  // namespace

void ConformanceChecker::WireRule(const char* id, const char* rule, uint32_t window,
                                  absl::FunctionRef<Finding(WireClient&)> test) {
  Rule(id, rule, [&] {
    // A tuple takes at most 22 bytes, and a message a little more.
    const auto client = WireClient::Connect(address_, options_.request.tls,
                                            {.timeout = options_.call_timeout,
                                             .stream_window = window,
                                             .max_body = 64 * options_.max_tuples + kMiB});
    if (!client.ok()) return Fail(StrCat("no connection: ", Text(client.status())));
    return test(**client);
  });
}

Finding ConformanceChecker::IsWhole(const WireClient& client, uint32_t stream) const {
  const WireAnswer& answer = client.answer(stream);
  if (!answer.over()) return Fail(client.failure());
  if (!answer.status().ok()) return Fail(StrCat("expected OK, got ", Text(answer.status())));
  if (answer.overran) return Fail("more DATA than the stream's window allows");
  const ProbeAnswer decoded = DecodeBody(contract_, answer.body);
  if (decoded.ok() && SameTuples(decoded.tuples, full_.tuples)) return Pass();
  return Fail(StrCat("expected the ", full_.tuples.size(), " tuples of the complete answer, got ",
                     Text(decoded)));
}

Finding ConformanceChecker::Serves(WireClient& client, uint32_t stream) const {
  client.Call(stream, Path(), Message());
  client.AwaitEnd(stream, kStep);
  return IsWhole(client, stream);
}

Finding ConformanceChecker::IsRefused(WireClient& client, uint32_t stream,
                                      const std::string& what) {
  client.AwaitEnd(stream, kStep);
  const WireAnswer& answer = client.answer(stream);
  if (!answer.over() && client.late()) return Fail(StrCat(what, ": ", client.failure()));
  // A connection that ends is an error, too.
  if (!answer.over() || !answer.status().ok()) return Pass();
  return Fail(StrCat(what, ": expected an error, got OK"));
}

Finding ConformanceChecker::IsOver(WireClient& client, uint32_t stream) const {
  client.AwaitEnd(stream, kStep);
  const WireAnswer& answer = client.answer(stream);
  if (!answer.over()) return client.late() ? Fail(client.failure()) : Pass();
  return answer.status().ok() && full_.ok() ? IsWhole(client, stream) : Pass();
}

Finding ConformanceChecker::Begins(WireClient& client, uint32_t stream) {
  const auto& answer = client.answer(stream);
  if (client.Await([&] { return !answer.body.empty() || answer.over(); })) return Pass();
  return Fail(client.failure());
}

void ConformanceChecker::CheckWire() {
  CheckWireConnection();
  CheckWireRequests();
  CheckWireErrors();
  CheckWireStreams();
}

void ConformanceChecker::CheckWireConnection() {
  WireRule("wire-settings", "SETTINGS come first, and the client's are acknowledged", kWide,
           [&](WireClient& client) {
             if (!client.Await([&] { return client.acknowledgements() > 0; })) {
               return Fail(StrCat("no acknowledgement: ", client.failure()));
             }
             return client.settings_came_first() ? Pass() : Fail("another frame came first");
           });
  WireRule("wire-ping", "a PING is answered with its bytes", kWide, [&](WireClient& client) {
    if (client.Ping()) return Pass();
    return Fail(client.failure().empty() ? "the answer has other bytes" : client.failure());
  });
  WireRule("wire-unknown-frames", "frames, flags and settings that are unknown are ignored", kWide,
           [&](WireClient& client) {
             if (const auto skip = WithoutAnswer()) return *skip;
             client.Frame(NGHTTP2_SETTINGS, 0, 0, std::string("\xf0\x42\0\0\0\1", 6));
             client.Frame(kUnknownFrame, 0xff, 0, "unknown");
             client.Headers(1, client.Request(Path()));
             client.Frame(kUnknownFrame, 0xff, 1, "unknown");
             client.Data(1, WireClient::Framed(Message()), true);
             client.AwaitEnd(1);
             return IsWhole(client, 1);
           });
}

void ConformanceChecker::CheckWireRequests() {
  WireRule("wire-answer", "an answer is HTTP 200, gRPC's content type, and ends with one status",
           kWide, [&](WireClient& client) {
             client.Call(1, Path(), Message());
             client.AwaitEnd(1);
             const WireAnswer& answer = client.answer(1);
             if (!answer.over()) return Fail(client.failure());
             const auto once = [](const WireFields& fields, std::string_view name) {
               return OnlyField(fields, name).value_or("missing, or more than once");
             };
             if (const std::string http = once(answer.headers, ":status"); http != "200") {
               return Fail(StrCat(":status: ", http));
             }
             const std::string type = once(answer.headers, "content-type");
             if (!http2::IsGrpcContentType(type)) return Fail(StrCat("content-type: ", type));
             if (answer.early_status()) return Fail("grpc-status: before the end of the answer");
             const std::string code = once(answer.trailers, "grpc-status");
             if (code != "2" && http2::ParseStatusCode(code) == StatusCode::kUnknown) {
               return Fail(StrCat("grpc-status: ", code));
             }
             return full_.ok() ? IsWhole(client, 1) : Pass();
           });
  WireRule("wire-frames", "a message may come in any number of DATA frames, empty ones too", kWide,
           [&](WireClient& client) {
             if (const auto skip = WithoutAnswer()) return *skip;
             const std::string bytes = WireClient::Framed(Message());
             const size_t step = bytes.size() / 64 + 1;
             client.Headers(1, client.Request(Path()));
             for (size_t at = 0; at < bytes.size(); at += step) {
               client.Data(1, std::string_view(bytes).substr(at, step), false);
               if (at == 0) client.Data(1, "", false);
             }
             client.Data(1, "", true);
             client.AwaitEnd(1);
             return IsWhole(client, 1);
           });
  WireRule("wire-metadata", "metadata of the client and unknown grpc- names are passed over", kWide,
           [&](WireClient& client) {
             if (const auto skip = WithoutAnswer()) return *skip;
             client.Headers(1, With(With(With(With(client.Request(Path()), "x-cbt-conform", "1"),
                                              "x-cbt-conform", "2"),
                                         "x-cbt-conform-bin", "AAE"),
                                    "grpc-cbt-conform", "1"));
             client.Data(1, WireClient::Framed(Message()), true);
             client.AwaitEnd(1);
             return IsWhole(client, 1);
           });
  WireRule("wire-te", "a request without te: trailers is answered or refused, and does not hang",
           kWide, [&](WireClient& client) {
             client.Headers(1, Without(client.Request(Path()), "te"));
             client.Data(1, WireClient::Framed(Message()), true);
             return IsOver(client, 1);
           });
  WireRule("wire-timeout", "a grpc-timeout of 1 ms ends with an error or the complete answer",
           kWide, [&](WireClient& client) {
             client.Headers(1, With(client.Request(Path()), "grpc-timeout", "1m"));
             client.Data(1, WireClient::Framed(Message()), true);
             return IsOver(client, 1);
           });
}

void ConformanceChecker::CheckWireErrors() {
  WireRule("wire-method-unknown", "a method that is unknown is UNIMPLEMENTED", kWide,
           [&](WireClient& client) {
             const std::string unknown[] = {
                 StrCat("/", contract_.service, "/CbtConformNoSuchMethod"),
                 "/cbt.conform.NoSuchService/NoSuchMethod"};
             uint32_t stream = 1;
             for (const std::string& path : unknown) {
               client.Call(stream, path, Message());
               client.AwaitEnd(stream, kStep);
               const WireAnswer& answer = client.answer(stream);
               if (!answer.over()) return Fail(StrCat(path, ": ", client.failure()));
               if (answer.status().code() != StatusCode::kUnimplemented) {
                 return Fail(StrCat(path, ": expected UNIMPLEMENTED, got ", Text(answer.status())));
               }
               stream += 2;
             }
             return Pass();
           });
  WireRule("wire-error", "an error's text is percent-encoded", kWide, [&](WireClient& client) {
    MetadataRequest request = Request();
    request.target_snapshot_id = kUnknownSnapshot;
    client.Call(1, Path(), EncodeRequest(method(), request));
    client.AwaitEnd(1);
    const WireAnswer& answer = client.answer(1);
    if (!answer.over()) return Fail(client.failure());
    for (const auto& [name, value] : answer.trailers) {
      if (name == "grpc-message" && !IsEncoded(value)) return Fail("grpc-message is not encoded");
    }
    return Pass();
  });
  WireRule("wire-content-type", "another content type is refused with an error, or served as gRPC",
           kWide, [&](WireClient& client) {
             client.Headers(1, Changed(client.Request(Path()), "content-type", "text/html"));
             client.Data(1, WireClient::Framed(Message()), true);
             return IsOver(client, 1);
           });
  WireRule("wire-get", "a GET is refused with an error, or served as gRPC", kWide,
           [&](WireClient& client) {
             client.Headers(1, Changed(client.Request(Path()), ":method", "GET"));
             client.Data(1, WireClient::Framed(Message()), true);
             return IsOver(client, 1);
           });
  WireRule("wire-compressed", "a compressed request is understood, or UNIMPLEMENTED", kWide,
           [&](WireClient& client) {
             if (const auto skip = WithoutAnswer()) return *skip;
             client.Headers(1, With(client.Request(Path()), "grpc-encoding", "deflate"));
             client.Data(1, WireClient::Framed(Deflated(Message()), 1), true);
             client.AwaitEnd(1);
             const WireAnswer& answer = client.answer(1);
             if (!answer.over()) return Fail(client.failure());
             if (answer.status().code() == StatusCode::kUnimplemented) return Pass();
             if (answer.status().ok()) return IsWhole(client, 1);
             return Fail(StrCat("expected OK or UNIMPLEMENTED, got ", Text(answer.status())));
           });
  WireRule("wire-request-none", "a request without a message is refused with an error", kWide,
           [&](WireClient& client) {
             client.Headers(1, client.Request(Path()), true);
             return IsRefused(client, 1, "no message");
           });
  WireRule("wire-request-cut", "a request that ends within its message is refused with an error",
           kWide, [&](WireClient& client) {
             const std::string bytes = WireClient::Framed(Message());
             uint32_t stream = 1;
             for (const size_t cut : {size_t{3}, size_t{5}, bytes.size() - 1}) {
               if (!client.failure().empty() && !client.late()) return Pass();
               client.Headers(stream, client.Request(Path()));
               client.Data(stream, std::string_view(bytes).substr(0, cut), true);
               const std::string what = StrCat("cut after ", cut, " of ", bytes.size(), " bytes");
               if (Finding finding = IsRefused(client, stream, what);
                   finding.result != RuleResult::kPass) {
                 return finding;
               }
               stream += 2;
             }
             return Pass();
           });
  WireRule("wire-request-long", "a message that announces 4 GiB is refused with an error", kWide,
           [&](WireClient& client) {
             const std::string prefix("\0\xff\xff\xff\xff", 5);
             client.Headers(1, client.Request(Path()));
             client.Data(1, prefix + Message(), true);
             return IsRefused(client, 1, "4 GiB");
           });
}

void ConformanceChecker::CheckWireStreams() {
  size_t bytes = 0;
  for (const ProbedMessage& message : full_.messages) bytes += message.bytes;
  const auto step = static_cast<uint32_t>(std::clamp<size_t>(bytes / 200, 7, 64 * kMiB));
  WireRule("wire-window", "an answer keeps to a small window, and comes whole and in order", step,
           [&](WireClient& client) {
             if (const auto skip = WithoutAnswer()) return *skip;
             client.Call(1, Path(), Message());
             client.AwaitEnd(1, step);
             return IsWhole(client, 1);
           });
  WireRule("wire-reset", "RST_STREAM ends its stream, and the connection stays usable", kNarrow,
           [&](WireClient& client) {
             if (const auto skip = WithoutAnswer()) return *skip;
             client.Call(1, Path(), Message());
             if (Finding begun = Begins(client, 1); begun.result != RuleResult::kPass) return begun;
             client.Reset(1);
             if (!client.Ping()) return Fail(StrCat("after RST_STREAM: ", client.failure()));
             client.MarkDead(1);
             // A stream that still exists would continue now.
             client.WidenStreams(kStep);
             Finding finding = Serves(client, 3);
             if (finding.result == RuleResult::kPass && client.answer(1).frames_of_death > 0) {
               return Fail("the stream goes on after RST_STREAM");
             }
             return finding;
           });
  WireRule("wire-reset-other", "a stream that is reset does not stop another one", kNarrow,
           [&](WireClient& client) {
             if (const auto skip = WithoutAnswer()) return *skip;
             for (const uint32_t stream : {1U, 3U}) client.Call(stream, Path(), Message());
             for (const uint32_t stream : {1U, 3U}) {
               if (Finding begun = Begins(client, stream); begun.result != RuleResult::kPass) {
                 return begun;
               }
             }
             client.Reset(1);
             client.AwaitEnd(3, kStep);
             return IsWhole(client, 3);
           });
  WireRule("wire-half-request", "a request that does not end holds up no other", kWide,
           [&](WireClient& client) {
             if (const auto skip = WithoutAnswer()) return *skip;
             const std::string half = WireClient::Framed(Message());
             client.Headers(1, client.Request(Path()));
             client.Data(1, std::string_view(half).substr(0, half.size() / 2), false);
             return Serves(client, 3);
           });
  WireRule("wire-goaway", "a stream that is open at the client's GOAWAY gets its whole answer",
           kNarrow, [&](WireClient& client) {
             if (const auto skip = WithoutAnswer()) return *skip;
             client.Call(1, Path(), Message());
             if (Finding begun = Begins(client, 1); begun.result != RuleResult::kPass) return begun;
             client.Goaway();
             client.AwaitEnd(1, kStep);
             return IsWhole(client, 1);
           });
}

}  // namespace cbt::rpc
