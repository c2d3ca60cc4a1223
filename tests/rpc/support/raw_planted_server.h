// A CSI server of handmade frames that keeps the rules of gRPC over HTTP/2, except for one fault
// that a test names. It answers plain requests for one snapshot, "target".
#ifndef CBT_TESTS_RPC_SUPPORT_RAW_PLANTED_SERVER_H_
#define CBT_TESTS_RPC_SUPPORT_RAW_PLANTED_SERVER_H_

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rpc/contract/contract.h"
#include "rpc/http2/protocol.h"
#include "tests/rpc/http2/raw_server.h"
#include "tests/support/temp_dir.h"
#include "wire/proto_writer.h"

namespace cbt::test {

class RawPlantedServer {
 public:
  explicit RawPlantedServer(std::string fault) : fault_(std::move(fault)) {
    listener_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    (dir_ / "s").copy(name.sun_path, sizeof name.sun_path - 1);
    if (bind(listener_, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
        listen(listener_, 64) != 0) {
      throw std::runtime_error("listen");
    }
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~RawPlantedServer() {
    stop_ = true;
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (const int fd : descriptors_) shutdown(fd, SHUT_RDWR);
    for (std::thread& thread : threads_) thread.join();
    for (const int fd : descriptors_) close(fd);
    close(listener_);
  }
  RawPlantedServer(const RawPlantedServer&) = delete;
  RawPlantedServer& operator=(const RawPlantedServer&) = delete;

  std::string address() const { return "unix://" + (dir_ / "s"); }

 private:
  void Accept() {
    while (!stop_) {
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) continue;
      descriptors_.push_back(dup(fd));
      threads_.emplace_back(
          [this, fd, first = threads_.empty()] { Session(fd, fault_, first).Run(); });
    }
  }

  class Session {
   public:
    // `first`: the server's first connection, which the checker makes with a channel.
    Session(int fd, const std::string& fault, bool first)
        : connection_(fd), fault_(fault), first_(first) {
      nghttp2_hd_inflate_new(&inflater_);
    }
    ~Session() { nghttp2_hd_inflate_del(inflater_); }
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    void Run() {
      if (Has("ping-first") && !first_) connection_.Send(Frame(6, 0, 0, "12345678"));
      // Windows so large that they never run out.
      connection_.Send(Frame(4, 0, 0, std::string("\0\4\x7f\0\0\0", 6)) +
                       Frame(8, 0, 0, Number(0x7f000000)));
      while (auto frame = connection_.Next()) {
        if (!OnFrame(*frame)) break;
      }
      // Closing is not enough: the server has a duplicate.
      shutdown(connection_.fd(), SHUT_RDWR);
    }

   private:
    struct Stream {
      FieldList fields;
      std::string body;
      std::string answer;  // DATA waiting for the window
      FieldList trailers;  // sent after it
      int64_t window = 0;
      bool open = false;  // the request has not ended
      bool answering = false;
    };

    bool Has(const char* fault) const { return fault_ == fault; }

    bool OnFrame(const RawConnection::Received& frame) {
      const bool ack = (frame.flags & 1) != 0;
      switch (frame.type) {
        case 0:
          OnData(frame);
          return true;
        case 1:
          OnHeaders(frame);
          return true;
        case 3:
          return OnReset(frame.stream);
        case 4:
          if (!ack) OnSettings(frame.payload);
          return true;
        case 6:
          if (!ack && !Has("no-pong")) {
            connection_.Send(Frame(6, 1, 0, Has("other-pong") ? "otherxyz" : frame.payload));
          }
          return true;
        case 7:
          // Drops the open streams.
          if (Has("goaway-ends")) streams_.clear();
          return !Has("goaway-closes");
        case 8:
          if (frame.stream == 0) return true;
          if (const auto found = streams_.find(frame.stream); found != streams_.end()) {
            found->second.window += Word(frame.payload, 0);
            Pump(frame.stream);
          }
          return true;
        default:
          return !Has("unknown-frames-end");
      }
    }

    static uint32_t Word(const std::string& bytes, size_t at) {
      uint32_t word = 0;
      for (size_t i = at; i < at + 4; ++i) word = word << 8 | static_cast<uint8_t>(bytes.at(i));
      return word;
    }

    void OnSettings(const std::string& payload) {
      for (size_t at = 0; at + 6 <= payload.size(); at += 6) {
        if (payload[at] != 0 || payload[at + 1] != 4) continue;
        const int64_t change = int64_t{Word(payload, at + 2)} - window_;
        window_ += change;
        for (auto& [id, stream] : streams_) stream.window += change;
      }
      if (!Has("no-settings-ack")) connection_.Send(Frame(4, 1, 0, ""));
      std::vector<uint32_t> ids;
      for (const auto& [id, stream] : streams_) ids.push_back(id);
      for (const uint32_t id : ids) Pump(id);
    }

    // Returns false if the connection ends.
    bool OnReset(uint32_t id) {
      if (Has("reset-is-ignored")) return true;
      streams_.erase(id);
      if (Has("reset-ends-all")) streams_.clear();
      return !Has("reset-closes");
    }

    void OnHeaders(const RawConnection::Received& frame) {
      Stream& stream = streams_[frame.stream];
      stream.window = window_;
      stream.open = true;
      std::string_view rest = frame.payload;
      for (;;) {
        nghttp2_nv field;
        int flags = 0;
        const ssize_t used =
            nghttp2_hd_inflate_hd2(inflater_, &field, &flags,
                                   reinterpret_cast<const uint8_t*>(rest.data()), rest.size(), 1);
        if (used < 0) throw std::runtime_error("HPACK");
        rest.remove_prefix(static_cast<size_t>(used));
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
          stream.fields.emplace_back(
              std::string(reinterpret_cast<char*>(field.name), field.namelen),
              std::string(reinterpret_cast<char*>(field.value), field.valuelen));
        }
        if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
      }
      nghttp2_hd_inflate_end_headers(inflater_);
      if ((frame.flags & 1) != 0) OnRequest(frame.stream);
    }

    void OnData(const RawConnection::Received& frame) {
      const auto found = streams_.find(frame.stream);
      if (found == streams_.end()) return;
      // Drops the rest of the request.
      if (frame.payload.empty() && Has("empty-frames-end"))
        streams_.erase(found);
      else
        found->second.body += frame.payload;
      if (!streams_.contains(frame.stream)) return;
      if ((frame.flags & 1) != 0) OnRequest(frame.stream);
    }

    static std::string Find(const Stream& stream, const std::string& name) {
      for (const auto& [key, value] : stream.fields) {
        if (key == name) return value;
      }
      return "";
    }

    // Serves one request at a time: an earlier unfinished one blocks this one.
    bool IsHeldUp(uint32_t id) const {
      return Has("half-request-holds") &&
             std::any_of(streams_.begin(), streams_.end(),
                         [&](const auto& entry) { return entry.first < id && entry.second.open; });
    }

    void OnRequest(uint32_t id) {
      Stream& stream = streams_.at(id);
      if (IsHeldUp(id)) return;
      stream.open = false;
      const std::string path = Find(stream, ":path");
      const bool is_method = path == rpc::kCsiContract.allocated.path ||
                             path == rpc::kCsiContract.delta.path ||
                             path.starts_with("/csi.v1.Identity/");
      if (Find(stream, ":method") != "POST") {
        if (Has("get-ok")) return AnswerNothing(id);
        return Refuse(id, "405", "13");
      }
      if (Find(stream, "te").empty()) {
        if (Has("te-hangs")) return;
        if (Has("te-cuts")) return Answer(id, 1);
        return Refuse(id, "400", "13");
      }
      if (!rpc::http2::IsGrpcContentType(Find(stream, "content-type"))) {
        if (Has("type-hangs")) return;
        if (Has("type-ok")) return AnswerNothing(id);
        return Refuse(id, "415", "13");
      }
      if (!is_method) {
        if (Has("unknown-method-ok")) return AnswerNothing(id);
        return Refuse(id, "200", Has("unknown-method-internal") ? "13" : "12");
      }
      if (!Find(stream, "grpc-encoding").empty()) {
        if (Has("compressed-ok")) return AnswerNothing(id);
        return Refuse(id, "200", Has("compressed-invalid") ? "3" : "12");
      }
      if (!Find(stream, "grpc-cbt-conform").empty() && Has("metadata-refused")) {
        return Refuse(id, "200", "3");
      }
      if (stream.body.empty()) return Has("none-ok") ? Answer(id, 2) : Refuse(id, "200", "13");
      if (stream.body.size() < 5 || Word(stream.body, 1) != stream.body.size() - 5) {
        const bool is_long = stream.body.size() >= 5 && Word(stream.body, 1) == 0xffffffff;
        if (Has("cut-hangs") && !is_long) return;
        if (Has("long-hangs") && is_long) return;
        if (is_long ? Has("long-ok") : Has("cut-ok")) return Answer(id, 2);
        return Refuse(id, "200", is_long ? "8" : "13");
      }
      // The client's own requests with a deadline of a millisecond.
      if (const std::string timeout = Find(stream, "grpc-timeout"); timeout == "1m") {
        if (Has("timeout-hangs")) return;
        if (Has("timeout-cuts")) return Answer(id, 1);
        return Refuse(id, "200", "4");
      }
      if (stream.body.find("no-such-snapshot") != std::string::npos) return Refuse(id, "200", "5");
      // A client resets a unary call that has two messages, and the reset may meet the next call.
      if (path.starts_with("/csi.v1.Identity/")) return AnswerNothing(id);
      Answer(id, 2);
    }

    void Refuse(uint32_t id, const std::string& http, const std::string& code) {
      connection_.Send(
          Of(id, HeadersFrame({{":status", http},
                               {"content-type", "application/grpc"},
                               {"grpc-status", code},
                               {"grpc-message", Has("raw-text") ? "100%\n" : "100%25%0A"}},
                              true)));
      streams_.erase(id);
    }

    void AnswerNothing(uint32_t id) {
      connection_.Send(Of(
          id, HeadersFrame(
                  {{":status", "200"}, {"content-type", "application/grpc"}, {"grpc-status", "0"}},
                  true)));
      streams_.erase(id);
    }

    // Queues the first messages of the answer.
    void Answer(uint32_t id, size_t messages) {
      Stream& stream = streams_.at(id);
      FieldList head = {{":status", Has("created") ? "201" : "200"},
                        {"content-type", Has("html") ? "text/html" : "application/grpc"}};
      if (Has("early-status")) head.emplace_back("grpc-status", "14");
      connection_.Send(Of(id, HeadersFrame(head)));
      for (size_t i = 0; i < messages; ++i) stream.answer += MessageBytes(Message(i));
      if (Has("swapped")) {
        stream.answer.clear();
        for (const size_t i : {1u, 0u}) stream.answer += MessageBytes(Message(i));
      }
      stream.trailers = {{"grpc-status", "0"}};
      if (Has("two-statuses")) stream.trailers.emplace_back("grpc-status", "0");
      if (Has("no-status")) stream.trailers = {{"x", "y"}};
      stream.answering = true;
      Pump(id);
    }

    static std::string Message(size_t index) {
      std::string message;
      wire::AppendVarintField(message, 1, 2);  // VARIABLE_LENGTH
      wire::AppendVarintField(message, 2, 1'000'000);
      for (uint64_t i = 0; i < 20; ++i) {
        std::string tuple;
        wire::AppendVarintField(tuple, 1, (20 * index + i) * 8192 + 4096);
        wire::AppendVarintField(tuple, 2, 4096);
        wire::AppendBytesFieldAlways(message, 3, tuple);
      }
      return message;
    }

    // Sends what the window allows, then the trailers.
    void Pump(uint32_t id) {
      const auto found = streams_.find(id);
      if (found == streams_.end() || !found->second.answering) return;
      Stream& stream = found->second;
      while (!stream.answer.empty() && stream.window > 0) {
        const auto most = static_cast<size_t>(std::min<int64_t>(stream.window, 16'000));
        std::string part = stream.answer.substr(0, Has("no-window") ? 16'000 : most);
        stream.answer.erase(0, part.size());
        stream.window -= static_cast<int64_t>(part.size());
        connection_.Send(Of(id, DataFrame(part)));
      }
      if (!stream.answer.empty()) return;
      connection_.Send(Of(id, HeadersFrame(stream.trailers, true)));
      streams_.erase(found);
    }

    // A frame for a stream other than 1.
    static std::string Of(uint32_t id, std::string frame) {
      frame.replace(5, 4, Number(id));
      return frame;
    }

    RawConnection connection_;
    const std::string& fault_;
    const bool first_;
    nghttp2_hd_inflater* inflater_ = nullptr;
    std::map<uint32_t, Stream> streams_;
    int64_t window_ = 65535;
  };

  const std::string fault_;
  const TempDir dir_;
  int listener_ = -1;
  std::atomic<bool> stop_ = false;
  // duplicates, to end the sessions; the acceptor's until it has ended
  std::vector<int> descriptors_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace cbt::test

#endif  // CBT_TESTS_RPC_SUPPORT_RAW_PLANTED_SERVER_H_
